"""The default plan: one process group, data parallel over the processes of this machine."""

from __future__ import annotations

from math import gcd

from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.rules.shares import shared

NAME = "default"
"""What `rpeg check` calls the plan."""

LARGEST_ON_CPU = 8
"""Cores beyond this many do not help the models that fit a CPU."""


def default_processes(pipeline: PipelineOp, gpus: int, cores: int) -> int:
    """The most processes, one per GPU or else one per core, over which every batch divides."""
    most = gpus or min(cores, LARGEST_ON_CPU)
    share = divisible(pipeline)
    return max(n for n in range(1, max(most, 1) + 1) if share % n == 0)


def divisible(pipeline: PipelineOp) -> int:
    """A number whose divisors are the widths over which every batch and minibatch divides."""
    sizes = (size for op in pipeline.walk() for size, _ in shared(op))
    return gcd(*sizes) or 1
