"""What is mutated: the examples at every level, and small files that show most operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast
from rpeg.ir.parse import parse_module
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
    """A text without errors, and what it reads as."""

    text: str
    content: ast.File | ModuleOp


@cache
def seeds(form: str) -> list[Seed]:
    """The seeds of a form, `rpeg` or `mlir`."""
    if form == "rpeg":
        texts = (path.read_text(encoding="utf-8") for path in EXAMPLES)
        return [Seed(text, tree(text)) for text in texts]
    return [Seed(text, module_of(text)) for text in _mlir()]


def _mlir() -> Iterator[str]:
    written = sorted((ROOT / "tests" / "filecheck" / "dialect").glob("*.mlir"))
    for number, path in enumerate((*EXAMPLES, *written)):
        for passes in LEVELS:
            flags = ["--print-op-generic"] if number % 2 else []
            run = opt(str(path), "-p", passes, *flags)
            if run.code == 0:
                yield run.out


def module_of(text: str) -> ModuleOp:
    """The module of a text without errors."""
    module, _, problems = parse_module(text, "f")
    assert module is not None, problems
    return module
