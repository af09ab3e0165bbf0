"""Seeded mutants of a `.rpeg` text that still parse: edits of its syntax tree."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from rpeg.frontend import ast
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render

Path = tuple[tuple[str, int | None], ...]
"""The way from the file to a node: field names, with the number inside of a tuple."""

NAMES = ("a", "_", "Ab_9", "modelled", "on_", "a_name_so_long_that_lines_with_it_break_early")
NUMBERS = ("0", "1", "-1", "2", "3", "7", "1_000_000")
FLOATS = ("0.0", "1.0", "-0.5", "1e-6", "1e9", "0.3")
LITERALS = [
    *(ast.Literal("int", text) for text in NUMBERS),
    *(ast.Literal("float", text) for text in FLOATS),
    ast.Literal("bool", "true"),
    ast.Literal("str", '"x"'),
    ast.Literal("quantity", "3s"),
    ast.Literal("quantity", "1MiB"),
]


TRIES = 50
"""After so many, nothing is left to edit."""


class Unchanged(Exception):
    """There was nothing to edit in this way."""


def tree(text: str) -> ast.File:
    """The tree of a text without mistakes."""
    found, problems = parse(text, "f")
    assert found is not None and not problems, problems
    return found


def mutant(file: ast.File, draw: random.Random, gently: bool) -> str:
    """The text of a tree after one to three random edits; one that matters little, if gently."""
    if gently:
        return render(renamed(file, draw))
    wanted = draw.choice((1, 1, 1, 2, 3))
    for _ in range(TRIES):
        with suppress(Unchanged):
            file = draw.choice(EDITS)(file, draw)
            wanted -= 1
        if wanted == 0:
            break
    return render(file)


def nodes(node: Any, path: Path = ()) -> Iterator[tuple[Path, ast.Node]]:
    """Every node with the way to it."""
    yield path, node
    for name, number, child in _children(node):
        yield from nodes(child, (*path, (name, number)))


def _children(node: ast.Node) -> Iterator[tuple[str, int | None, ast.Node]]:
    for name in (f.name for f in fields(node) if f.compare):
        held = getattr(node, name)
        if isinstance(held, tuple):
            yield from ((name, n, child) for n, child in enumerate(held) if _is_node(child))
        elif _is_node(held):
            yield name, None, held


def _is_node(value: object) -> bool:
    return isinstance(value, ast.Node)


def put(node: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """The tree with another node at the end of a way."""
    if not path:
        return change(node)
    (name, number), rest = path[0], path[1:]
    held = getattr(node, name)
    if number is None:
        return replace(node, **{name: put(held, rest, change)})
    child = put(held[number], rest, change)
    return replace(node, **{name: (*held[:number], child, *held[number + 1 :])})


def pick(file: ast.File, draw: random.Random, *kinds: type) -> tuple[Path, Any]:
    """A random node of some kinds. Raises Unchanged if there is none."""
    found = [(path, node) for path, node in nodes(file) if isinstance(node, kinds)]
    if not found:
        raise Unchanged
    return draw.choice(found)


def renamed(file: ast.File, draw: random.Random) -> ast.File:
    """One name everywhere."""
    _, node = pick(file, draw, ast.Ref)
    old, new = node.name, f"{draw.choice(NAMES)}{draw.randint(0, 99)}"
    fields = {"name": (ast.Ref, ast.Symbol, ast.Expect), "stage": (ast.Place,)}
    for field, kinds in fields.items():
        for path, each in nodes(file):
            if isinstance(each, kinds) and getattr(each, field) == old:
                file = put(file, path, lambda n, field=field: replace(n, **{field: new}))
    return file


def _literal(file: ast.File, draw: random.Random) -> ast.File:
    path, _ = pick(file, draw, ast.Literal)
    if path[-1][0] not in ("value", "items"):  # a count or an offset is a whole number
        return put(file, path, lambda _: ast.Literal("int", draw.choice(NUMBERS[:2] + NUMBERS[3:])))
    return put(file, path, lambda _: draw.choice(LITERALS))


def _number(file: ast.File, draw: random.Random) -> ast.File:
    """A number a little off."""
    path, node = pick(file, draw, ast.Literal)
    if node.kind != "int":
        raise Unchanged
    value = int(node.text.replace("_", "")) + draw.choice((-1, 1, 2))
    return put(file, path, lambda _: ast.Literal("int", str(max(value, 0))))


def _word(file: ast.File, draw: random.Random) -> ast.File:
    """A name in the place of another; names of targets too."""
    path, _ = pick(file, draw, ast.Ref)
    _, other = pick(file, draw, ast.Ref, ast.Symbol)
    return put(file, path, lambda node: replace(node, name=other.name))


def _version(file: ast.File, draw: random.Random) -> ast.File:
    path, node = pick(file, draw, ast.Ref)
    i = "i" if node.version is None else getattr(node.version, "base", "i")

    def back(steps: int) -> ast.Index:
        return ast.Index(i, "-", ast.Literal("int", str(steps)))

    after = ast.Index(i, "+", ast.Literal("int", "1"))
    window = ast.Window(back(draw.randint(1, 9)), ast.Index(i))
    versions = (None, ast.Index(i), after, back(1), back(9), window)
    return put(file, path, lambda n: replace(n, version=draw.choice(versions)))


def _call(file: ast.File, draw: random.Random) -> ast.File:
    path, _ = pick(file, draw, ast.Call)
    _, other = pick(file, draw, ast.Call)
    return put(file, path, lambda node: replace(node, name=other.name))


def _arguments(file: ast.File, draw: random.Random) -> ast.File:
    """Arguments of a call dropped, doubled, swapped, or taken from another call."""
    path, node = pick(file, draw, ast.Call)
    _, other = pick(file, draw, ast.Call)
    return put(file, path, lambda n: replace(n, args=_shuffled(node.args, other.args, draw)))


def _things(file: ast.File, draw: random.Random) -> ast.File:
    """Two arguments without names change places."""
    path, node = pick(file, draw, ast.Call)
    if len(node.things) < 2:
        raise Unchanged
    things = list(node.things)
    draw.shuffle(things)
    return put(file, path, lambda n: replace(n, args=(*things, *node.settings)))


LISTS = ("declarations", "body", "expects", "plans", "pools", "places", "clauses", "pipelines")


def _lists(file: ast.File, draw: random.Random) -> ast.File:
    """Statements, declarations, lines of a plan dropped, doubled, swapped, taken from elsewhere."""
    found = [(p, n, name) for p, n in nodes(file) for name in LISTS if getattr(n, name, None)]
    path, node, name = draw.choice(found)
    others = [n for _, n, same in found if same == name]
    more = getattr(draw.choice(others), name)
    items = _shuffled(getattr(node, name), more, draw)
    if not items and name in ("body", "pipelines"):
        raise Unchanged
    return put(file, path, lambda n: replace(n, **{name: items}))


def _shuffled(items: Sequence[Any], more: Sequence[Any], draw: random.Random) -> tuple[Any, ...]:
    changed = list(items)
    if more:
        changed.insert(draw.randint(0, len(changed)), draw.choice(more))
    match draw.choice(("drop", "double", "swap", "more")):
        case "drop" if items:
            changed = list(items)
            del changed[draw.randrange(len(changed))]
        case "double" if items:
            changed = list(items)
            changed.insert(draw.randint(0, len(changed)), draw.choice(changed))
        case "swap" if items:
            changed = list(items)
            one, other = draw.randrange(len(changed)), draw.randrange(len(changed))
            changed[one], changed[other] = changed[other], changed[one]
    return tuple(changed)


def _targets(file: ast.File, draw: random.Random) -> ast.File:
    path, node = pick(file, draw, ast.Statement)
    return put(file, path, lambda n: replace(n, targets=_shuffled(node.targets, (), draw)))


def _setting(file: ast.File, draw: random.Random) -> ast.File:
    """The value of a setting from another one."""
    path, node = pick(file, draw, ast.Arg)
    _, other = pick(file, draw, ast.Arg)
    if node.name is None or other.name is None:
        raise Unchanged
    return put(file, path, lambda n: replace(n, value=other.value))


def _stage(file: ast.File, draw: random.Random) -> ast.File:
    path, _ = pick(file, draw, ast.Place)
    _, other = pick(file, draw, ast.Ref, ast.Place)
    name = other.name if isinstance(other, ast.Ref) else other.stage
    pool = draw.choice(("all", "none", "others"))
    field, value = draw.choice((("stage", name), ("pool", pool)))
    return put(file, path, lambda n: replace(n, **{field: value}))


def _range(file: ast.File, draw: random.Random) -> ast.File:
    path, node = pick(file, draw, ast.Range)
    low, high = sorted((draw.randint(0, 3), node.high + draw.choice((-1, 0, 1, 90))))
    ends = draw.choice(((low, high), (high, low)))
    return put(file, path, lambda _: ast.Range(max(ends[0], 0), max(ends[1], 0)))


def _cluster(file: ast.File, draw: random.Random) -> ast.File:
    path, _ = pick(file, draw, ast.Plan)
    name = draw.choice(("h100-1", "alps-2", "nowhere-3", "", "local"))
    return put(file, path, lambda n: replace(n, cluster=name))


EDITS: Sequence[Callable[[ast.File, random.Random], ast.File]] = (
    *(_literal, _literal, _number, _number, _word, _word, _word, _version, _version, _call),
    *(_arguments, _arguments, _things, _lists, _lists, _lists, _targets, _setting, _stage),
    *(_range, _cluster),
)
