"""Rules of programs (L3) that ask more than one instruction: of whole programs, and of what the
program around an instruction asks of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import takewhile

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation

from rpeg.ir.declared import enclosing
from rpeg.ir.layout import contradictions, size_of, width_of
from rpeg.ir.rrt.calls import CallOp, calls
from rpeg.ir.rrt.instructions import pools_of
from rpeg.ir.rrt.program import LoopOp, ProgramOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.program_rows import buffer_violations, lag_violations, row_violations
from rpeg.ir.rules.program_weights import (
    cache_violations,
    trainer_violations,
    weights_violations,
    window_violations,
)
from rpeg.ir.rules.shares import uneven
from rpeg.ir.rules.violations import Violation
from rpeg.ir.rules.walks import Walk
from rpeg.ir.text.naming import NAME
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

SHA256 = re.compile(r"[0-9a-f]{64}")


def program_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Every broken rule of each program, and of each instruction in its program."""
    for program in walk.of(ProgramOp):
        yield from ((program, found) for found in _whole(program))
    for call in (call for call in walk.of(CallOp) if call.known):
        yield from ((call, found) for rule in CALL_RULES for found in rule(call))


def _whole(program: ProgramOp) -> Iterator[Violation]:
    if program.start is None:
        return
    yield from name_violations(program, program.start)
    yield from pool_violations(program, program.start)
    if len(program.loops) == 1:
        yield from order_violations(program, program.loops[0])


def name_violations(program: ProgramOp, start: CallOp) -> Iterator[Violation]:
    """Names that stand outside of string literals: in file names, comments and headers."""
    if not NAME.fullmatch(program.pool.data):
        yield Violation("plain-names", f"a process group has a plain name, not {program.pool}")
    for setting, form in (("pipeline", NAME), ("source_sha256", SHA256)):
        held = start.settings.get(setting)
        if held is not None and not (isinstance(held, StringAttr) and form.fullmatch(held.data)):
            what = "a plain name" if form is NAME else "64 hexadecimal digits"
            yield Violation("plain-names", f"start: {setting} is {what}, not {held}")


def pool_violations(program: ProgramOp, start: CallOp) -> Iterator[Violation]:
    """Another number of processes, or other pools, than the program is for."""
    started, count = python_value(start.settings.get("processes")), program.process_count
    table = start.settings.get("pools")
    if table is None:
        if started != count:
            text = f"the program is for {count} processes, its start says {started}"
            yield Violation("process-count", text)
        return
    pools = pools_of(table)
    mine = pools.get(program.pool.data)
    if mine is None or mine[1] - mine[0] != count:
        pool, has = program.pool.data, "none" if mine is None else f"{mine[0]} to {mine[1] - 1}"
        text = f"the program is for {count} processes of `{pool}`, its start has {has}"
        yield Violation("process-count", text, violations.setting("pools"))
    elif max(end for _, end in pools.values()) != started:
        text = f"the pools have other processes than the {started} that start says"
        yield Violation("process-count", text, violations.setting("processes"))
    for setting in ("pool", "home"):
        named = python_value(start.settings.get(setting))
        if named not in pools:
            text = f"start: {setting} is {named}, which is none of {', '.join(pools)}"
            yield Violation("unknown-process-group", text, violations.setting(setting))


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


CALL_RULES: tuple[Callable[[CallOp], Iterator[Violation]], ...] = (
    *(layout_violations, trainer_violations, weights_violations, cache_violations),
    *(row_violations, buffer_violations, lag_violations, window_violations),
)
"""What the program around an instruction asks of it."""
