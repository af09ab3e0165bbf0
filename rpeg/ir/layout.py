"""Layouts: the widths of a `par` clause (L1) or a `Layout` record (L3), their product, and which
settings make no sense together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

AXES = ("tp", "pp", "cp", "dp")
"""The axes whose widths multiply to the processes of a group."""
LATER: Mapping[str, str] = {"cp": "context parallelism", "ep": "expert parallelism"}
"""Axes that plans can speak of, and programs can't use yet."""
LARGEST_ZERO = 3
"""Parameters, gradients and optimizer all sharded (arXiv:1910.02054)."""


def width_of(layout: RecordAttr, axis: str) -> int:
    """The width of one axis; 1 where the record does not say."""
    value = python_value(layout.settings.get(axis))
    return value if isinstance(value, int) else 1


def size_of(layout: RecordAttr) -> int:
    """Processes of a layout: tp x pp x cp x dp."""
    return prod(width_of(layout, axis) for axis in AXES)


def later(layout: RecordAttr) -> str | None:
    """Why a layout does not compile yet, where it has an axis of a later version."""
    axis = next((a for a in LATER if width_of(layout, a) > 1), None)
    return f"{LATER[axis]} ({axis}) does not compile yet: write {axis}=1" if axis else None


def later_first(layout: RecordAttr, problem: str) -> str:
    """A problem with the sizes of a layout, after the axis that does not compile anyway."""
    why = later(layout)
    return problem if why is None else f"{why}; as it stands, {problem}"


def zero_of(layout: RecordAttr) -> int:
    """What data-parallel replicas share: 0 nothing, 1 the optimizer."""
    return width_of(layout, "zero") if "zero" in layout.settings else 0


def shards_sequence(layout: RecordAttr) -> bool:
    """Whether activations are sharded along the sequence."""
    return python_value(layout.settings.get("sp")) is True


def contradictions(layout: RecordAttr) -> Iterator[str]:
    """Settings that would have nothing to act on."""
    if shards_sequence(layout) and width_of(layout, "tp") == 1:
        yield "sp=true shards over tensor-parallel ranks: write tp=2 or more, or leave sp out"
    vpp, zero = width_of(layout, "vpp"), zero_of(layout)
    if vpp > 1 and width_of(layout, "pp") == 1:
        yield f"vpp={vpp} cuts pipeline stages: write pp=2 or more, or leave vpp out"
    if zero > LARGEST_ZERO:
        yield f"zero={zero}: expected 0 to {LARGEST_ZERO}"
    elif zero and width_of(layout, "dp") * width_of(layout, "cp") == 1:
        yield f"zero={zero} shards over replicas: write dp=2 or more, or leave zero out"
