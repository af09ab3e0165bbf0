"""Random programs without errors: the examples and the mended files of the rules, edited at random.

An edit that breaks a rule is not made, so every program is well typed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast, load
from rpeg.frontend.render import render
from rpeg.ir.text.diagnostics import has_errors
from rpeg.ir.text.sources import Sources
from tests.unit.tools.fuzzing.corpus import seeds
from tests.unit.tools.fuzzing.trees import TRIES, Unchanged, nodes, pick, put, renamed

WALK = 5
"""Programs of one walk."""


@dataclass(frozen=True)
class Program:
    """A text without errors, with what it reads as."""

    text: str
    file: ast.File
    module: ModuleOp
    sources: Sources


def walk(number: int, draw: random.Random) -> Iterator[Program]:
    """WALK programs, each an edit from the one before; numbers go round the files to start from."""
    held = seeds("rpeg")[number % len(seeds("rpeg"))].content
    assert isinstance(held, ast.File)
    for _ in range(WALK):
        program = _edited(held, draw)
        yield program
        held = program.file


def _edited(file: ast.File, draw: random.Random) -> Program:
    """The file after one edit that leaves it without errors."""
    for _ in range(TRIES):
        with suppress(Unchanged):
            made = draw.choice(EDITS)(file, draw)
            text = render(made)
            found = load(text, "f")
            if found.module is not None and not has_errors(found.diagnostics):
                return Program(text, made, found.module, found.sources)
    raise AssertionError(f"{TRIES} edits broke it:\n{render(file)}")


def words(text: str) -> Iterator[str]:
    """The names of the calls of a text: operations, declarations, records, clauses."""
    from tests.unit.tools.fuzzing.trees import tree

    yield from (node.name for _, node in nodes(tree(text)) if isinstance(node, ast.Call))


def _number(file: ast.File, draw: random.Random) -> ast.File:
    path, node = pick(file, draw, ast.Literal)
    match node.kind:
        case "int":
            factor = draw.choice((0, 1, 2, 4, 100))
            text = str(int(node.text.replace("_", "")) * factor + draw.choice((0, 0, 1)))
        case "float":
            text = repr(float(node.text) * draw.uniform(0.0, 2.0))
            if "." not in text and "e" not in text:
                raise Unchanged
        case "str":
            text = node.text[:-1] + draw.choice(("é", "x", "\\n", '\\"', " ")) + '"'
        case _:
            raise Unchanged
    return put(file, path, lambda _: ast.Literal(node.kind, text))


def _less(file: ast.File, draw: random.Random) -> ast.File:
    """A setting left at its default."""
    path, node = pick(file, draw, ast.Call)
    if not node.settings:
        raise Unchanged
    gone = draw.choice(node.settings)
    kept = tuple(arg for arg in node.args if arg is not gone)
    return put(file, path, lambda n: replace(n, args=kept))


def _borrowed(file: ast.File, draw: random.Random) -> ast.File:
    """A setting that a call of this name has elsewhere."""
    path, node = pick(file, draw, ast.Call)
    others = _settings()[node.name]
    if not others:
        raise Unchanged
    new = draw.choice(others)
    kept = tuple(arg for arg in node.args if arg.name != new.name)
    return put(file, path, lambda n: replace(n, args=(*kept, new)))


@cache
def _settings() -> Mapping[str, Sequence[ast.Arg]]:
    """The settings of all seeds, by the name of their call."""
    found = defaultdict[str, list[ast.Arg]](list)
    for held in (seed.content for seed in seeds("rpeg")):
        for call in (node for _, node in nodes(held) if isinstance(node, ast.Call)):
            found[call.name] += call.settings
    return found


def _order(file: ast.File, draw: random.Random) -> ast.File:
    """Settings, declarations or statements in another order."""
    path, node = pick(file, draw, ast.Call, ast.Pipeline, ast.Step, ast.Plan)
    if isinstance(node, ast.Call):
        settings = list(node.settings)
        draw.shuffle(settings)
        args = tuple(arg for arg in node.args if arg.name is None)
        return put(file, path, lambda n: replace(n, args=(*args, *settings)))
    name = {ast.Pipeline: "declarations", ast.Step: "body", ast.Plan: "places"}[type(node)]
    items = list(getattr(node, name))
    if len(items) < 2:
        raise Unchanged
    at = draw.randrange(len(items) - 1)
    items[at], items[at + 1] = items[at + 1], items[at]
    return put(file, path, lambda n: replace(n, **{name: tuple(items)}))


def _dropped(file: ast.File, draw: random.Random) -> ast.File:
    """A plan, an expectation or a statement less."""
    path, node = pick(file, draw, ast.Pipeline, ast.Step, ast.Plan)
    name = {ast.Pipeline: "expects", ast.Step: "body", ast.Plan: "places"}[type(node)]
    items = list(getattr(node, name))
    if len(items) < 2:
        raise Unchanged
    del items[draw.randrange(len(items))]
    return put(file, path, lambda n: replace(n, **{name: tuple(items)}))


EDITS: tuple[Callable[[ast.File, random.Random], ast.File], ...] = (
    *(renamed, _number, _number, _number, _less, _borrowed, _borrowed, _order, _dropped),
)
