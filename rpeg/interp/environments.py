"""Environments: what answers every turn of a policy, and says at the end what its sample earned.

`environment("python:module:name")` names what is called with a row of the data and gives the
episode of one sample: an `Episode`. A reward is that of a fresh one which is given the turns of a
trajectory again, so that recorded trajectories have one too: it answers the same turns alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import torch
from torch import Tensor

from rpeg.interp.errors import InterpreterError
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Row, Trajectories


class Episode(Protocol):
    """One sample's dealings with an environment."""

    def step(self, turn: str) -> str | None:
        """What is said after a turn, and goes on the trajectory; None ends the sample."""
        ...

    def reward(self) -> float:
        """What the turns so far have earned."""
        ...


@dataclass(frozen=True)
class Environment:
    """A declared environment."""

    name: str
    begin: Callable[[Row], Episode]

    def read_by(self, tokenizer: Tokenizer) -> Episodes:
        """The same, for a policy with this tokenizer."""
        return Episodes(self, tokenizer)


@dataclass(frozen=True)
class Episodes:
    """An environment that reads one policy's turns; it scores trajectories as a verifier does."""

    environment: Environment
    tokenizer: Tokenizer

    @property
    def name(self) -> str:
        """Its declared name."""
        return self.environment.name

    def begin(self, row: Row) -> Episode:
        """The episode of a sample of this row."""
        return self.environment.begin(row)

    def answer(self, episode: Episode, tokens: Sequence[int]) -> str | None:
        """What an episode says to a turn. Raises InterpreterError where user code does."""
        try:
            said = episode.step(self._text(tokens))
        except Exception as error:  # user code raises anything
            raise InterpreterError(f"`{self.name}`: step() failed: {error!r}") from error
        if said == "":
            raise InterpreterError(f"`{self.name}`: step() said nothing: give a text, or None")
        return said

    def score(self, y: Trajectories) -> Tensor:
        """[samples] rewards."""
        rows = zip(y.rows, y.tokens.tolist(), (y.versions >= 0).tolist(), strict=True)
        return torch.tensor([self._reward(*row) for row in rows])

    def _reward(self, row: Row, tokens: Sequence[int], written: Sequence[bool]) -> float:
        episode = self.begin(row)
        for turn in turns(tokens, written):
            if self.answer(episode, turn) is None:
                break
        return float(episode.reward())

    def _text(self, tokens: Sequence[int]) -> str:
        ends = self.tokenizer.eos_ids
        return self.tokenizer.decode([token for token in tokens if token not in ends])


def turns(tokens: Sequence[int], written: Sequence[bool]) -> list[list[int]]:
    """The policy's turns: what it wrote, cut where something else speaks."""
    pairs = zip(tokens, written, strict=True)
    spans = groupby(pairs, key=lambda pair: pair[1])
    return [[token for token, _ in span] for by_policy, span in spans if by_policy]
