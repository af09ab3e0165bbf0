"""`rpeg-canonicalize`: one way to say each thing."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.pattern_rewriter import (
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.rewriter import Rewriter
from xdsl.traits import is_side_effect_free

from rpeg.ir.ops.rewards import WeightedSumOp
from rpeg.ir.stages import STAGE
from rpeg.passes.base import RpegPass, pipelines, step, tidied
from rpeg.passes.statistics import Meanings


class SumOfOne(RewritePattern):
    """weighted_sum of one reward with weight 1 is that reward."""

    def __init__(self, found: Callable[[str], None]) -> None:
        self._found = found

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: WeightedSumOp, rewriter: PatternRewriter) -> None:
        if op.value("weights") == (1.0,):
            rewriter.replace(op, (), (op.rewards[0],))
            self._found("sums of one reward simplified")


@dataclass(frozen=True)
class RpegCanonicalizePass(RpegPass):
    """Computes common subexpressions once, whatever their stages are called, and simplifies sums of
    one reward. Operations with an effect (eval, checkpoint, export, stop) are never merged.

    Before:
        %r = rpeg.weighted_sum %acc {weights = [1.0 : f64]}
        %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
    After:
        %adv = rpeg.group_advantage %acc {baseline = "mean", scale = "std"}
    """

    name = "rpeg-canonicalize"
    STATISTICS: ClassVar[Meanings] = {
        "sums of one reward simplified": "weighted sums that are their reward",
        "operations merged": "they computed what another one does",
    }

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        with tidied(op):
            PatternRewriteWalker(SumOfOne(self.count)).rewrite_module(op)
            for pipeline in pipelines(op):
                self._merge(step(pipeline).body.block, {})

    def _merge(self, block: Block, known: dict[Hashable, Operation]) -> None:
        """The second of two operations that compute the same becomes the first; in text order.

        xDSL's own elimination keeps apart what differs in the name of its stage.
        """
        for op in list(block.ops):
            for region in op.regions:
                self._merge(region.block, dict(known))
            if op.regions or not is_side_effect_free(op):
                continue
            first = known.setdefault(_computes(op), op)
            if first is not op:
                Rewriter.replace_op(op, (), first.results)
                self.count("operations merged")


def _computes(op: Operation) -> Hashable:
    """What is equal for operations that compute the same: all but the name of the stage."""
    notes = frozenset((k, v) for k, v in op.attributes.items() if k != STAGE)
    return type(op), op.operands[:], frozenset(op.properties.items()), notes
