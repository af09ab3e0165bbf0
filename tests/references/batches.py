"""The seeded batches that the references are computed on.

All fields are float64, so that a difference between two implementations is one of meaning and not
of rounding. Samples of one prompt stand side by side, `n` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

VOCABULARY = 5


@dataclass(frozen=True)
class Batch:
    """Fields by name: [samples], [samples, tokens] or [samples, tokens, vocabulary]."""

    n: int
    fields: Mapping[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.fields[name]


def ragged() -> Batch:
    """Three groups of four: lengths differ, a row has a gap (a tool's output), one row is fully
    masked, and one group's rewards are all equal."""
    rows = ["111111", "111100", "110110", "100000", "111110", "000000", "111000", "011110"]
    rows += ["111111", "110000", "101011", "111100"]
    rewards = [1.0, 0.0, 0.5, 0.25] + [0.1] * 4 + [1.0, 0.0, 0.0, 1.0]
    return _batch(4, rows, rewards, drift=0.4)


def pairs() -> Batch:
    """Three groups of two, without a fully masked row."""
    rows = ["11111", "11100", "10000", "11110", "11011", "11111"]
    return _batch(2, rows, [1.0, 0.0, 0.3, 0.8, 0.5, 0.5], drift=0.4)


def extreme() -> Batch:
    """Two groups of two whose policies lie far apart: ratios from e^-120 to e^120."""
    batch = _batch(2, ["1111", "1110", "1111", "1100"], [1.0, 0.0, 0.0, 1.0], drift=0.1)
    far = torch.tensor([[-120.0, 0.5, 25.0, -25.0], [120.0, -0.5, 2.0, 0.0]]).double()
    gap = torch.cat([far, -far])
    apart = {name: batch["logprob"] - gap for name in ("old", "behaviour", "reference")}
    return Batch(batch.n, {**batch.fields, **apart})


def _batch(n: int, rows: list[str], rewards: list[float], drift: float) -> Batch:
    generator = torch.Generator().manual_seed(len(rows))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    mask = torch.tensor([[float(c) for c in row] for row in rows], dtype=torch.float64)
    shape = (len(rows), len(rows[0]))
    logits = normal(*shape, VOCABULARY)
    tokens = torch.randint(VOCABULARY, shape, generator=generator)
    logprob = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    values = normal(*shape)
    near = {name: logprob + drift * normal(*shape) for name in ("old", "behaviour", "reference")}
    fields = {
        "mask": mask,
        "tokens": tokens,
        "logits": logits,
        "teacher_logits": normal(*shape, VOCABULARY),
        "logprob": logprob,
        **near,
        "rewards": torch.tensor(rewards, dtype=torch.float64),
        "greedy": normal(len(rows) // n),
        "token_rewards": normal(*shape) * mask,
        "advantages": normal(len(rows)),
        "values": values,
        "old_values": values + drift * normal(*shape),
        "returns": normal(*shape),
        "scores": normal(len(rows)),
    }
    return Batch(n, fields)


BATCHES: Mapping[str, Callable[[], Batch]] = {
    "ragged": ragged,
    "pairs": pairs,
    "extreme": extreme,
}
