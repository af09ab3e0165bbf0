"""Rules of programs (L3): an engine samples with the newest weights, and with nothing of old ones.

Each rule looks back from where an engine samples, over what ran before it: in the first step of the
loop, and in a later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import SSAValue

from rpeg.ir.declared import enclosing
from rpeg.ir.rrt.calls import CallOp, calls, class_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.vocabulary.settings import python_value

SAMPLES = ("generate", "evaluate")
ARRIVES = ("publish", "wait")
"""How new weights get into a register: from this program's trainer, or from another one's."""


def trainer_violations(call: CallOp) -> Iterator[Violation]:
    """A trainer is there to be updated."""
    program = enclosing(call, "rrt.program")
    if call.callee.data != "Trainer" or program is None or not call.results:
        return
    loops = [op for op in program.walk() if op.name == "rrt.loop"]
    if loops and not any(_is(c, "update", call.results[0]) for c in calls(program)):
        yield Violation(
            "optimizer-without-update",
            'no step updates this trainer: write rrt.call "update" of it behind its losses',
        )


def weights_violations(call: CallOp) -> Iterator[Violation]:
    """An update reaches the engine before it samples again: published, then swapped in."""
    engine = _engine(call)
    source = _source(engine) if engine is not None else None
    if engine is None or source is None:
        return
    first, later = _before(call)
    updated = any(_is(c, "update", source) for c in later)
    looked = [first, later] if updated or not _trained_here(source) else [first]
    missing = next((m for path in looked if (m := _missing(path, engine, source))), None)
    if missing is not None:
        yield Violation(
            "unpublished-weights",
            f"{call.callee.data} runs without the newest weights: {missing}",
        )


def cache_violations(call: CallOp) -> Iterator[Violation]:
    """After swap_weights an engine's cached keys and values are of old weights, until a reset."""
    engine = _engine(call)
    if engine is None:
        return
    if any(_last_event(path, engine) == "swap_weights" for path in _before(call)):
        yield Violation(
            "swap-without-reset",
            f"{call.callee.data} runs after swap_weights without reset_prefix_cache: the engine's "
            "cache still holds the old weights' keys and values",
        )


def window_violations(call: CallOp) -> Iterator[Violation]:
    """Weights that a program receives are no older than what takes their samples lets these be."""
    program, window = enclosing(call, "rrt.program"), python_value(call.settings.get("window"))
    if call.callee.data != "ReceivedWeights" or program is None or not isinstance(window, int):
        return
    held = [python_value(other.settings.get("max_lag")) for other in calls(program)]
    most = max((lag for lag in held if isinstance(lag, int)), default=window)
    if window > most:
        yield Violation(
            "window-beyond-allow",
            f"window={window}: what takes the samples of these weights lets them be {most} versions"
            f" old (max_lag): write window = {most}",
            violations.setting("window"),
        )


def _engine(call: CallOp) -> SSAValue | None:
    """The engine that a call samples with."""
    if call.callee.data not in SAMPLES:
        return None

    asked = call.receiver if call.receiver is not None else next(iter(call.things), None)
    maker = asked.owner if asked is not None else None
    keeps = isinstance(maker, CallOp) and maker.callee.data == "Rollouts"
    return maker.named.get("engine") if keeps and isinstance(maker, CallOp) else asked


def _source(engine: SSAValue) -> SSAValue | None:
    """The model whose weights an engine has."""

    maker = engine.owner
    if not isinstance(maker, CallOp) or maker.callee.data != "EmbeddedEngine":
        return None
    return maker.things[1] if len(maker.things) > 1 else None


def _trained_here(source: SSAValue) -> bool:

    return class_of(source) == "Trainer"


def _before(call: CallOp) -> tuple[list[CallOp], list[CallOp]]:
    """What ran before a call, the latest last: in the first step of its loop, in a later one."""
    program, loop = enclosing(call, "rrt.program"), enclosing(call, "rrt.loop")
    everything = list(calls(program)) if program is not None else [call]
    around = list(calls(loop)) if loop is not None else [call]
    here = around.index(call)
    return everything[: everything.index(call)], around[here:] + around[:here]


def _missing(path: Sequence[CallOp], engine: SSAValue, source: SSAValue) -> str | None:
    """What of an update's way to the engine does not come behind it, as what to write."""
    register: SSAValue | None = None
    for call in reversed(path):
        if _is(call, "update", source):
            break
        if register is None and _is(call, "swap_weights", engine):
            register = next(iter(call.things), None)
        elif register is not None and any(_is(call, way, register) for way in ARRIVES):
            return None
    if register is None:
        return "write swap_weights and reset_prefix_cache of its engine behind what brings them"
    if _trained_here(source):
        return "write publish before swap_weights, behind every update"
    return "write wait of the received weights before swap_weights"


def _is(call: CallOp, callee: str, receiver: SSAValue) -> bool:
    return call.callee.data == callee and call.receiver is receiver


def _last_event(path: Sequence[CallOp], engine: SSAValue) -> str | None:
    events = (c.callee.data for c in reversed(path) if c.receiver is engine)
    return next((e for e in events if e in ("swap_weights", "reset_prefix_cache")), None)
