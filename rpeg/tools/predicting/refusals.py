"""What could be priced and can't run: found before anything is priced, each at its line."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.cost.generation import ENGINE_BYTES
from rpeg.cost.profiles.setting import Setting
from rpeg.divisibility import engine_misfits
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import model_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.rules.violations import setting as at_setting
from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.ir.text.sources import position_of
from rpeg.passes.layouts import moves_rows
from rpeg.tools.sources import counts_of, layout_misfits

GIB = 2.0**30


def refusals(setting: Setting, file: str) -> Iterator[Diagnostic]:
    """Every reason why a placed pipeline would not run."""
    split = {model_of(op) for op in setting.stages.values() if moves_rows(op)}
    known = {n: counts_of(m.shape) for n, m in setting.models.items() if n in split}
    for model, line, text in layout_misfits(setting.pipeline, known):
        yield Diagnostic(line or position_of(model), text, "error", file)
    for op in setting.stages.values():
        for text in _uneven_engine(setting, op):
            yield Diagnostic(position_of(op, at_setting("par")), text, "error", file)
        if (why := _no_room(setting, op)) is not None:
            yield Diagnostic(position_of(op, at_setting("engine")), why, "error", file)


def _uneven_engine(setting: Setting, op: RpegOp) -> Iterator[str]:
    """Why an engine of its own can't split its model; the embedded one has it whole."""
    if not isinstance(op, GenerateOp | EvalOp) or (rollouts := setting.rollouts(op)).embedded:
        return
    at, counts = rollouts.layout, counts_of(rollouts.model.shape)
    yield from (
        f"`{rollouts.model.name}`: {why}" for why in engine_misfits(counts, tp=at.tp, pp=at.pp)
    )


def _no_room(setting: Setting, op: RpegOp) -> str | None:
    """An engine whose share of a GPU's memory is too small for its weights."""
    if not isinstance(op, GenerateOp | EvalOp) or not setting.platform.has_gpus:
        return None
    rollouts = setting.rollouts(op)
    if rollouts.memory is None or rollouts.embedded:
        return None
    whole = setting.machine.memory_bytes
    needed = rollouts.weights(setting.machine) + ENGINE_BYTES
    if rollouts.memory * whole > needed:
        return None
    return (
        f"engine(memory={rollouts.memory:g}) has {rollouts.memory * whole / GIB:.1f} of a GPU's "
        f"{whole / GIB:.1f} GiB, and its weights and its own memory take {needed / GIB:.1f}: "
        "write a larger memory, or a wider tp"
    )
