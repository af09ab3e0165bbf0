"""What is mutated: the examples at every level, small files of most operations, broken rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast
from rpeg.ir.parse import parse_module
from rpeg.ir.rules.explain import rules
from tests.unit.tools.fuzzing.trees import tree
from tests.unit.tools.opt import EXAMPLES, ROOT, opt

LEVELS = (
    "",
    "rpeg-annotate-parallelism{dp=2}",
    "rpeg-annotate-parallelism{dp=2},rpeg-fuse-inference,rpeg-schedule",
    "rpeg-annotate-parallelism{dp=2},rpeg-schedule,rpeg-lower-to-programs",
)


@dataclass(frozen=True)
class Seed:
    """A text that parses, and what it reads as."""

    text: str
    content: ast.File | ModuleOp


@cache
def seeds(form: str) -> list[Seed]:
    """The seeds of a form, `rpeg` or `mlir`."""
    return [seed(text, form) for text in (_rpeg() if form == "rpeg" else _mlir())]


@cache
def mistakes(form: str) -> list[Seed]:
    """The example that breaks it, of every rule whose example has this form."""
    return [seed(rule.broken, form) for rule in rules().values() if rule.language == form]


def seed(text: str, form: str) -> Seed:
    """The seed of a text that parses."""
    return Seed(text, tree(text) if form == "rpeg" else module_of(text))


def _rpeg() -> Iterator[str]:
    yield from (path.read_text(encoding="utf-8") for path in EXAMPLES)
    yield from (rule.mended for rule in rules().values() if rule.language == "rpeg")


def _mlir() -> Iterator[str]:
    written = sorted((ROOT / "tests" / "filecheck" / "dialect").glob("*.mlir"))
    for number, path in enumerate((*EXAMPLES, *written)):
        flags = ["--print-op-generic"] if number % 2 else []
        run = opt(str(path), "-p", LEVELS[number % len(LEVELS)], *flags)
        yield run.out or opt(str(path), *flags).out
    yield from (rule.mended for rule in rules().values() if rule.language == "mlir")


def module_of(text: str) -> ModuleOp:
    """The module of a text that parses."""
    module, _, problems = parse_module(text, "f")
    assert module is not None, problems
    return module
