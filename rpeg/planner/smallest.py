"""A plan for a file that has none: the smallest tp x pp that fits, and the rest data-parallel.

Every stage has the same layout on one pool of all processes. Engines on GPUs refill; passes
recompute whole layers, in micro-batches no larger than the longest sequence needs. Of layouts of
one size the one with the larger tp comes first, since pipelines have bubbles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.platform import Platform
from rpeg.cost.profiles.footprint import footprint, host_footprint, longest_row
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.fit import Counts, misfits
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.passes.base import pipelines
from rpeg.passes.rpeg_annotate_parallelism import ALL, RpegAnnotateParallelismPass, par

NAME = "smallest"
"""What reports call the plan."""

MICRO_BATCH = 8192
"""Tokens of a micro-batch, unless the longest sequence has more."""

LONGEST = 1.0
"""The quantile of lengths that has to fit: the cap."""


@dataclass(frozen=True)
class Smallest:
    """The layout that was taken."""

    tp: int
    pp: int
    dp: int
    fits: bool

    def note(self, cluster: str) -> str:
        """What a user is told."""
        held = f"tp={self.tp} pp={self.pp} dp={self.dp} for every stage, on one pool"
        text = f'the file has no plan for "{cluster}": this is for {held}'
        return text if self.fits else f"{text}; no tp x pp fits, and this needs least"


def place_smallest(module: ModuleOp, platform: Platform, inputs: Inputs) -> Smallest:
    """Places the one pipeline of a module at L0, which is then at L1.

    Where nothing fits it is the layout that needs the least memory. Raises ShapeError where the
    shape of a model isn't known.
    """
    size = platform.cluster.gpus or platform.cluster.cores
    RpegAnnotateParallelismPass(dp=size).apply(Context(), module)
    setting = Setting.of(next(pipelines(module)), platform, inputs)
    _annotate(setting)
    share: dict[tuple[int, int], float] = {}
    for tp, pp in _widths(setting, size):
        _lay_out(setting, tp, pp, size)
        share[tp, pp] = _fullest(setting)
        if share[tp, pp] <= 1.0:
            break
    tp, pp = min(share, key=lambda widths: share[widths])
    _lay_out(setting, tp, pp, size)
    return Smallest(tp, pp, size // (tp * pp), share[tp, pp] <= 1.0)


def _widths(setting: Setting, size: int) -> Iterator[tuple[int, int]]:
    """(tp, pp) that split every model evenly, by size; tp within a node and its fast links."""
    machine = setting.machine
    near = min(setting.platform.processes_per_node, machine.link.gpus or size)
    counts = [
        Counts(m.shape.layers, m.shape.heads, m.shape.kv_heads, m.shape.ffn)
        for m in setting.models.values()
    ]
    for product in (n for n in range(1, size + 1) if size % n == 0):
        for tp in (n for n in range(min(near, product), 0, -1) if product % n == 0):
            pp = product // tp
            if not any(True for held in counts for _ in misfits(held, tp=tp, pp=pp, vpp=1)):
                yield tp, pp


def _lay_out(setting: Setting, tp: int, pp: int, size: int) -> None:
    dp = size // (tp * pp)
    layout = par(dp=dp, tp=tp, pp=pp, sp=tp > 1, zero=1 if dp > 1 else 0, recompute="full")
    for op in setting.stages.values():
        op.attributes["par"] = layout


def _annotate(setting: Setting) -> None:
    """Engines and micro-batches, as the lines of a plan would say."""
    rows = (longest_row(op, setting, LONGEST) for op in setting.stages.values())
    longest = max((row.tokens for row in rows), default=0.0)
    bound = RecordAttr.make("mb", {"tokens": plain(max(MICRO_BATCH, math.ceil(longest)))})
    engine = RecordAttr.make("engine", {"name": plain("vllm")})
    for op in setting.stages.values():
        if isinstance(op, GenerateOp | EvalOp):
            if setting.platform.has_gpus:
                op.attributes["engine"] = engine
        else:
            op.attributes["mb"] = bound


def _fullest(setting: Setting) -> float:
    """The most memory that is held, over what there is: of a GPU or of a host."""
    host = host_footprint(setting, ALL, LONGEST).peak / setting.machine.host_memory_bytes
    if not setting.platform.has_gpus:
        return host
    return max(host, footprint(setting, ALL, LONGEST).peak / setting.machine.memory_bytes)
