"""From logits, possibly sharded over the vocabulary, to log-probs and entropies of tokens."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

BANNED = -1e30
"""Added to logits that must never be sampled: their probability is exactly zero in float32, and
unlike minus infinity it leaves no NaN behind in entropies.
"""


def ban(logits: Tensor, banned: Tensor) -> Tensor:
    """`logits` [..., vocabulary] without probability where `banned` [vocabulary] is true."""
    return logits + banned.to(logits.dtype) * BANNED


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

    def logprob(
        self, logits: Tensor, targets: Tensor, temperature: float, *, entropy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs of `targets` [b, k] and entropies [b, k] at `temperature`, float32.

        `logits` [b, k, width] is this process's shard. Both are differentiable in it; the entropy
        only if asked for.
        """
        scaled = ban(logits.float() / temperature, self.banned.to(logits.device))
        peak = self._max(scaled.detach().amax(dim=-1))
        normalizer = peak + self._sum(torch.exp(scaled - peak.unsqueeze(-1)).sum(dim=-1)).log()
        with torch.set_grad_enabled(entropy and torch.is_grad_enabled()):
            p = torch.exp(scaled - self._to_shards(normalizer).unsqueeze(-1))
            spread = normalizer - self._sum((p * scaled).sum(dim=-1))
        return self._chosen(scaled, targets) - normalizer, spread

    def _chosen(self, scaled: Tensor, targets: Tensor) -> Tensor:
        local = targets - self.first
        here = (local >= 0) & (local < scaled.shape[-1])
        chosen = scaled.gather(-1, local.clamp(0, scaled.shape[-1] - 1).unsqueeze(-1)).squeeze(-1)
        return self._sum(torch.where(here, chosen, 0.0))

    def _sum(self, x: Tensor) -> Tensor:
        if not self.sharded:
            return x
        from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region

        total: Tensor = reduce_from_tensor_model_parallel_region(x, group=self.group)
        return total

    def _to_shards(self, x: Tensor) -> Tensor:
        """x as every shard uses it: its gradient is the sum of all of theirs."""
        if not self.sharded:
            return x
        from megatron.core.tensor_parallel import copy_to_tensor_model_parallel_region

        same: Tensor = copy_to_tensor_model_parallel_region(x, group=self.group)
        return same

    def _max(self, x: Tensor) -> Tensor:
        if self.sharded:
            dist.all_reduce(x, op=dist.ReduceOp.MAX, group=self.group)
        return x
