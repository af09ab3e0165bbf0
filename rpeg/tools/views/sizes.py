"""How large the values of a step are, in elements and in bytes, as they move between stages.

Rows are packed, without padding. Per element:

    prompts                   4 B per token (int32 ids)
    demonstrations, pairs     5 B per token: int32 id and loss mask
    trajectories              5 B per response token: int32 id and loss mask
    per-token numbers         4 B per response token (fp32): log-probs, values, rewards, advantages
    per-response numbers      4 B per response (fp32)

How many response tokens there are is known before a run as a bound, responses x max_tokens, and as
an expectation where the file has an `expect` line for the trajectories. Lengths of prompts and of
demonstrations are in the data, so only their bytes per token are known.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from rpeg.ir.ops.declare import ExpectOp, PipelineOp
from rpeg.ir.ops.regions import CollectOp, terminator_of
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.ir.types.batches import DemosType, PairsType, PromptsType
from rpeg.ir.types.values import (
    ResponseFieldType,
    TokenFieldType,
    TrajectoriesType,
)
from rpeg.ir.vocabulary.settings import python_value

ID, MASK, NUMBER = 4, 1, 4
"""Bytes of a token's int32 id, of its place in a loss mask, of an fp32 number."""


@dataclass(frozen=True)
class Size:
    """Of one value."""

    shape: str
    """Its elements: `64 prompts`, `64 x 8 responses`."""
    each: int
    """Bytes per element."""
    element: str
    """What they are counted by: a token, a response."""
    most: int | None = None
    """Bytes at most; None where the data decides."""
    expected: int | None = None
    """Bytes on average, where the file says what to expect."""


def size_of(value: SSAValue, pipeline: PipelineOp) -> Size | None:
    """The size of a value that moves between stages; None for states, losses, declared things."""
    match value.type:
        case PromptsType() as held:
            return Size(f"{held.size.data} prompts", ID, "prompt token")
        case DemosType() as held:
            return Size(f"{held.size.data} demonstrations", ID + MASK, "token")
        case PairsType() as held:
            return Size(f"{held.size.data} pairs", ID + MASK, "token")
        case TrajectoriesType() as held:
            return _tokens(value, held, ID + MASK, pipeline)
        case TokenFieldType() | ResponseFieldType():
            return _field(value, pipeline)
        case _:
            return None


def _field(value: SSAValue, pipeline: PipelineOp) -> Size | None:
    y = trajectories_of(value)
    if y is None or not isinstance(y.type, TrajectoriesType):
        return None
    if isinstance(value.type, TokenFieldType):
        return _tokens(y, y.type, NUMBER, pipeline)
    count = NUMBER * y.type.prompts.data * y.type.n
    return Size(_responses(y.type), NUMBER, "response", count, count)


def _tokens(y: SSAValue, held: TrajectoriesType, each: int, pipeline: PipelineOp) -> Size:
    count, made = held.prompts.data * held.n, _generate(y)
    most = each * count * made.int_of("max_tokens") if made is not None else None
    mean = _mean_length(made, pipeline) if made is not None else None
    expected = round(each * count * mean) if mean is not None else None
    return Size(_responses(held), each, "response token", most, expected)


def _responses(held: TrajectoriesType) -> str:
    return f"{held.prompts.data} x {held.n} responses"


def _generate(y: SSAValue) -> GenerateOp | None:
    """The operation that sampled trajectories, inside of a collect too."""
    owner = y.owner
    if isinstance(owner, CollectOp):
        keep = terminator_of(owner)
        place = next(k for k, result in enumerate(owner.results) if result is y)
        return _generate(keep.operands[place]) if keep is not None else None
    return owner if isinstance(owner, GenerateOp) else None


def _mean_length(made: Operation, pipeline: PipelineOp) -> float | None:
    """Tokens of a response, as an `expect` line has them."""
    for op in pipeline.body.block.ops:
        if isinstance(op, ExpectOp) and op.target.data == name_of(made.results[0]):
            mean = python_value(op.distribution.settings.get("mean"))
            return float(mean) if isinstance(mean, int | float) else None
    return None


def shown_bytes(count: int | None) -> str:
    """`1.5 MiB`; `-` where it is not known."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f} {unit}" if unit != "B" else f"{count} B"
        size /= 1024
    return f"{size:.1f} TiB"
