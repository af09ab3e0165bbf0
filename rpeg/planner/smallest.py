"""A plan for a file that has none: the smallest tp x pp that fits, and the rest data-parallel.

All stages share one pool of all processes. Stages that go through a model have one layout; replicas
share an optimizer, and updates recompute whole layers only where twice as many processes a replica
would not do without: what just fits is slow twice over, as its layers are computed again and its
engines must be wide to find room beside it. Engines on GPUs refill, in replicas as small as hold
their weights and some sequences. Micro-batches are no larger than the longest sequence needs. Of
layouts of one size the one with the larger tp comes first, since pipelines have bubbles. Every
batch divides over the data-parallel ranks: where that leaves GPUs without work, a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.platform import Platform
from rpeg.cost.profiles.footprint import footprint, host_footprint, longest_row, usable
from rpeg.cost.profiles.rows import rows_at_once
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.divisibility import Counts, misfits
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.movement import RanksOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.passes.base import pipelines
from rpeg.passes.rpeg_annotate_parallelism import ALL, RpegAnnotateParallelismPass, par
from rpeg.planner.default import divisible

NAME = "smallest"
"""What reports call the plan."""

MICRO_BATCH = 8192
"""Tokens of a micro-batch, unless the longest sequence has more."""

LONGEST = 1.0
"""The quantile of lengths that has to fit: the cap."""

RUNNING = 32.0
"""Sequences that a replica of an engine has room for at once, if it is asked for so many."""

RECOMPUTED = ("none", "full")
"""What updates may recompute, the faster first."""

WIDER = 2
"""By how much tp x pp may grow to do without recomputing."""


@dataclass(frozen=True)
class Smallest:
    """The layouts that were taken."""

    tp: int
    pp: int
    dp: int
    recompute: str = "none"
    engine: int | None = None
    """Width of tp of what samples; None: that of the others."""
    cramped: bool = False
    """Narrower engines would have no room for some sequences beside what trains there."""
    fits: bool = True
    idle: int = 0
    """Processes over which no batch divides."""

    @property
    def processes(self) -> int:
        """Those that work."""
        return self.tp * self.pp * self.dp

    def note(self, cluster: str) -> str:
        """The note for the user."""
        held = f"tp={self.tp} pp={self.pp} dp={self.dp}{self._saves()} on one pool{self._samples()}"
        text = f'the file has no plan for "{cluster}": this is for {held}'
        if self.idle:
            text += f"; {self.idle} do nothing, as batches don't divide over more"
        return text if self.fits else f"{text}; no tp x pp fits, and this needs least"

    @property
    def zero(self) -> int:
        """Replicas share an optimizer wherever there are any: that costs nothing."""
        return 1 if self.dp > 1 else 0

    def _saves(self) -> str:
        zero = f" zero={self.zero}" if self.zero else ""
        return zero + (f" recompute={self.recompute}" if self.recompute != "none" else "")

    def _samples(self) -> str:
        if self.engine is None:
            return ""
        why = ", as narrower ones lack room for sequences beside the rest" if self.cramped else ""
        return f", engines tp={self.engine} dp={self.processes // self.engine}{why}"


def place_smallest(module: ModuleOp, platform: Platform, inputs: Inputs) -> Smallest:
    """Places the one pipeline of a module at L0, which is then at L1.

    Where nothing fits it is the layout that needs the least memory. Raises ShapeError where the
    shape of a model isn't known.
    """
    size = platform.cluster.gpus or platform.cluster.cores
    RpegAnnotateParallelismPass(dp=size).apply(Context(), module)
    setting = Setting.of(next(pipelines(module)), platform, inputs)
    _annotate(setting)
    found = _roomiest(setting, _first(setting, list(_layouts(setting, size))))
    _laid_out(setting, found)
    return found


def _first(setting: Setting, layouts: Sequence[Smallest]) -> Smallest:
    """The first that fits and leaves engines room, rather one that recomputes nothing if it is not
    much wider; else the first that fits, else the one that lacks least.
    """
    share: dict[Smallest, float] = {}
    roomy: Smallest | None = None
    for layout in layouts:
        if roomy is not None and layout.tp * layout.pp > WIDER * roomy.tp * roomy.pp:
            break
        held = _laid_out(setting, layout)
        share[layout] = _fullest(held)
        if share[layout] <= 1.0 and _has_room(held):
            if layout.recompute == "none":
                return layout
            roomy = roomy or layout
    if roomy is not None:
        return roomy
    fitting = (layout for layout in layouts if share[layout] <= 1.0)
    least = min(layouts, key=lambda layout: share[layout])
    return next(fitting, replace(least, fits=share[least] <= 1.0))


def _layouts(setting: Setting, size: int) -> Iterator[Smallest]:
    """By tp x pp, and for each from the fastest to the one that needs the least memory; engines
    are as wide as they can be.
    """
    divides = divisible(setting.pipeline)
    for tp, pp in _widths(setting, size):
        dp = max(n for n in range(1, size // (tp * pp) + 1) if divides % n == 0)
        whole = Smallest(tp, pp, dp, idle=size - tp * pp * dp)
        whole = replace(whole, engine=next(iter(_engines(setting, whole, divides)), None))
        yield from (replace(whole, recompute=way) for way in RECOMPUTED)


def _widths(setting: Setting, size: int) -> Iterator[tuple[int, int]]:
    """(tp, pp) that split every model evenly, by size; tp within a node and its fast links."""
    counts = [_counts(setting, name) for name in setting.models]
    for product in (n for n in range(1, size + 1) if size % n == 0):
        for tp in (n for n in range(min(_near(setting), product), 0, -1) if product % n == 0):
            pp = product // tp
            if not any(True for held in counts for _ in misfits(held, tp=tp, pp=pp, vpp=1)):
                yield tp, pp


def _near(setting: Setting) -> int:
    """Processes of a node that its fast links join."""
    return min(setting.platform.processes_per_node, setting.machine.link.gpus)


def _counts(setting: Setting, model: str) -> Counts:
    shape = setting.models[model].shape
    return Counts(shape.layers, shape.heads, shape.kv_heads, shape.ffn)


# ---- engines


def _sampling(setting: Setting) -> list[RpegOp]:
    """The stages that an engine with replicas of its own runs."""
    if not setting.platform.has_gpus:
        return []
    return [op for op in setting.stages.values() if isinstance(op, GenerateOp | EvalOp)]


def _engines(setting: Setting, layout: Smallest, divides: int) -> Iterator[int]:
    """Widths of engines whose replicas share the batches evenly, the widest first."""
    asked = {setting.model(op).name for op in _sampling(setting)}
    counts = [_counts(setting, name) for name in asked]
    for tp in range(_near(setting) if asked else 0, 0, -1):
        even = layout.processes % tp == 0 and divides % (layout.processes // tp) == 0
        if even and not any(True for c in counts for _ in misfits(c, tp=tp, pp=1, vpp=1)):
            yield tp


def _roomiest(setting: Setting, layout: Smallest) -> Smallest:
    """With engines no wider than they need to be to hold some sequences."""
    widths = list(_engines(setting, layout, divisible(setting.pipeline)))
    for tp in reversed(widths):
        held = _laid_out(setting, replace(layout, engine=tp))
        if _fullest(held) <= 1.0 and _has_room(held):
            return replace(layout, engine=tp, cramped=tp > widths[-1])
    return layout


def _has_room(setting: Setting) -> bool:
    """Whether replicas hold the sequences that they are asked for, or enough of them."""
    return all(_cached(setting, op) >= _wanted(setting, op) for op in _sampling(setting))


def _cached(setting: Setting, op: RpegOp) -> float:
    """Tokens whose cache one replica has room for."""
    engine = replace(setting.assumptions.sampling, utilization=usable(setting, op))
    return float(setting.rollouts(op).serving(setting.machine).room(engine))


def _wanted(setting: Setting, op: RpegOp) -> float:
    """Tokens of the sequences that one replica is to run at once."""
    rows = rows_at_once(op, setting)
    return min(max(rows.number / setting.rollouts(op).layout.dp, 1.0), RUNNING) * rows.average


# ---- placing


def _laid_out(setting: Setting, layout: Smallest) -> Setting:
    """The pipeline with these layouts, whose pools are counted anew."""
    tp, pp, dp = layout.tp, layout.pp, layout.dp
    plain_layout = par(dp=dp, tp=tp, pp=pp, sp=tp > 1)
    update = par(dp=dp, tp=tp, pp=pp, sp=tp > 1, zero=layout.zero, recompute=layout.recompute)
    for op in setting.stages.values():
        op.attributes["par"] = update if isinstance(op, UpdateOp) else plain_layout
    for op in _sampling(setting) if layout.engine is not None else ():
        width = layout.engine or 1
        op.attributes["par"] = par(dp=layout.processes // width, tp=width)
    for ranks in setting.pipeline.ops_of(RanksOp):
        ranks.properties["last"] = RanksOp.of(ALL, 0, layout.processes - 1).last
    return replace(setting)


def _annotate(setting: Setting) -> None:
    """Engines and micro-batches, as the lines of a plan would say."""
    rows = (longest_row(op, setting, LONGEST) for op in setting.stages.values())
    longest = max((row.tokens for row in rows), default=0.0)
    bound = RecordAttr.make("mb", {"tokens": plain(max(MICRO_BATCH, math.ceil(longest)))})
    engine = RecordAttr.make("engine", {"name": plain("vllm")})
    sampling = _sampling(setting)
    for op in setting.stages.values():
        if op in sampling:
            op.attributes["engine"] = engine
        elif not isinstance(op, GenerateOp | EvalOp):
            op.attributes["mb"] = bound


def _fullest(setting: Setting) -> float:
    """The most memory that is held, over what there is: of a GPU or of a host."""
    host = host_footprint(setting, ALL, LONGEST).peak / setting.machine.host_memory_bytes
    if not setting.platform.has_gpus:
        return host
    return max(host, footprint(setting, ALL, LONGEST).peak / setting.machine.memory_bytes)
