"""The table of instructions agrees with the runtime's own signatures."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rpeg import runtime
from rpeg.ir.rrt.instructions import CONSTANTS, INSTRUCTIONS, RECORDS, Instruction

ROWS = [pytest.param(row, id=".".join(filter(None, row.key))) for row in INSTRUCTIONS.values()]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def target(row: Instruction) -> Callable[..., Any]:
    """The runtime's function, class, or method."""
    owner = getattr(runtime, row.receiver) if row.receiver else runtime
    found: Callable[..., Any] = getattr(owner, row.name)
    return found


def parameters(row: Instruction) -> list[inspect.Parameter]:
    found = list(inspect.signature(target(row)).parameters.values())
    return found[1:] if row.receiver else found


@pytest.mark.parametrize("row", ROWS)
def test_positional_values(row: Instruction) -> None:
    by_keyword = {*row.settings, *row.optional}
    taken = [p for p in parameters(row) if p.kind in POSITIONAL and p.name not in by_keyword]
    needed = [p for p in taken if p.default is inspect.Parameter.empty]
    assert len(needed) <= len(row.things) <= len(taken)
    spare = [p.name for p in taken[len(row.things) :]]
    assert set(spare) <= set(row.keywords), "a positional parameter that no value is given for"
    several = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters(row))
    assert several == bool(row.more)
    if row.free:
        kinds = {p.kind for p in taken}
        assert kinds == {inspect.Parameter.POSITIONAL_ONLY}, "a keyword could have its name"


@pytest.mark.parametrize("row", ROWS)
def test_settings(row: Instruction) -> None:
    given = {*row.settings, *row.optional, *row.keywords}
    by_name = {p.name: p for p in parameters(row) if p.kind is inspect.Parameter.KEYWORD_ONLY}
    positional = {p.name: p for p in parameters(row) if p.kind in POSITIONAL}
    free = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters(row))
    assert free == row.free
    assert given <= {*by_name, *positional}, "a setting that the runtime does not take"
    always = {n for n, p in by_name.items() if p.default is inspect.Parameter.empty}
    assert always <= {*row.settings, *row.keywords}, "a parameter that every call must give"
    # The source of a frozen model is a text, or another model's initial weights.
    assert not always & {*row.optional} - {*row.keywords}, "a parameter that none may leave out"


@pytest.mark.parametrize("row", ROWS)
def test_classes(row: Instruction) -> None:
    assert row.receiver in {"", *runtime.__all__}
    if inspect.isclass(target(row)):
        assert row.results == (row.name,) or row.name == "InitialWeights"


@pytest.mark.parametrize("row", ROWS)
def test_number_of_results(row: Instruction) -> None:
    if inspect.isclass(target(row)):
        return
    returned = inspect.signature(target(row)).return_annotation
    if row.each:
        assert returned == "tuple[Tensor, ...]"
    elif row.open:
        assert returned == "tuple[Any, ...]"
    elif len(row.results) == 0:
        assert returned in ("None", None)
    elif len(row.results) == 1:
        assert not str(returned).startswith("tuple")
    else:
        assert str(returned).startswith("tuple")


@pytest.mark.parametrize("name", RECORDS)
def test_records(name: str) -> None:
    fields = [f.name for f in dataclasses.fields(getattr(runtime, name))]
    assert fields == list(RECORDS[name])


def test_constants() -> None:
    assert set(CONSTANTS) <= set(runtime.__all__)
