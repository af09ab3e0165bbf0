"""From logits, possibly sharded over the vocabulary, to log-probs and entropies of tokens.

Logits are the largest tensors of a step: they are read block by block, and nothing else of their
size is kept for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.runtime.numerics.blocks import blocks

BANNED = -1e30
"""Stands for the logits that must never be sampled: their probability is exactly zero in float32,
and unlike minus infinity it leaves no NaN behind in entropies.
"""


class VocabShard:
    """This process's slice of the vocabulary, and sums over all slices."""

    def __init__(
        self, group: dist.ProcessGroup, width: int, vocab: int, pad_id: int | None
    ) -> None:
        """`width`: columns of the shard; columns from `vocab` on are padding of the matrix."""
        self.group = group
        self.sharded = group.size() > 1
        self.first = group.rank() * width
        columns = torch.arange(self.first, self.first + width)
        self.banned = (columns >= vocab) | (columns == (-1 if pad_id is None else pad_id))

    def logprob(self, logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
        """Log-probs of `targets` [k] and entropies [k] at `temperature`, float32.

        `logits` [k, width] is this process's shard. Both are differentiable in it.
        """
        self.banned = self.banned.to(logits.device)
        logprob, entropy = _LogProb.apply(logits, targets, temperature, self)  # type: ignore[no-untyped-call]
        return logprob, entropy

    def scaled(self, logits: Tensor, temperature: float) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of rows, float32, over the temperature, without probability where banned."""
        for rows in blocks(logits):
            wide = logits[rows].to(torch.promote_types(logits.dtype, torch.float32), copy=True)
            yield rows, wide.div_(temperature).masked_fill_(self.banned, BANNED)

    def local(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(columns of `targets` in this shard, clamped into it; whether they are in it)."""
        columns = targets - self.first
        width = len(self.banned)
        return columns.clamp(0, width - 1), (columns >= 0) & (columns < width)

    def reduce(self, x: Tensor, op: Any = dist.ReduceOp.SUM) -> Tensor:
        """x of all shards, reduced in place."""
        if self.sharded:
            dist.all_reduce(x, op=op, group=self.group)
        return x


class _LogProb(torch.autograd.Function):
    """log p = z_target - log sum exp z; H = log sum exp z - sum p z, for logits z over temperature.

    d log p / dz = 1[target] - p; dH / dz = -p (log p + H).
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, temperature: float, shard: VocabShard
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(logits.dtype, torch.float32)
        peak = torch.empty(len(logits), dtype=wide, device=logits.device)
        chosen, weighted, total = (torch.empty_like(peak) for _ in range(3))
        columns, here = shard.local(targets)
        for rows, z in shard.scaled(logits, temperature):
            peak[rows] = z.amax(dim=-1)
            chosen[rows] = z.gather(-1, columns[rows].unsqueeze(-1)).squeeze(-1)
        shard.reduce(peak, dist.ReduceOp.MAX)
        for rows, z in shard.scaled(logits, temperature):
            p = torch.exp(z - peak[rows].unsqueeze(-1))
            total[rows] = p.sum(dim=-1)
            weighted[rows] = p.mul_(z).sum(dim=-1)
        sums = shard.reduce(torch.stack([total, weighted, chosen * here]))
        normalizer = peak + sums[0].log()
        entropy = normalizer - sums[1] / sums[0]
        ctx.save_for_backward(logits, targets, normalizer, entropy)
        ctx.settings = temperature, shard
        ctx.set_materialize_grads(False)
        return sums[2] - normalizer, entropy

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor, None, None, None]:
        logits, targets, normalizer, entropy = ctx.saved_tensors
        temperature, shard = ctx.settings
        of_logprob, of_entropy = (
            None if g is None else g.unsqueeze(-1) / temperature for g in gradients
        )
        columns, here = shard.local(targets)
        dlogits = torch.empty_like(logits)
        for rows, z in shard.scaled(logits, temperature):
            logp = z.sub_(normalizer[rows].unsqueeze(-1))
            p = logp.exp()
            slope = torch.zeros_like(p)
            if of_logprob is not None:
                g = of_logprob[rows]
                slope.addcmul_(p, g, value=-1.0)
                slope.scatter_add_(-1, columns[rows].unsqueeze(-1), g * here[rows].unsqueeze(-1))
            if of_entropy is not None:
                h = entropy[rows].unsqueeze(-1)
                slope.addcmul_(p.mul_(logp.add_(h)), of_entropy[rows], value=-1.0)
            dlogits[rows] = slope
        return dlogits, None, None, None
