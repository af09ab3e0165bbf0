"""Rules of `expect` lines: one for each thing, in its unit, with a mean and a cap that can be."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from rpeg.ir.declared import declaration, pipeline_of, place_in_file, step_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr, SecondsAttr
from rpeg.ir.types.values import TrajectoriesType
from rpeg.ir.vocabulary.settings import python_value

SHARED = ("rpeg.collect", "rpeg.group_advantage")
"""What leaves some groups out."""

TIMED = ("rpeg.verifier", "rpeg.tool")
"""Declarations that take seconds; a data set, and what samples, has lengths."""


def expectation_violations(
    op: Operation, target: str, distribution: RecordAttr, *, sound: bool
) -> Iterator[Violation]:
    """Broken rules of one line; `sound` if its settings fit its distribution."""
    yield from _once(op, target, distribution)
    match distribution.kind:
        case "ratio":
            yield from _share(op, target)
        case "lognormal" if sound:
            yield from _unit(op, target, distribution)
            yield from _mean_above_cap(distribution)
            yield from _cap_above_limit(op, target, distribution)
        case _:
            pass


def _once(op: Operation, target: str, distribution: RecordAttr) -> Iterator[Violation]:
    """A name has one line of lengths or times, and one of the share that is kept."""
    key = (target, distribution.kind == "ratio")
    pipeline = pipeline_of(op)
    lines = pipeline.regions[0].block.ops if pipeline is not None else ()
    first = next((o for o in lines if o.name == op.name and _key(o) == key), op)
    if first is not op:
        text = f"`{target}` already has an expect line at {place_in_file(first)}: keep one"
        yield Violation("repeated-clause", text)


def _key(op: Operation) -> tuple[str, bool] | None:
    target, held = op.properties.get("target"), op.properties.get("distribution")
    if not isinstance(target, StringAttr) or not isinstance(held, RecordAttr):
        return None
    return target.data, held.kind == "ratio"


def _share(op: Operation, target: str) -> Iterator[Violation]:
    """A ratio is of groups: those that a collect keeps, or whose advantages are not all zero."""
    maker = _maker(op, target)
    if maker is not None and maker.name not in SHARED:
        yield Violation(
            "operand-kind",
            f"ratio is the share that a collect keeps, or a group_advantage tells apart, and "
            f"`{target}` is made by neither: write lognormal(mean=500, cv=0.5) for lengths, or "
            "leave the line out",
        )


def _unit(op: Operation, target: str, distribution: RecordAttr) -> Iterator[Violation]:
    """Times have a unit, lengths are plain numbers."""
    has_unit = isinstance(distribution.settings["mean"], SecondsAttr)
    declared = declaration(op, target)
    if declared is not None and declared.name in TIMED and not has_unit:
        text = f"mean: `{target}` takes a time, which needs a unit: write mean=20ms or mean=2s"
        yield Violation("setting-kind", text, violations.setting("mean"))
    elif has_unit and _has_lengths(op, target):
        text = f"mean: `{target}` has lengths in tokens, not times: write mean=500, without a unit"
        yield Violation("setting-kind", text, violations.setting("mean"))


def _has_lengths(op: Operation, target: str) -> bool:
    declared, maker = declaration(op, target), _maker(op, target)
    if declared is not None:
        return declared.name == "rpeg.data"
    return maker is not None and isinstance(maker.results[0].type, TrajectoriesType)


def _maker(op: Operation, target: str) -> Operation | None:
    """The operation of the step that makes a value of this name."""
    step = step_of(op)
    makers = step.walk() if step is not None else ()
    return {r.name_hint: maker for maker in makers for r in maker.results}.get(target)


def _cap_above_limit(op: Operation, target: str, distribution: RecordAttr) -> Iterator[Violation]:
    """No response is longer than its generate allows, which is what a cost is computed of."""
    cap, maker = python_value(distribution.settings.get("cap")), _maker(op, target)
    held = [r.type for r in maker.results if r.name_hint == target] if maker is not None else []
    inside = maker.walk() if maker is not None and isinstance(held[0], TrajectoriesType) else ()
    generate = next((o for o in inside if o.name == "rpeg.generate"), None)
    limit = python_value(generate.properties.get("max_tokens")) if generate is not None else None
    if isinstance(cap, int) and isinstance(limit, int) and cap > limit:
        yield Violation(
            "setting-range",
            f"cap={cap}: `{target}` has max_tokens={limit}, where its lengths are cut: write "
            f"cap={limit}, or leave it out",
            violations.setting("cap"),
            severity="warning",
        )


def _mean_above_cap(distribution: RecordAttr) -> Iterator[Violation]:
    mean, cap = (python_value(distribution.settings.get(name)) for name in ("mean", "cap"))
    if isinstance(mean, int | float) and isinstance(cap, int) and mean > cap:
        text = f"mean={mean:g}: expected at most cap={cap}, which none exceeds"
        yield Violation("setting-range", text, violations.setting("mean"))
