"""Which GPUs of a pool hold the most: all alike, or those of one end of a pipeline."""

from __future__ import annotations

from rpeg.cost.memory import first_rank, last_rank
from rpeg.cost.profiles.layouts import bound_of, layout_of
from rpeg.cost.profiles.rows import rows_at_once
from rpeg.cost.profiles.setting import Setting
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.ranks import groups_of


def busiest(setting: Setting, pool: str, stage: str | None) -> tuple[int, int]:
    """The first and the last rank of those that hold the most while a stage runs.

    Ranks are those of the launched world, stages of a pipeline outermost, as Megatron counts them.
    Outside of an update, what the stages of a pipeline hold differs little.
    """
    ranks = groups_of(setting.pipeline)[pool].ranks
    op = setting.stages.get(stage or "")
    if not isinstance(op, UpdateOp) or layout_of(op).pp == 1:
        return ranks[0], ranks[-1]
    each = len(ranks) // layout_of(op).pp
    return (ranks[-each], ranks[-1]) if _at_the_end(setting, op) else (ranks[0], ranks[each - 1])


def _at_the_end(setting: Setting, op: UpdateOp) -> bool:
    """Whether the stage with the logits holds more than the one with most micro-batches."""
    model, layout = setting.model(op), layout_of(op)
    plans = layout.plans(rows_at_once(op, setting), bound_of(op), model.trained)
    first, last = (rank(model.shape, plans).total for rank in (first_rank, last_rank))
    return bool(last > first)
