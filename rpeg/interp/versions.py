"""Which version of the weights writes each token: what a window allows, and who chooses in it.

A version counts finished steps: version v are the weights as step v started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from rpeg.interp.errors import InterpreterError
from rpeg.interp.values import Place, Weights
from rpeg.runtime.recordings.recording import Recording


@dataclass(frozen=True)
class Window:
    """The versions that a `generate` of step i may read, `actor@[i-high..i-low]`."""

    held: Sequence[Weights]
    """Every version up to this step's, by its number."""
    low: int
    high: int
    bound: str = "strict"
    overflow: str = "wait"
    old_spans: str = ""

    @property
    def newest(self) -> int:
        """The newest version; versions below 0 are version 0."""
        return max(0, len(self.held) - 1 - self.low)

    @property
    def oldest(self) -> int:
        """The oldest version that the bound allows."""
        return max(0, len(self.held) - 1 - self.high)

    def check(self, versions: Tensor, name: str) -> None:
        """Raises InterpreterError unless an oracle's `versions` [samples, tokens] are legal.

        None is newer than the window. Under `head` older ones come with samples that were admitted
        in time; under `strict` only with resumed ones. Only resumed samples change their version,
        and to newer ones.
        """
        resumed, changes = self.overflow == "resume", versions.diff(dim=1)
        oldest = 0 if self.bound == "head" or resumed else self.oldest
        if int(versions.min()) < oldest or int(versions.max()) > self.newest:
            raise InterpreterError(
                f"`{name}`: the oracle chose versions {int(versions.min())} to "
                f"{int(versions.max())}, the window allows {oldest} to {self.newest}"
            )
        if bool((changes < 0).any()) or (bool(changes.any()) and not resumed):
            raise InterpreterError(f"`{name}`: the oracle mixes versions, overflow={self.overflow}")

    def settled(self, versions: Tensor) -> Tensor:
        """The versions that tokens are sampled from: `regenerate` samples old spans anew."""
        return versions.clamp(min=self.oldest) if self.old_spans == "regenerate" else versions

    def trained(self, versions: Tensor, mask: Tensor, n: int) -> Tensor:
        """Which tokens of `mask` train: old spans do not (mask), nor do groups with one (drop)."""
        if self.old_spans not in ("mask", "drop"):
            return mask
        fresh = mask & (versions >= self.oldest)
        if self.old_spans == "mask":
            return fresh
        whole = (fresh == mask).view(-1, n * mask.shape[1]).all(dim=1)
        return mask & whole.repeat_interleave(n).unsqueeze(1)


class VersionOracle(Protocol):
    """Says which version each token is sampled from."""

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
        """[samples, tokens] int64 versions, legal as `Window.check` has it."""
        ...


class Oldest:
    """v = max(0, i - k) for every token: each sample is as old as it may be."""

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
        """The same everywhere."""
        return torch.full((samples, tokens), window.oldest)


class Recorded:
    """Those of a recording. Raises InterpreterError where it has no such trajectories."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
        """See `filled`: past a sample's end, and where a tool spoke, it does not matter."""
        steps = self._recording.steps
        found = steps[place.step].trajectories.get(place.name) if place.step < len(steps) else None
        if found is None or found.versions.shape != (samples, tokens):
            raise InterpreterError(
                f"the recording has no trajectories `{place.name}` of this size in step "
                f"{place.step}: replay the pipeline that was recorded"
            )
        return filled(found.versions)


def filled(versions: Tensor) -> Tensor:
    """[samples, tokens] int64: where no weights wrote, the version of the token before."""
    return versions.long().cummax(dim=1).values.clamp(min=0)
