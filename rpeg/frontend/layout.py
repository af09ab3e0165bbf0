"""Calls and lists on lines: on one if it fits, else items on the next, else one item per line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpeg.frontend import ast
from rpeg.frontend.trivia import Trivia
from rpeg.ir.text.diagnostics import Position

WIDTH = 100
"""Columns of a line, its comment not counted."""

Item = ast.Arg | ast.Value


def bracketed(prefix: str, item: Item, suffix: str, indent: int, trivia: Trivia) -> Iterator[str]:
    """The lines of `prefix item suffix`. A comment inside the item puts each part on a line."""
    pad = " " * indent
    flat = f"{pad}{prefix}{item}{suffix}"
    value, items = _value(item), _items(item)
    commented = trivia.within(value.at, end_of(item))
    if not commented and (len(flat) <= WIDTH or not items):
        yield flat
        return
    left, right = _brackets(item)
    start = items[0].at if items else end_of(item)
    yield f"{pad}{prefix}{left}{trivia.trailing(value.at.line, before=start)}"
    inner = f"{pad}  {', '.join(map(str, items))},"
    if commented or len(inner) > WIDTH:
        yield from one_a_line(items, ",", indent + 2, trivia, end_of(item))
    else:
        yield inner
    yield f"{pad}{right}{suffix}"


def one_a_line(
    items: Sequence[Item], last: str, indent: int, trivia: Trivia, end: Position
) -> Iterator[str]:
    """Items with the comments above and beside them, and the comments up to `end`."""
    pad = " " * indent
    for number, item in enumerate(items, 1):
        yield from (f"{pad}{comment.text}" for comment in trivia.before(item.at))
        following = items[number].at if number < len(items) else end
        suffix = "," if number < len(items) else last
        *lines, closing = bracketed("", item, suffix, indent, trivia)
        yield from lines
        yield closing + trivia.trailing(end_of(item).line, before=following)
    yield from (f"{pad}{comment.text}" for comment in trivia.before(end))


def end_of(item: Item) -> Position:
    """The place after an item that may span lines; the start of another, which doesn't."""
    value = _value(item)
    return value.end if isinstance(value, ast.Call | ast.ListOf) else value.at


def _value(item: Item) -> ast.Value:
    return item.value if isinstance(item, ast.Arg) else item


def _items(item: Item) -> Sequence[Item]:
    match _value(item):
        case ast.Call(args=args):
            return args
        case ast.ListOf(items=items):
            return items
        case _:
            return ()


def _brackets(item: Item) -> tuple[str, str]:
    """What stands before the items of a call or list, and after them."""
    name = f"{item.name}=" if isinstance(item, ast.Arg) and item.name is not None else ""
    value = _value(item)
    return (f"{name}{value.name}(", ")") if isinstance(value, ast.Call) else (f"{name}[", "]")
