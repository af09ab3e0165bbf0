"""`rpeg-fuse-inference`: forward passes over the same trajectories share one pass over the data."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.base import RpegOp
from rpeg.ir.ops import fuse
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.movement import clause_of, model_of
from rpeg.ir.ops.sampling import GetOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.stages import stage_name, stages
from rpeg.ir.vocabulary.settings import python_value
from rpeg.passes.base import Levels, RpegPass, pipelines, step
from rpeg.passes.layouts import bound_of
from rpeg.passes.legality import Condition, Legality, Reason, legal
from rpeg.passes.statistics import Meanings

FUSE = "fuse"
"""The clause of a plan's line that asks for it."""


@dataclass(frozen=True)
class Joining:
    """A stage that may join a group, at the place of the group's first."""

    first: RpegOp
    op: RpegOp


def _no_forward_pass(joining: Joining) -> Iterator[Reason]:
    for op in (joining.first, joining.op):
        if not FuseOp.inside(op):
            text = f"`{stage_name(op)}` is not a forward pass of a model over trajectories"
            yield op, text


def _other_trajectories(joining: Joining) -> Iterator[Reason]:
    found = fuse.other_trajectories(joining.first, joining.op)
    yield from ((joining.op, text) for text in found)


def _other_processes(joining: Joining) -> Iterator[Reason]:
    found = fuse.other_processes(joining.first, joining.op)
    yield from ((joining.op, text) for text in found)


def _other_chunks(joining: Joining) -> Iterator[Reason]:
    found = list(fuse.other_chunks(joining.first, joining.op))
    around = list(stages(joining.op).values())
    bounds = [bound_of(model_of(op) or "", around) for op in (joining.first, joining.op)]
    if not found and bounds[0] != bounds[1]:
        found = [f"`{model_of(joining.op)}` has another mb than `{model_of(joining.first)}`"]
    yield from ((joining.op, text) for text in found)


def _not_ready(joining: Joining) -> Iterator[Reason]:
    block = joining.first.parent_block()
    if joining.op.parent_block() is not block:
        yield joining.op, f"`{stage_name(joining.op)}` runs in another region"
        return
    for value in joining.op.operands:
        if not _is_before(value, joining.first):
            theirs, mine = stage_name(joining.first), stage_name(joining.op)
            yield joining.op, f"`{mine}` reads what is made after `{theirs}` has run"


def _is_before(value: SSAValue, op: Operation) -> bool:
    """Whether a value is there when `op` runs; what is declared always can be."""
    maker = value.owner
    if not isinstance(maker, Operation) or isinstance(maker, GetOp):
        return True
    return maker.parent_block() is not op.parent_block() or maker.is_before_in_block(op)


LEGALITY: Legality = (
    Condition(
        "forward pass",
        "Each is a `logprob`, `values` or a `score` by a model: a map on samples, so any chunk of "
        "the data will do.",
        _no_forward_pass,
    ),
    Condition("same trajectories", "They read the same trajectories.", _other_trajectories),
    Condition("same processes", "They run on the same process group.", _other_processes),
    Condition(
        "same micro-batches",
        "They have the same layout, and their models the same bound on micro-batches.",
        _other_chunks,
    ),
    Condition(
        "ready",
        "What they read is there when the first of them runs: none depends on another, and no "
        "weights are replaced between them.",
        _not_ready,
    ),
)


@dataclass(frozen=True)
class RpegFuseInferencePass(RpegPass):
    """
    Groups the log-probs of the old policy, of references and teachers, values and scores of reward
    models over the same trajectories. A micro-batch is packed once and goes through one model after
    the other. What does not go together stays apart; where a plan asks for it (`fuse(STAGE)`), that
    is refused instead.

    Before:
        %lp_old = rpeg.logprob %actor, %y {stage = "lp_old"}
        %lp_ref = rpeg.logprob %ref, %y {stage = "lp_ref"}
    After:
        %lp_old, %lp_ref = rpeg.fuse {} {
          %0 = rpeg.logprob %actor, %y {stage = "lp_old"}
          %1 = rpeg.logprob %ref, %y {stage = "lp_ref"}
        }
    """

    name = "rpeg-fuse-inference"
    LEVELS: ClassVar[Levels] = {"L0": "L0", "L1": "L1"}
    LEGALITY: ClassVar[Legality] = LEGALITY
    STATISTICS: ClassVar[Meanings] = {
        "passes over the data before": "forward passes of models over trajectories",
        "passes over the data after": "the same, groups counted once",
    }

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            body = step(pipeline)
            groups = self._groups(body.body.block)
            self._insist(body, groups)
            self.count("passes over the data before", sum(map(len, groups)))
            self.count("passes over the data after", len(groups))
            for group in groups:
                if len(group) > 1:
                    _fuse(group)

    def _groups(self, block: Block) -> list[list[RpegOp]]:
        """Each stage in the first group that it goes with, in the order of the text."""
        groups: list[list[RpegOp]] = []
        for op in block.ops:
            if isinstance(op, RpegOp) and op.PLACED and legal(self.LEGALITY[:1], Joining(op, op)):
                home = (g for g in groups if legal(self.LEGALITY, Joining(g[0], op)))
                group = next(home, None)
                if group is None:
                    self._remark(op, groups)
                    groups.append([op])
                else:
                    group.append(op)
        return groups

    def _remark(self, op: RpegOp, groups: Sequence[Sequence[RpegOp]]) -> None:
        """Says why a stage goes into none of the groups."""
        for group in groups:
            self.legal(Joining(group[0], op))

    def _insist(self, body: StepOp, groups: Sequence[Sequence[RpegOp]]) -> None:
        """Refuses what a plan asks for and no group has."""
        for op in stages(body).values():
            wanted = _wanted(op)
            if wanted is not None and not any(op in g and wanted in g for g in groups):
                group = next((g for g in groups if wanted in g), [wanted])
                self.require(Joining(group[0], op))


def _wanted(op: RpegOp) -> RpegOp | None:
    """The stage that a plan fuses this one with; an update is another rewrite's."""
    clause = clause_of(op, FUSE)
    if clause is None:
        return None
    found = stages(op).get(str(python_value(clause.settings.get("with"))))
    return None if isinstance(found, UpdateOp) else found


def _fuse(group: Sequence[RpegOp]) -> None:
    first = group[0]
    for maker in (value.owner for op in group for value in op.operands):
        if isinstance(maker, GetOp) and not maker.is_before_in_block(first):
            maker.detach()  # type: ignore[no-untyped-call]
            Rewriter.insert_op(maker, InsertPoint.before(first))
    inside = [op.clone() for op in group]
    for op in inside:
        op.attributes.pop(FUSE, None)
    made = FuseOp.make([], {}, [Region(Block(inside))], location=first.location)
    Rewriter.insert_op(made, InsertPoint.before(first))
    for old, new in zip((r for op in group for r in op.results), made.results, strict=True):
        new.name_hint = old.name_hint
        old.replace_all_uses_with(new)
    for op in group:
        Rewriter.erase_op(op)
