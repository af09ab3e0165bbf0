"""Many training layouts at once: a field of each, as arrays of one length.

Degrees follow Megatron: tp·cp·dp·pp GPUs; expert parallelism (ep) takes its ranks from tp·cp·dp.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from rpeg.cost.arrays import Array, larger, smaller

NO_RECOMPUTE, SELECTIVE, FULL = 0, 1, 2
"""Values of `recompute`: nothing, attention's core, whole layers."""


@dataclass(frozen=True)
class Plans:
    """Layouts of one training step. Degrees count ranks; `seq` is in tokens."""

    tp: Array
    pp: Array
    vpp: Array
    """Chunks of layers a pipeline rank holds; 1 is plain 1F1B."""
    dp: Array
    cp: Array
    ep: Array
    etp: Array
    """Tensor parallelism within an expert."""
    micro: Array
    """Sequences of one micro-batch."""
    batch: Array
    """Sequences of one optimizer step, over all ranks."""
    seq: Array
    sp: Array
    """1 where activations between tensor-parallel blocks are split along the sequence."""
    zero: Array
    """1 splits the optimizer over dp·cp, 2 gradients too, 3 weights too."""
    recompute: Array
    trained: Array
    """Share of the weights that get gradients; LoRA is close to 0."""
    imbalance: Array
    """Tokens of the busiest rank's experts over the mean; 1 is balanced."""
    shard: Array
    """Ranks that ZeRO-3 splits weights over, at most; the others hold copies (HSDP)."""
    attended: Array
    """Sequences of one micro-batch that attention goes over; more than `micro` where the tokens of
    a prompt count once for all of its responses."""

    @classmethod
    def of(
        cls,
        *,
        batch: ArrayLike,
        seq: ArrayLike,
        tp: ArrayLike = 1,
        pp: ArrayLike = 1,
        vpp: ArrayLike = 1,
        dp: ArrayLike = 1,
        cp: ArrayLike = 1,
        ep: ArrayLike = 1,
        etp: ArrayLike = 1,
        micro: ArrayLike = 1,
        sp: ArrayLike = 1,
        zero: ArrayLike = 1,
        recompute: ArrayLike = NO_RECOMPUTE,
        trained: ArrayLike = 1,
        imbalance: ArrayLike = 1,
        shard: ArrayLike = np.inf,
        attended: ArrayLike | None = None,
    ) -> Self:
        """Plans from numbers or arrays, stretched to one shape."""
        given = (
            *(tp, pp, vpp, dp, cp, ep, etp, micro, batch, seq, sp, zero, recompute, trained),
            *(imbalance, shard, micro if attended is None else attended),
        )
        arrays = [np.asarray(value, dtype=np.float64) for value in given]
        return cls(*np.broadcast_arrays(*arrays))

    @property
    def gpus(self) -> Array:
        """GPUs of each plan."""
        return self.tp * self.pp * self.dp * self.cp

    @property
    def shards(self) -> Array:
        """Ranks that ZeRO splits the weights outside of experts over."""
        return np.where(self.zero >= 3, smaller(self.shard, self.dp * self.cp), self.dp * self.cp)

    @property
    def micro_batches(self) -> Array:
        """Micro-batches of one rank in one step; at least 1."""
        return larger(np.ceil(self.batch / (self.dp * self.micro)), 1.0)

    @property
    def tokens(self) -> Array:
        """Tokens of a micro-batch that one GPU sees, before the split by sp."""
        return self.micro * self.seq / self.cp

    @property
    def sequence_split(self) -> Array:
        """By how much sequence parallelism splits activations outside matmuls."""
        return np.where(self.sp > 0, self.tp, 1.0)

    def at(self, index: int) -> Plans:
        """One of them, as plans without a dimension."""
        return Plans(*(np.asarray(getattr(self, field.name)[index]) for field in fields(self)))
