"""Generative reward models: asked by template, answering greedily, read for a number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from rpeg.interp.sampler import SamplingSettings, sample
from rpeg.interp.values import Weights
from rpeg.runtime.trajectories import Prompts, Trajectories
from rpeg.runtime.verifiers.answers import filled, last_number


class Scorer(Protocol):
    """What an oracle asks for rewards: a verifier or a judge."""

    @property
    def name(self) -> str:
        """Its declared name."""
        ...

    def score(self, y: Trajectories) -> Tensor:
        """[samples] rewards."""
        ...


@dataclass(frozen=True)
class Judge:
    """A language model that is asked what a response is worth."""

    weights: Weights
    template: str
    max_tokens: int

    @property
    def name(self) -> str:
        """Its declared name."""
        return self.weights.model.name

    def score(self, y: Trajectories) -> Tensor:
        """[samples] the last number of each of its answers, 0 without one."""
        pairs = zip(y.rows, y.texts, strict=True)
        asked = tuple(replace(row, prompt=filled(self.template, row, text)) for row, text in pairs)
        settings = SamplingSettings(
            n=1,
            max_tokens=self.max_tokens,
            temperature=0.0,
            top_p=1.0,
            stop=(),
            run_seed=0,
            seed=0,
        )
        said, _ = sample(self.weights, Prompts(asked, y.ordinals), settings)
        return torch.tensor([last_number(text) or 0.0 for text in said.texts])
