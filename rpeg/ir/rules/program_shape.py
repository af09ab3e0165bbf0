"""Rules of a program (L3) as a whole: restored once, finished, layouts of all its processes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Attribute, Operation

from rpeg.ir.declared import enclosing
from rpeg.ir.layout import contradictions, size_of, width_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.shares import uneven
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

if TYPE_CHECKING:
    from rpeg.ir.rrt import CallOp, LoopOp, ProgramOp


def order_violations(program: ProgramOp, loop: LoopOp) -> Iterator[Violation]:
    """One restore, between what exists and the loop; a finish at the end."""
    restores = [call for call in calls(program) if call.callee.data == "restore"]
    before_loop = list(takewhile(lambda op: op is not loop, program.body.block.ops))
    early = [call for call in restores if call in before_loop]
    if len(restores) != 1 or len(early) != 1:
        yield Violation(
            "restore-once",
            'a program restores its run once, before its loop: write rrt.call "restore" of %run '
            f"there; this program has {len(early)} there and {len(restores) - len(early)} "
            "elsewhere",
        )
    last = program.body.block.last_op
    if last not in [call for call in calls(program) if call.callee.data == "finish"]:
        yield Violation("finish-last", 'a program ends with rrt.call "finish" of %run')


def layout_violations(call: CallOp) -> Iterator[Violation]:
    """The layout of `groups` takes every process; each process takes an equal share of a batch,
    whatever the layout.
    """
    program = enclosing(call, "rrt.program")
    match call.callee.data, _layout(call):
        case "groups", RecordAttr() as layout if program is not None:
            yield from _product(layout, python_value(program.properties.get("processes")))
            yield from (
                Violation("layout-contradiction", t, violations.setting("layout"))
                for t in contradictions(layout)
            )
        case "batch", _:
            for layout in _program_layouts(program):
                yield from _shares(layout, call.settings.get("size"))
        case _:
            pass


def _product(layout: RecordAttr, processes: object) -> Iterator[Violation]:
    size = size_of(layout)
    if size != processes:
        text = f"tp x pp x cp x dp = {size}, the program is for {processes} processes"
        yield Violation("layout-size", text, violations.setting("layout"))


def _shares(layout: RecordAttr, held: Attribute | None) -> Iterator[Violation]:
    size = held.value.data if isinstance(held, IntegerAttr) else 0
    text = uneven((size, f"size={size}"), width_of(layout, "dp"))
    if text is not None:
        yield Violation("uneven-shares", text, violations.setting("size"))


def _layout(call: CallOp) -> RecordAttr | None:
    held = call.settings.get("layout")
    return held if isinstance(held, RecordAttr) and held.kind == "Layout" else None


def _program_layouts(program: Operation | None) -> list[RecordAttr]:
    """One of each data-parallel width."""
    found = (_layout(call) for call in calls(program)) if program is not None else ()
    return list({width_of(layout, "dp"): layout for layout in found if layout is not None}.values())


def calls(op: Operation) -> Iterator[CallOp]:
    """The instructions inside of an operation, in order."""
    from rpeg.ir.rrt import CallOp

    yield from (inner for inner in op.walk() if isinstance(inner, CallOp))
