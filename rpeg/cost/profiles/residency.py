"""Where a model's memory is while nothing uses it, as the `resid` clauses of a plan say.

`params=always` keeps weights and gradients on the GPU. `host` brings them there for the stages that
use them, and back; `lazy` does the same, but fills them from the optimizer's own fp32 copy where
that stays on the GPU. `opt=host` brings the optimizer for an update alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import clause_of, model_of, pool_of
from rpeg.ir.stages import stages
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

ALWAYS, HOST, LAZY = "always", "host", "lazy"


@dataclass(frozen=True)
class Residency:
    """The settings of a `resid` clause."""

    params: str = ALWAYS
    opt: str = ALWAYS
    kv: str = "stage"

    @classmethod
    def of(cls, clause: RecordAttr) -> Residency:
        """Of a clause."""
        held = {name: str(python_value(value)) for name, value in clause.settings.items()}
        return cls(**{**vars(cls()), **held})

    @property
    def comes_from_host(self) -> bool:
        """Whether weights cross the host's link whenever they are needed."""
        return self.params == HOST or (self.params == LAZY and self.opt == HOST)


def residency_of(stage: RpegOp) -> Residency:
    """What the lines say of the stage's model in its pool; everything stays where none does."""
    alike = (op for op in stages(stage).values() if _same(op, stage))
    found = (clause_of(op, "resid") for op in (stage, *alike))
    return next((Residency.of(clause) for clause in found if clause is not None), Residency())


def _same(op: RpegOp, stage: RpegOp) -> bool:
    return pool_of(op) == pool_of(stage) and model_of(op) == model_of(stage)
