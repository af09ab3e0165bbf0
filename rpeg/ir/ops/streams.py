"""L1: values in chunks, so that a stage may start before what it reads is whole.

A stream cuts trajectories or a field into chunks; what is computed from chunks comes in the same
chunks, up to a join. Every operation on the way must be a map on the chunk. An update may read
chunks too: it sums their gradients as they come, and divides once.
"""

from collections.abc import Iterator, Sequence

from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Pure

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import place_in_file
from rpeg.ir.definitions import gives, maybe, operand, setting
from rpeg.ir.ops.buffers import PushOp
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.stages import scope_of
from rpeg.ir.text.naming import name_of
from rpeg.ir.vocabulary.settings import INT, word
from rpeg.ir.vocabulary.signature import SCOPES, Scope

ROWS = "traj | tok | seq"
ENDS = UpdateOp | PushOp
"""Operations that take chunks as they come, and give something whole."""


@irdl_op_definition
class StreamOp(RpegOp):
    """Trajectories or a field, in chunks of so many groups or samples, as they complete or in
    order: `%ys = rpeg.stream %y {groups = 1}`.
    """

    name = "rpeg.stream"
    whole = operand(ROWS)
    groups = maybe(INT, least=1)
    samples = maybe(INT, least=1)
    order = setting(word("completion", "index"), "completion")
    chunked = gives(ROWS)
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.whole.type]

    @property
    def unit(self) -> Scope:
        """What its chunks are made of."""
        return "group" if self.groups is not None else "sample"

    def rules(self) -> Iterator[Violation]:
        if (self.groups is None) == (self.samples is None):
            yield Violation(
                "chunk-form", "a stream has chunks of groups or of samples: give one of the two"
            )
            return
        if stream_of(self.whole) is not None:
            yield Violation(
                "chunk-form",
                f"`{name_of(self.whole)}` comes in chunks already",
                violations.operand(0),
            )
        for op in chunkwise(self):
            if not _fits(self, op):
                yield _too_large(self, op)
            elif any(stream_of(value) not in (None, self) for value in op.operands):
                yield Violation(
                    "chunk-form",
                    f"{op.word} (line {_line(op)}) reads chunks of two streams: join one of them",
                )


@irdl_op_definition
class JoinOp(RpegOp):
    """Chunks, whole again and in the order of the samples: `%r_1 = rpeg.join %r`."""

    name = "rpeg.join"
    chunked = operand(ROWS)
    whole = gives(ROWS)
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [self.chunked.type]

    def rules(self) -> Iterator[Violation]:
        if stream_of(self.chunked) is None:
            yield Violation(
                "chunk-form",
                f"`{name_of(self.chunked)}` does not come in chunks: leave the join out",
                violations.operand(0),
            )


def stream_of(value: SSAValue) -> StreamOp | None:
    """The stream in whose chunks a value comes; None for a whole value."""
    seen: set[Operation] = set()
    waiting = [value]
    while waiting:
        op = waiting.pop().owner
        if isinstance(op, StreamOp):
            return op
        if isinstance(op, RpegOp) and op not in seen and not isinstance(op, JoinOp | ENDS):
            seen.add(op)
            waiting += (operand for inner in op.walk() for operand in inner.operands)
    return None


def chunkwise(stream: StreamOp) -> Iterator[RpegOp]:
    """Every operation that runs on the stream's chunks, in the order of the text."""
    reached: set[Operation] = set()
    waiting: list[SSAValue] = [stream.chunked]
    while waiting:
        users = {use.operation for use in waiting.pop().uses} - reached
        reached |= users
        waiting += (r for op in users if not isinstance(op, JoinOp | ENDS) for r in _results(op))
    block = stream.parent
    inside = (op for op in (block.walk() if block is not None else ()) if op in reached)
    return (op for op in inside if isinstance(op, RpegOp) and not isinstance(op, JoinOp))


def _results(op: Operation) -> Iterator[SSAValue]:
    """What comes in an operation's chunks: its results, and those of the fused pass around it."""
    yield from op.results
    around = op.parent_op()
    if isinstance(around, FuseOp):
        yield from around.results


def _fits(stream: StreamOp, op: RpegOp) -> bool:
    """Whether an operation is a map on the chunks."""
    return SCOPES.index(scope_of(op)) <= SCOPES.index(stream.unit)


def _line(op: RpegOp) -> str:
    return (place_in_file(op) or "?").partition(":")[0]


def _too_large(stream: StreamOp, op: RpegOp) -> Violation:
    what = name_of(stream.whole)
    if isinstance(op, UpdateOp):
        return Violation(
            "chunk-scope",
            f"the update in line {_line(op)} takes {op.optimizer_steps} optimizer steps, so it "
            f"needs its batch whole: join the chunks of `{what}` before it",
        )
    return Violation(
        "chunk-scope",
        f"{op.word} (line {_line(op)}) works on a whole {scope_of(op)}, and `{what}` comes in "
        f"{stream.unit}s: join the chunks before it",
    )


OPS: tuple[type[RpegOp], ...] = (StreamOp, JoinOp)
