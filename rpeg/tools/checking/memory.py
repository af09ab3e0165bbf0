"""Where memory does not suffice: in which pool and stage, for what, and from which lengths on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from xdsl.ir import Operation

from rpeg.cost.estimate import PoolMemory
from rpeg.ir.layout import width_of, zero_of
from rpeg.ir.ops.movement import clause_of, pool_of
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.stages import stages
from rpeg.ir.text.diagnostics import Diagnostic, Position
from rpeg.ir.text.locations import plan_line
from rpeg.ir.text.sources import position_of
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

GIB = 2.0**30


class Way(StrEnum):
    """What a plan may say already."""

    ZERO = "zero=1"
    FULL = "recompute=full"
    OPT_HOST = "resid(opt=host) on lines of updates"


REMEDIES: Mapping[str, Sequence[str]] = {
    "weights": ("a wider tp or pp", "resid(params=lazy) for models that wait"),
    "gradients": ("a wider tp or pp", "resid(params=lazy) on lines of updates"),
    "optimizer": (Way.ZERO, Way.OPT_HOST, "a wider tp or pp"),
    "activations": (Way.FULL, "a smaller mb(tokens=...)"),
    "logits": ("a smaller mb(tokens=...)", "a wider tp"),
    "kv": ("a smaller engine(memory=...)",),
    "rollout_weights": ("a wider tp for what samples",),
    "buffers": ("a smaller publish(bucket=...)",),
}
"""What to write where a term of a GPU's memory is the largest."""

HOST_REMEDIES: Mapping[str, Sequence[str]] = {
    "weights": ("resid(params=always) for some models",),
    "optimizer": (Way.ZERO, "resid(opt=always) for some models"),
    "buffers": ("a smaller batch",),
}

SHOWN = 3
"""Terms that a message names, the largest first."""


def memory_problems(
    memory: Sequence[PoolMemory], step: Operation, file: str
) -> Iterator[Diagnostic]:
    """One message for each pool whose GPUs, or hosts, are too small; at the plan's line."""
    for found in by_pool(held for held in memory if not held.fits):
        yield Diagnostic(_position(step, found[0]), _message(found, step), "error", file)


def lacking(memory: Iterable[PoolMemory]) -> str | None:
    """What lacks memory, in one line; None where everything fits."""
    least = next((held for held in memory if not held.fits), None)
    if least is None:
        return None
    return (
        f"does not fit: {_owner(least)} has {gib(least.capacity_bytes)} GiB and needs "
        f"{gib(least.peak_bytes)} {_when(least)}: see rpeg check"
    )


def memory_lines(memory: Sequence[PoolMemory]) -> Iterator[str]:
    """What each pool's GPUs and hosts hold, a line each."""
    for found in by_pool(memory):
        most = max(found, key=lambda held: held.peak_bytes)
        yield (
            f"memory: {_owner(most)}, {gib(most.capacity_bytes)} GiB: {_peaks(found)} "
            f"{_when(most)}: {largest_terms(most) or 'next to nothing'}"
        )


def _peaks(found: Sequence[PoolMemory]) -> str:
    """GiB at each length; one figure where they agree."""
    peaks = {held.quantile: gib(held.peak_bytes) for held in found}
    if len(set(peaks.values())) == 1:
        return f"{gib(found[0].peak_bytes)} at every length"
    return ", ".join(f"{peak} at {quantile}" for quantile, peak in peaks.items())


def by_pool(memory: Iterable[PoolMemory]) -> Iterable[Sequence[PoolMemory]]:
    """A pool's GPUs, or its hosts, at each quantile of lengths, the shortest first."""
    found: dict[tuple[str, str], list[PoolMemory]] = {}
    for held in memory:
        found.setdefault((held.pool, held.kind), []).append(held)
    return found.values()


def _position(step: Operation, held: PoolMemory) -> Position:
    """The plan's line of the stage at the peak; of what publishes, that of its update."""
    known = stages(step)
    name = (held.at_stage or "").removeprefix("publish_")
    on = (op for op in known.values() if pool_of(op) == held.pool)
    stage = known.get(name) or next(on, step)
    line = plan_line(stage)
    return Position(line.line.data, line.column.data) if line else position_of(stage)


def _message(found: Sequence[PoolMemory], step: Operation) -> str:
    """Of one pool, at each quantile of lengths that is too much for it."""
    least = found[0]
    return (
        f"{_owner(least)} has {gib(least.capacity_bytes)} GiB and needs {gib(least.peak_bytes)} "
        f"{_when(least)}, for responses of {_quantiles(found)}: {largest_terms(least)}: "
        f"write {_remedy(least, step)}"
    )


def _owner(held: PoolMemory) -> str:
    """Whose memory it is: a host, or a GPU by its rank."""
    if held.kind == "host":
        return f"a host of `{held.pool}`"
    if held.ranks is None:
        return f"the busiest GPU of `{held.pool}`"
    first, last = held.ranks
    which = f"{first}" if first == last else f"any of {first} to {last}"
    return f"the busiest GPU of `{held.pool}` ({which})"


def _when(held: PoolMemory) -> str:
    if held.at_stage:
        return f"while `{held.at_stage}` runs"
    return "between stages" if held.kind == "gpu" else "all the time"


def _quantiles(found: Sequence[PoolMemory]) -> str:
    """The shortest length at which it is too much; longer ones need no less."""
    first = found[0].quantile
    length = "the longest length allowed" if first == "cap" else f"length {first}"
    return length if len(found) == 1 else f"{length} and longer"


def largest_terms(held: PoolMemory) -> str:
    """Its largest terms and their GiB."""
    terms = sorted(held.terms.items(), key=lambda term: -term[1])
    return ", ".join(f"{name} {gib(size)}" for name, size in terms[:SHOWN] if gib(size) != "0.0")


def gib(size: float) -> str:
    """Bytes in GiB, as GPUs are sold by."""
    return f"{size / GIB:.1f}"


def _remedy(held: PoolMemory, step: Operation) -> str:
    """For the largest term, what the updates of the pool don't say already."""
    remedies = REMEDIES if held.kind == "gpu" else HOST_REMEDIES
    largest = max(remedies, key=lambda term: held.terms.get(term, 0.0))
    on = (op for op in stages(step).values() if pool_of(op) == held.pool)
    updates = [op for op in on if isinstance(op, UpdateOp)]
    left = [way for way in remedies[largest] if not any(_says(op, way) for op in updates)]
    return ", or ".join(left)


def _says(update: UpdateOp, way: str) -> bool:
    """Whether an update's line says so, or would gain nothing by it."""
    par, resid = clause_of(update, "par"), clause_of(update, "resid")
    match way:
        case Way.ZERO:
            return par is not None and (zero_of(par) > 0 or width_of(par, "dp") == 1)
        case Way.FULL:
            return _held(par, "recompute") == "full"
        case Way.OPT_HOST:
            return _held(resid, "opt") == "host"
        case _:
            return False


def _held(clause: RecordAttr | None, name: str) -> object:
    return python_value(clause.settings.get(name)) if clause is not None else None
