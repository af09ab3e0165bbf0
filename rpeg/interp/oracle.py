"""Where trajectories and rewards come from: the interpreter's own sampling, or a recording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from rpeg.interp.errors import InterpreterError
from rpeg.interp.judge import Scorer
from rpeg.interp.sampler import SamplingSettings
from rpeg.interp.values import Place
from rpeg.interp.writer import Writer
from rpeg.runtime.recordings.recording import Recording, StepRecord
from rpeg.runtime.trajectories import Prompts, Trajectories


class TrajectoryOracle(Protocol):
    """Says which tokens each sample got, and what they earned."""

    def generate(
        self, place: Place, writer: Writer, prompts: Prompts, settings: SamplingSettings
    ) -> tuple[Trajectories, Tensor]:
        """Completions, and the log-probs [samples, max_tokens] they were sampled under."""
        ...

    def score(self, place: Place, verifier: Scorer, y: Trajectories) -> Tensor:
        """[samples] rewards."""
        ...

    def part(self, rows: Tensor) -> TrajectoryOracle:
        """What answers for these samples [k] of a batch alone."""
        ...


class Sampling:
    """Samples with the writer in hand, and asks the verifier."""

    def generate(
        self, place: Place, writer: Writer, prompts: Prompts, settings: SamplingSettings
    ) -> tuple[Trajectories, Tensor]:
        """See `Writer.write`."""
        return writer.write(prompts, settings)

    def score(self, place: Place, verifier: Scorer, y: Trajectories) -> Tensor:
        """The verifier's rewards."""
        return verifier.score(y)

    def part(self, rows: Tensor) -> Sampling:
        """Itself: it takes any batch."""
        return self


class Replay:
    """Gives what a recording holds, of all samples of its batches or of the `rows` [k] only.

    Raises InterpreterError where it doesn't fit the pipeline.
    """

    def __init__(self, recording: Recording, rows: Tensor | None = None) -> None:
        self._recording = recording
        self._rows = rows

    def part(self, rows: Tensor) -> Replay:
        """Gives only these samples."""
        return Replay(self._recording, self._chosen(rows))

    def _chosen(self, rows: Tensor) -> Tensor:
        return rows if self._rows is None else self._rows[rows]

    def generate(
        self, place: Place, writer: Writer, prompts: Prompts, settings: SamplingSettings
    ) -> tuple[Trajectories, Tensor]:
        """The recorded trajectories of the same prompts."""
        step = self._step(place)
        if place.name not in step.trajectories:
            raise _missing(place, "trajectories", step.trajectories)
        y, sampled = step.trajectories[place.name], step.sampled[place.name]
        if self._rows is not None:
            y, sampled = y.select(self._rows), sampled[self._rows]
        if not torch.equal(y.ordinals, prompts.ordinals.repeat_interleave(settings.n)):
            raise InterpreterError(
                f"`{place.name}` of step {place.step} was recorded for other prompts, or in "
                "another order: replay with the data, seed and batch size of the recording"
            )
        return y, sampled

    def score(self, place: Place, verifier: Scorer, y: Trajectories) -> Tensor:
        """The recorded rewards."""
        step = self._step(place)
        if place.name not in step.rewards:
            raise _missing(place, "rewards", step.rewards)
        rewards = step.rewards[place.name]
        return rewards if self._rows is None else rewards[self._rows]

    def _step(self, place: Place) -> StepRecord:
        if place.step >= len(self._recording.steps):
            raise InterpreterError(
                f"the recording ends after {len(self._recording.steps)} steps: run only these"
            )
        return self._recording.steps[place.step]


class TeacherForced(Replay):
    """Gives the recorded tokens, and the log-probs that the weights in hand have of them."""

    def part(self, rows: Tensor) -> TeacherForced:
        """Gives only these samples."""
        return TeacherForced(self._recording, self._chosen(rows))

    @torch.no_grad()
    def generate(
        self, place: Place, writer: Writer, prompts: Prompts, settings: SamplingSettings
    ) -> tuple[Trajectories, Tensor]:
        """The recorded trajectories; recorded log-probs where sampling cut the distribution."""
        y, sampled = super().generate(place, writer, prompts, settings)
        if settings.top_p < 1.0:
            return y, sampled
        return y, writer.logprobs(y)


def _missing(place: Place, what: str, there: Mapping[str, object]) -> InterpreterError:
    names = ", ".join(f"`{name}`" for name in there) or "none"
    return InterpreterError(
        f"the recording has no {what} `{place.name}` in step {place.step} (it has {names}); "
        "give the value the name that it was recorded under"
    )
