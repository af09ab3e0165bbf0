"""How old the samples of a pipeline may be where they are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Operation

from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.stages import moving, stage_name
from rpeg.ir.types.values import TrajectoriesType


@dataclass(frozen=True)
class Age:
    """The samples of one stage, of a model that is trained."""

    stage: str
    model: str
    oldest: int
    """Steps between the weights that sampled and the update that trains, at most."""
    bound: str
    """strict: of every trained token; head: of a sample as it is admitted; empty: no window."""

    def __str__(self) -> str:
        if not self.oldest:
            return f"{self.stage}: sampled by the weights that it trains"
        steps = f"at most {self.oldest} step{'s' * (self.oldest > 1)} old"
        if self.bound == "head":
            return f"{self.stage}: {steps} when admitted, older when trained (bound=head)"
        return f"{self.stage}: {steps}, every token (bound={self.bound})"


def ages(pipeline: Operation) -> Iterator[Age]:
    """Of a verified pipeline: the verifier has held each against the correction of its losses."""
    for op in pipeline.walk():
        if not isinstance(op, GenerateOp):
            continue
        y = op.trajectories.type
        assert isinstance(y, TrajectoriesType)
        if y.owner in moving(op):
            yield Age(stage_name(op), y.owner, y.lag[1], y.bound)
