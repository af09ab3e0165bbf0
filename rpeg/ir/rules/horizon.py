"""Rules of schedules against the steps of a run: figures that outlast it, so that they never act.

They warn: a pipeline that is shortened to try it is a sound one.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import IntegerAttr, StringAttr
from xdsl.ir import Attribute, Operation

from rpeg.ir.declared import step_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.values import WeightsType


def times_due(steps: int, period: int, start: int) -> int:
    """How often `every(steps=period, from=start)` is due in steps 0, 1, ..., steps - 1."""
    return max(0, steps // period - start // period)


def never_due(every: Operation) -> Iterator[Violation]:
    """An `every` is due in one of the steps at least."""
    steps, period = _steps(every), _whole(every.properties.get("steps"))
    start = _whole(every.properties.get("from"))
    if not (steps and period and start is not None) or times_due(steps, period, start):
        return
    name, most = ("steps", steps) if period > steps else ("from", steps // period * period - 1)
    yield Violation(
        "setting-range",
        f"{name}={start if name == 'from' else period}: never due in the {steps} steps of the "
        f"pipeline: write {name}={most} or less",
        violations.setting(name),
        severity="warning",
    )


def endless_warmup(model: Operation, name: str) -> Iterator[Violation]:
    """The warm-up of a model's optimizer ends before the run does, and its schedule begins."""
    optim, steps = model.properties.get("optim"), _steps(model)
    if not isinstance(optim, RecordAttr) or not steps:
        return
    warmup, schedule = _whole(optim.settings.get("warmup")), optim.settings.get("schedule")
    updates = _updates(model, name, steps) if warmup else 0
    shape = schedule.data if isinstance(schedule, StringAttr) else "constant"
    rest = 0 if shape == "constant" else 1
    if not warmup or not updates or warmup + rest <= updates:
        return
    never = "its lr is never reached" if warmup > updates else f"schedule={shape} never acts"
    most = f"write warmup={updates - rest} or less" if updates > rest else "leave warmup out"
    yield Violation(
        "setting-range",
        f"warmup={warmup}: the pipeline updates `{name}` {updates} times, so that {never}: {most}",
        violations.setting("optim.warmup"),
        severity="warning",
    )


def _updates(model: Operation, name: str, steps: int) -> int:
    """How often a run updates a model; 0 if it never does."""
    step = step_of(model)
    found = (op for op in step.walk() if _changes(op, name)) if step is not None else ()
    return max((_runs(op, steps) for op in found), default=0)


def _changes(op: Operation, name: str) -> bool:
    held = op.operands[0].type if op.name == "rpeg.update" and op.operands else None
    return isinstance(held, WeightsType) and held.owner == name


def _runs(op: Operation, steps: int) -> int:
    """How often an operation of the step runs."""
    around = op.parent_op()
    while around is not None and around.name != "rpeg.step":
        if around.name == "rpeg.every":
            period = _whole(around.properties.get("steps"))
            start = _whole(around.properties.get("from"))
            return times_due(steps, period, start) if period and start is not None else 0
        around = around.parent_op()
    return steps


def _steps(op: Operation) -> int | None:
    """The steps of the pipeline around an operation."""
    step = step_of(op)
    return _whole(step.properties.get("count")) if step is not None else None


def _whole(held: Attribute | None) -> int | None:
    """A count of at least 0; None where the value is not one, which another rule reports."""
    count = held.value.data if isinstance(held, IntegerAttr) else None
    return count if count is not None and count >= 0 else None
