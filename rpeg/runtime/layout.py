"""How a model is spread over processes, cut into micro-batches and stepped: plain settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rpeg.runtime.errors import LayoutFailure


@dataclass(frozen=True)
class Layout:
    """Parallel widths of one model; their product is the number of processes."""

    dp: int = 1
    """Data parallel: replicas that split the batch."""
    tp: int = 1
    """Tensor parallel: shards of every matrix."""
    pp: int = 1
    """Pipeline stages."""
    cp: int = 1
    """Context parallel: shards of every sequence."""
    ep: int = 1
    """Expert parallel."""
    vpp: int = 1
    """Model chunks on each pipeline stage."""
    sp: bool = False
    """Shard the activations between tensor-parallel regions along the sequence."""
    zero: int = 0
    """1 shards the optimizer over the data-parallel replicas."""
    recompute: Literal["none", "selective", "full"] = "none"
    """What the backward pass computes again instead of keeping it."""

    @property
    def processes(self) -> int:
        """Processes of the layout; `ep` and `vpp` subdivide them and add none."""
        return self.dp * self.tp * self.pp * self.cp

    def check(self, processes: int) -> None:
        """Raises LayoutFailure if the layout doesn't fit the world, or isn't one that we run."""
        if self.processes != processes:
            raise LayoutFailure(
                f"dp x tp x pp x cp = {self.processes}, but {processes} processes were started"
            )
        if self.cp > 1 or self.ep > 1:
            raise LayoutFailure(f"cp and ep must be 1 in this version, not {self}")
        if self.zero > 1:
            raise LayoutFailure(f"zero must be 0 or 1, not {self.zero}")
        if self.sp and self.tp == 1:
            raise LayoutFailure("sp shards over tp: it needs tp > 1")
        if self.vpp > 1 and self.pp == 1:
            raise LayoutFailure("vpp cuts pipeline stages into chunks: it needs pp > 1")
        if self.zero and self.dp == 1:
            raise LayoutFailure("zero shards over data-parallel replicas: it needs dp > 1")


@dataclass(frozen=True)
class MicroBatch:
    """Bound on what one forward and backward pass holds; both None: the whole minibatch at once.

    Rows are split into the fewest micro-batches within it, with about equally many tokens each.
    """

    tokens: int | None = None
    """Model inputs of all its sequences, prompts included; a longer sequence goes alone."""
    seqs: int | None = None
    """Sequences."""

    def of_units(self, rows: int) -> MicroBatch:
        """The same bound in units of `rows` sequences each: at least one unit."""
        return MicroBatch(self.tokens, None if self.seqs is None else max(1, self.seqs // rows))


@dataclass(frozen=True)
class AdamW:
    """Decoupled weight decay (arXiv:1711.05101) with a learning-rate schedule."""

    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    """Not applied to biases and norms."""
    grad_clip: float = 1.0
    """Largest global gradient norm; 0 turns clipping off."""
    warmup: int = 0
    """Steps over which the rate rises linearly to `lr`."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """After the warm-up: how the rate falls to zero at the horizon."""
