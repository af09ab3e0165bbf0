"""Dynamic sampling: which groups of a round stay, and batches made of several rounds.

DAPO (arXiv:2503.14476, section 3.2): prompts whose answers all earn the same give no gradient, so
that further prompts are sampled until the batch is full of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime.trajectories import Trajectories

Where = Literal["mixed", "nonzero"]


def kept_groups(rewards: Tensor, n: int, where: Where) -> Tensor:
    """[groups] bool: whose rewards [groups x n] differ (mixed) or have a sum (nonzero)."""
    groups = rewards.view(-1, n)
    if where == "mixed":
        return groups.amax(dim=1) > groups.amin(dim=1)
    return groups.double().sum(dim=1) != 0


def samples_of(groups: Tensor, n: int) -> Tensor:
    """[k x n] the samples of k groups, given by their numbers."""
    return (groups.unsqueeze(1) * n + torch.arange(n, device=groups.device)).flatten()


def join(parts: Sequence[Trajectories]) -> Trajectories:
    """Trajectories of several rounds as one batch, in this order."""

    def tensors(name: str) -> Tensor:
        return torch.cat([getattr(part, name) for part in parts])

    return Trajectories(
        rows=tuple(row for part in parts for row in part.rows),
        prompt_ids=tuple(ids for part in parts for ids in part.prompt_ids),
        tokens=tensors("tokens"),
        mask=tensors("mask"),
        versions=tensors("versions"),
        finished=tensors("finished"),
        ordinals=tensors("ordinals"),
        samples=tensors("samples"),
        texts=tuple(text for part in parts for text in part.texts),
        n=parts[0].n,
        temperature=parts[0].temperature,
    )


def too_few(found: int, wanted: int, rounds: int) -> str:
    """The message of a collect that ran out of rounds."""
    return (
        f"{rounds} rounds kept {found} of {wanted} groups, the prompts are too easy or too hard: "
        "raise max_rounds or the batch's size, lower groups, or choose other prompts"
    )
