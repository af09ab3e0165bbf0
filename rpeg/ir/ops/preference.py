"""Losses on pairs of responses: direct preference optimisation, and reward models.

`update` takes their mean over the pairs; the formulas are in rpeg.runtime.losses.preference.
"""

from typing import ClassVar

from xdsl.irdl import irdl_op_definition

from rpeg.ir.base import RpegOp
from rpeg.ir.definitions import gives, operand, required, setting
from rpeg.ir.ops.losses import LossOp
from rpeg.ir.types.values import TokenFieldType
from rpeg.ir.vocabulary.settings import FLOAT


class PairLossOp(LossOp):
    """A loss of pairs of responses."""


@irdl_op_definition
class DpoOp(PairLossOp):
    """Direct preference optimisation: the policy is its own reward model, less the reference's."""

    name = "rpeg.loss.dpo"
    SURFACE: ClassVar[str] = "dpo"
    pairs = operand("pairs")
    reference = operand("tok.logprob")
    beta = required(FLOAT, "0.1", above=0)
    label_smoothing = setting(FLOAT, 0.0, least=0, below=0.5)
    loss = gives("loss")

    @property
    def reference_model(self) -> str:
        """Name of the model that made the reference's log-probs."""
        held = self.reference.type
        return held.owner if isinstance(held, TokenFieldType) else ""


@irdl_op_definition
class RewardLossOp(PairLossOp):
    """The Bradley-Terry loss of a reward model: the chosen response scores higher."""

    name = "rpeg.loss.reward"
    SURFACE: ClassVar[str] = "reward_loss"
    TRAINS: ClassVar[tuple[str, ...]] = ("reward",)
    pairs = operand("pairs")
    margin = setting(FLOAT, 0.0, least=0)
    loss = gives("loss")


OPS: tuple[type[RpegOp], ...] = (DpoOp, RewardLossOp)
