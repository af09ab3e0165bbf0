"""Which version of a window a run samples from: RPEG_VERSIONS.

`newest` and `oldest` are rules. The path of a run's `metrics.jsonl` stands for what that run chose,
step by step: a free run is made again from its log, bit by bit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rpeg.rundir.versions import refuse_versions
from rpeg.runtime.errors import ReplayFailure, RuntimeFailure
from rpeg.runtime.logs.metrics import Line, read_metrics
from rpeg.runtime.pools.admission import Choice
from rpeg.runtime.recordings.recording import Recording


@dataclass(frozen=True)
class Choices:
    """The setting of a run."""

    rule: Literal["newest", "oldest", "recorded"]
    lines: tuple[Line, ...] = ()
    """Of the run whose choices are made again."""
    path: str = ""

    @staticmethod
    def read(*, several: bool) -> Choices:
        """What RPEG_VERSIONS says; by default the newest with several pools, the oldest with one.

        Raises RuntimeFailure if it is neither a rule nor a log of a run of several pools.
        """
        text = os.environ.get("RPEG_VERSIONS", "newest" if several else "oldest")
        if text in ("newest", "oldest"):
            return Choices("newest" if text == "newest" else "oldest")
        if not several:
            raise RuntimeFailure(f"RPEG_VERSIONS must be newest or oldest, not `{text}`")
        refuse_versions(os.environ)
        return Choices("recorded", tuple(read_metrics(Path(text))), text)

    @staticmethod
    def recorded_in(recording: Recording, path: str) -> Choices:
        """Those that wrote a recording's samples. Raises ReplayFailure if the samples of a step are
        of several versions of a model.
        """
        return Choices("recorded", tuple(_lines(recording)), path)

    def of(self, model: str) -> Choice:
        """The choice for a model's weights. Raises RuntimeFailure if the log has none of them."""
        if self.rule != "recorded":
            return self.rule
        name = f"version/{model}"
        found = {
            _number(line["step"]) - 1: _number(line[name]) for line in self.lines if name in line
        }
        if not found:
            raise RuntimeFailure(f"{self.path} has no `{name}`: it belongs to another pipeline")
        return Recorded(found, self.path)

    def renewals(self, model: str) -> Mapping[Call, int]:
        """By call of `ReceivedWeights.renew`: the version that it chose."""
        found: dict[Call, int] = {}
        for line in self.lines:
            for name in line:
                if (match := _RENEWAL.fullmatch(name)) and match["model"] == model:
                    call = _number(line["step"]) - 1, int(match["share"]), _number(line[name])
                    found[call] = _number(line[f"{match['place']}/version"])
        return found


def _lines(recording: Recording) -> Iterator[Line]:
    """What the log of a run that chose as a recording did would say of its choices."""
    for i, step in enumerate(recording.steps):
        by_model: dict[str, set[int]] = {}
        for name, y in step.trajectories.items():
            versions = set(y.versions[y.mask].tolist())
            by_model.setdefault(step.makers.get(name, ""), set()).update(versions)
        several = next((model for model, found in by_model.items() if len(found) > 1), None)
        if several is not None:
            raise ReplayFailure(
                f"step {i + 1} of the recording has samples of several versions of `{several}`, "
                "which an engine can't hold at once: set RPEG_VERSIONS=oldest to say which it holds"
            )
        chosen = {f"version/{model}": v for model, found in by_model.items() for v in found}
        yield {"step": i + 1, **chosen}


Call = tuple[int, int, int]
"""(step, data-parallel share, how many calls there were before it in this step)."""

_RENEWAL = re.compile(r"(?P<place>renewal/(?P<model>[^/]+)/(?P<share>\d+)/\d+)/token")


def renewal(model: str, share: int, number: int, what: Literal["token", "version"]) -> str:
    """The metric that tells of renewal `number` of a step: before which token (`Call`), or to which
    version.
    """
    return f"renewal/{model}/{share}/{number}/{what}"


def _number(value: float | str | None) -> int:
    assert isinstance(value, int | float), "steps and versions are numbers"
    return int(value)


class Recorded(dict[int, int]):
    """Step -> the version that wrote its batch."""

    def __init__(self, versions: dict[int, int], path: str) -> None:
        super().__init__(versions)
        self._path = path

    def __missing__(self, step: int) -> int:
        raise RuntimeFailure(f"{self._path} says nothing of step {step + 1}: run only its steps")
