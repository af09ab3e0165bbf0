"""The default plan: one process group, data parallel over the processes of this machine."""

from __future__ import annotations

from math import gcd

from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.sampling import BatchOp, GenerateOp
from rpeg.ir.ops.updates import UpdateOp

LARGEST_ON_CPU = 8
"""Cores beyond this many do not help the models that fit a CPU."""


def default_processes(pipeline: PipelineOp, gpus: int, cores: int) -> int:
    """The most processes, one a GPU or else one a core, over which every batch divides."""
    most = gpus or min(cores, LARGEST_ON_CPU)
    share = divisible(pipeline)
    return max(n for n in range(1, max(most, 1) + 1) if share % n == 0)


def divisible(pipeline: PipelineOp) -> int:
    """A number whose divisors are the widths over which every batch and minibatch divides."""
    share = 0
    for op in pipeline.walk():
        if isinstance(op, BatchOp):
            share = gcd(share, op.int_of("size"))
    group = max((op.int_of("n") for op in pipeline.walk() if isinstance(op, GenerateOp)), default=1)
    parts = max(
        (op.int_of("minibatches") for op in pipeline.walk() if isinstance(op, UpdateOp)), default=1
    )
    return gcd(share, share * group // parts) or 1
