"""Environments: they answer every turn of a policy, and at the end give the reward of its sample.

`environment("python:module:name")` names what is called with a row of the data and gives the
episode of one sample: an `Episode`. A reward is that of a fresh one which is given the turns of a
trajectory again, so that recorded trajectories have one too: it answers the same turns alike.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol, TypeVar

import torch
from torch import Tensor
from xdsl.ir import Operation

from rpeg.interp.errors import InterpreterError
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Row, Trajectories
from rpeg.runtime.verifiers.worker import number

T = TypeVar("T")


class Episode(Protocol):
    """One sample's interaction with an environment."""

    def step(self, turn: str) -> str | None:
        """What is said after a turn, and goes on the trajectory; None ends the sample."""
        ...

    def reward(self) -> float:
        """What the turns so far have earned."""
        ...


@dataclass(frozen=True)
class Environment:
    """A declared environment. Faults of its code are reported at its declaration."""

    name: str
    make: Callable[[Row], Episode]
    declared: Operation

    def begin(self, row: Row) -> Episode:
        """The episode of a sample of this row. Raises InterpreterError."""
        episode = self.ask("its call with a row", self.make, row)
        lacking = [m for m in ("step", "reward") if not callable(getattr(episode, m, None))]
        if lacking:
            kind, methods = type(episode).__name__, " and no ".join(f"{m}()" for m in lacking)
            raise self.refusal(f"its call with a row gives a {kind}, which has no {methods}")
        return episode

    def step(self, episode: Episode, turn: str) -> str | None:
        """What an episode says to a turn. Raises InterpreterError."""
        said = self.ask("step()", episode.step, turn)
        if said is not None and not isinstance(said, str):
            raise self.refusal(f"step() gave {said!r:.60}: give a text, or None to end the sample")
        if said == "":
            raise self.refusal("step() said nothing: give a text, or None to end the sample")
        return said

    def reward(self, episode: Episode) -> float:
        """What an episode has earned. Raises InterpreterError."""
        earned = self.ask("reward()", episode.reward)
        try:
            return number(earned)
        except (TypeError, ValueError) as error:
            raise self.refusal(f"reward(): {error}") from error

    def ask(self, what: str, code: Callable[..., T], *arguments: object) -> T:
        """What the user's code gives. Raises InterpreterError with the line of it that raised."""
        try:
            return code(*arguments)
        except Exception as error:  # user code raises anything
            frames = traceback.extract_tb(error.__traceback__)[1:2]
            where = "".join(f" at {frame.filename}:{frame.lineno}" for frame in frames)
            raise self.refusal(f"{what} failed{where}: {error!r}") from error

    def refusal(self, problem: str) -> InterpreterError:
        """What is wrong, at the declaration."""
        return InterpreterError.at(self.declared, f"`{self.name}`: {problem}")

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
        return self.environment.step(episode, self._text(tokens))

    def score(self, y: Trajectories) -> Tensor:
        """[samples] rewards."""
        rows = zip(y.rows, y.tokens.tolist(), (y.versions >= 0).tolist(), strict=True)
        return torch.tensor([self._reward(*row) for row in rows])

    def _reward(self, row: Row, tokens: Sequence[int], written: Sequence[bool]) -> float:
        episode = self.begin(row)
        for turn in turns(tokens, written):
            if self.answer(episode, turn) is None:
                break
        return self.environment.reward(episode)

    def _text(self, tokens: Sequence[int]) -> str:
        ends = self.tokenizer.eos_ids
        return self.tokenizer.decode([token for token in tokens if token not in ends])


def turns(tokens: Sequence[int], written: Sequence[bool]) -> list[list[int]]:
    """The policy's turns: what it wrote, cut where something else speaks."""
    pairs = zip(tokens, written, strict=True)
    spans = groupby(pairs, key=lambda pair: pair[1])
    return [[token for token, _ in span] for by_policy, span in spans if by_policy]
