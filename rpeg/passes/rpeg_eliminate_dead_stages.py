"""`rpeg-eliminate-dead-stages`: nothing runs that no update, effect or report needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import IsTerminator, is_side_effect_free

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import DeclareOp, PipelineOp
from rpeg.ir.ops.regions import CollectOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.reported import reported_rewards
from rpeg.ir.rules.violations import hint
from rpeg.ir.stages import stage_name, stages
from rpeg.ir.types.values import CursorType
from rpeg.passes.base import PassRefused, Problem, RpegPass, pipelines, step, tidied
from rpeg.passes.legality import Condition, Legality, Reason, legal, reasons
from rpeg.passes.liveness import Needed, needed
from rpeg.passes.statistics import Meanings


def _has_an_effect(op: Operation) -> Iterator[Reason]:
    if not op.regions and not is_side_effect_free(op):
        yield op, f"{op.name.removeprefix('rpeg.')} is there for its effect"


def _makes_a_state(op: Operation) -> Iterator[Reason]:
    around = op.parent_op()
    if not isinstance(around, StepOp) or op is around.ending:
        return
    made = [s for s, end in _states(around) if end.owner is op and not _is_place(s)]
    if made:
        yield op, f"it makes the next {' and '.join(f'`{s.name_hint}`' for s in made)}"


def _is_place(state: SSAValue) -> bool:
    return isinstance(state.type, CursorType)


def _is_reported(op: Operation) -> Iterator[Reason]:
    around = op.parent_op()
    if isinstance(around, StepOp):
        reported = (reward for _, found in reported_rewards(around) for reward in found)
        # What a collect kept is reported where something reads the collect.
        rewards = (r for r in reported if not isinstance(r.owner, CollectOp))
        for reward in rewards:
            if reward.owner is op:
                yield op, f"the mean of `{reward.name_hint}` is reported every step"


LEGALITY: Legality = (
    Condition(
        "no effect",
        "It is no `eval`, `eval_loss`, `checkpoint`, `export` or `stop`.",
        _has_an_effect,
    ),
    Condition(
        "no new state",
        "It makes no next version of weights, of an optimizer or of a number: these are saved. A "
        "place in data is no such state: it matters to who reads on from it.",
        _makes_a_state,
    ),
    Condition(
        "not reported",
        "It gives no per-response reward: the step's metrics report the mean of each, so a score "
        "that nothing reads stays, and so does what it scores.",
        _is_reported,
    ),
)
"""What an operation without a purpose of its own meets; it goes where nothing with one needs it."""


@dataclass(frozen=True)
class RpegEliminateDeadStagesPass(RpegPass):
    """
    Removes what has no purpose of its own and is needed by nothing that has one: through values,
    and through states, so that rows which nobody trains on are not read either. Models, data and
    verifiers that nothing uses any more go too, and lines of plans about them.

    Before:
        %y2, %lp2 = rpeg.generate %actor, %q2 {...}
        %lp_teacher = rpeg.logprob %teacher, %y2 {...}
        rpeg.yield %actor_1, %actor_opt_1, %train_1, %more_1
    After:
        rpeg.yield %actor_1, %actor_opt_1, %train_1
    """

    name = "rpeg-eliminate-dead-stages"
    LEGALITY: ClassVar[Legality] = LEGALITY
    STATISTICS: ClassVar[Meanings] = {
        "stages removed": "operations that a plan has a line for",
        "operations removed": "all others",
        "states removed": "places in data that nothing reads on from",
        "declarations removed": "models, data, verifiers, tools and states",
    }
    stages: tuple[str, ...] = ()
    """Stages that have to go: one that is needed is refused, and what needs it shown."""

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            body = step(pipeline)
            kept = self._kept(body)
            self._insist(pipeline, kept)
            declared = len(pipeline.ops_of(DeclareOp))
            with tidied(op):
                self._erase(body, kept)
            _undeclare(pipeline)
            if removed := declared - len(pipeline.ops_of(DeclareOp)):
                self.count("declarations removed", removed)

    def _kept(self, body: StepOp) -> Needed:
        inside = [o for o in body.walk() if o is not body and not o.has_trait(IsTerminator)]
        purposes = [o for o in inside if not legal(self.LEGALITY, o)]
        return needed(body, purposes)

    def _insist(self, pipeline: PipelineOp, kept: Needed) -> None:
        """Refuses where a stage that has to go is needed."""
        known, problems = stages(pipeline), list[Reason]()
        for name in self.stages:
            if name not in known:
                problems.append((pipeline, f"`{name}` is not a stage{hint(name, known)}"))
            elif known[name] in kept.operations:
                problems += self._needs(known[name], kept)
        if problems:
            raise PassRefused.of([Problem(*reason) for reason in problems])

    def _needs(self, op: RpegOp, kept: Needed) -> Iterator[Reason]:
        """Why a stage stays: its own purpose, or what reads it."""
        yield from reasons(self.LEGALITY, op)
        readers = {use.operation for result in op.results for use in result.uses}
        for reader in readers & kept.operations:
            yield reader, f"this needs `{stage_name(op)}`, and is needed itself"

    def _erase(self, body: StepOp, kept: Needed) -> None:
        dead = [o for o in body.walk() if o not in kept.operations]
        for op in dead:
            if not op.has_trait(IsTerminator):
                self.count(_kind(op))
        unneeded = [start for start in body.states if start not in kept.states]
        body.ending.operands = [end for start, end in _states(body) if start in kept.states]
        for op in dead:
            op.operands = ()
        for op in dead:
            if op.parent_op() in kept.operations:
                Rewriter.erase_op(op)
        for start in unneeded:
            body.body.block.erase_arg(start)
            self.count("states removed")


def _undeclare(pipeline: PipelineOp) -> None:
    """In reverse: a model may start from one that is declared above it."""
    for op in reversed(pipeline.ops_of(DeclareOp)):
        if not op.used():
            Rewriter.erase_op(op)


def _states(body: StepOp) -> list[tuple[BlockArgument, SSAValue]]:
    return list(zip(body.states, body.ending.operands, strict=True))


def _kind(op: Operation) -> str:
    return "stages removed" if isinstance(op, RpegOp) and op.PLACED else "operations removed"
