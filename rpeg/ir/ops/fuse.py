"""Stages that run as one: a pass over the data that several models share."""

from collections.abc import Iterator, Sequence

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, region_def, traits_def, var_result_def
from xdsl.traits import NoTerminator, Pure

from rpeg.ir.base import CheckedOp, RpegOp
from rpeg.ir.definitions import Flow
from rpeg.ir.ops.movement import clause_of, pool_of
from rpeg.ir.ops.sampling import LogprobOp, ScoreOp, ValuesOp
from rpeg.ir.rules.violations import Violation
from rpeg.ir.stages import stage_name
from rpeg.ir.text.naming import name_of
from rpeg.ir.vocabulary.patterns import Pattern

CHUNKED = ("par", "mb")
"""Clauses that say which rows a process has, and how many at once."""


def _results() -> Sequence[SSAValue]:
    return var_result_def(Flow(Pattern.parse("tok | seq"), inferred=True))


@irdl_op_definition
class FuseOp(RpegOp):
    """Inference of several models on the same trajectories: each micro-batch is made once, and
    goes through one model after the other.

    The results are those of the operations inside, in order. It has no surface.
    """

    name = "rpeg.fuse"
    traits = traits_def(NoTerminator(), Pure())
    body = region_def("single_block")
    fused = _results()

    @staticmethod
    def inside(op: Operation) -> bool:
        """Whether it is a forward pass of a model over trajectories."""
        return isinstance(op, LogprobOp | ValuesOp) or (isinstance(op, ScoreOp) and op.passes_model)

    @property
    def passes(self) -> Sequence[RpegOp]:
        """The fused stages, in order."""
        return [op for op in self.body.block.ops if isinstance(op, RpegOp)]

    def inner(self, result: SSAValue) -> SSAValue:
        """What a result is inside: the value of the stage that makes it."""
        pairs = zip(self.results, self._made(), strict=True)
        return next(made for outer, made in pairs if outer is result)

    def result_count(self) -> int:
        return len(self._made())

    def infer(self) -> Sequence[Attribute]:
        return [made.type for made in self._made()]

    def _made(self) -> list[SSAValue]:
        """The values made inside, of every block: while it is parsed there may be any number."""
        return [r for block in self.body.blocks for op in block.ops for r in op.results]

    def rules(self) -> Iterator[Violation]:
        others = [op for op in self.body.block.ops if not self.inside(op)]
        if others:
            yield Violation(
                "not-fusible",
                f"{others[0].name} is not a forward pass of a model: it can't be fused",
            )
            return
        first = self.passes[0] if self.passes else None
        for op in self.passes[1:]:
            assert first is not None
            yield from (Violation("not-fusible", text) for text in apart(first, op))


def apart(first: RpegOp, other: RpegOp) -> Iterator[str]:
    """Why two forward passes can't share their micro-batches."""
    yield from other_trajectories(first, other)
    yield from other_processes(first, other)
    yield from other_chunks(first, other)


def other_trajectories(first: RpegOp, other: RpegOp) -> Iterator[str]:
    """They read the same trajectories."""
    mine, theirs = first.operands[1], other.operands[1]
    if mine is not theirs:
        yield (
            f"`{stage_name(other)}` reads the trajectories `{name_of(theirs)}`, "
            f"`{stage_name(first)}` reads `{name_of(mine)}`"
        )


def other_processes(first: RpegOp, other: RpegOp) -> Iterator[str]:
    """They run on the same process group."""
    mine, theirs = pool_of(first), pool_of(other)
    if mine != theirs:
        yield f"`{stage_name(other)}` runs on {theirs}, `{stage_name(first)}` on {mine}"


def other_chunks(first: RpegOp, other: RpegOp) -> Iterator[str]:
    """They have the same layout, and the same bound on micro-batches."""
    for kind in CHUNKED:
        mine, theirs = clause_of(first, kind), clause_of(other, kind)
        if mine != theirs:
            yield (
                f"`{stage_name(other)}` has another {kind} than `{stage_name(first)}`, so other "
                "micro-batches"
            )


OPS: tuple[type[CheckedOp], ...] = (FuseOp,)
