"""Wall seconds that this process has spent inside models: the rest of a step is overhead.

Spans stand round an engine's forward pass, Megatron-Core's forward and backward pass, and the
optimizer's step, and round nothing else. A forward pass goes from tokens to log-probs: what is
drawn, packed, weighed and written is outside. On a GPU spans hold what the host waits for, no more.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, Literal

Part = Literal["engine", "forward", "backward", "optimizer"]

_spent: Counter[Part] = Counter()


class model_span:
    """Counts the body. A test lists what it may stand round."""

    def __init__(self, part: Part) -> None:
        self._part = part

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        _add(self._part, self._begin)


def model_seconds() -> float:
    """Of all spans that have ended."""
    return sum(_spent.values())


def _add(part: Part, begin: float) -> None:
    _spent[part] += time.perf_counter() - begin  # type: ignore[assignment]


class MegatronTimers:
    """What Megatron-Core's schedules take for their timers: counts backward passes."""

    def __call__(self, name: str, **_: Any) -> _Timer:
        return _BACKWARD if name == "backward-compute" else _OTHER


class _Timer:
    """Something that is not counted."""

    def start(self, **_: Any) -> None: ...

    def stop(self, **_: Any) -> None: ...


class _Backward(_Timer):
    def __init__(self) -> None:
        self._begin = 0.0

    def start(self, **_: Any) -> None:
        self._begin = time.perf_counter()

    def stop(self, **_: Any) -> None:
        _add("backward", self._begin)


_BACKWARD, _OTHER = _Backward(), _Timer()
