"""`rpeg-canonicalize`: one way to say each thing."""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import (
    GreedyRewritePatternApplier,
    PatternRewriter,
    PatternRewriteWalker,
    RewritePattern,
    op_type_rewrite_pattern,
)
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import DeadCodeElimination

from rpeg.ir.ops.rewards import WeightedSumOp
from rpeg.passes.base import KeepLocations, RpegPass, drop_unused, names, pipelines


class SumOfOne(RewritePattern):
    """weighted_sum of one reward with weight 1 is that reward."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: WeightedSumOp, rewriter: PatternRewriter) -> None:
        if op.value("weights") == (1.0,):
            rewriter.replace(op, (), (op.rewards[0],))


@dataclass(frozen=True)
class RpegCanonicalizePass(RpegPass):
    """
    Removes values that nothing reads and operations that compute the same thing twice, and simplifies
    sums of one reward. Operations with an effect (eval, checkpoint, export, stop) stay.

    Before:
        %r = rpeg.weighted_sum %acc {weights = [1.0 : f64]}
        %adv = rpeg.group_advantage %r {baseline = "mean", scale = "std"}
    After:
        %adv = rpeg.group_advantage %acc {baseline = "mean", scale = "std"}
    """

    name = "rpeg-canonicalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        before = {id(p): names(p) for p in pipelines(op)}
        patterns = GreedyRewritePatternApplier([SumOfOne()], ctx=ctx, dce_enabled=False)
        PatternRewriteWalker(KeepLocations(patterns)).rewrite_module(op)
        CommonSubexpressionElimination().apply(ctx, op)
        DeadCodeElimination().apply(ctx, op)
        for pipeline in pipelines(op):
            drop_unused(pipeline, before[id(pipeline)])
