"""When a rewrite keeps the meaning: conditions as data.

One table serves three readers: the rewrite, which leaves alone what breaks a condition; the refusal
of a rewrite that was asked for, which lists every broken one at its place; and the pass's page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.ir import Operation

Reason = tuple[Operation, str]
"""Where a condition is broken, and how."""


@dataclass(frozen=True)
class Condition:
    """One condition of a rewrite."""

    name: str
    """Two or three words, unique within a pass."""
    sentence: str
    """What must hold, for the page of the pass."""
    broken: Callable[[Any], Iterable[Reason]]
    """The candidate, in whatever form the pass has it -> each place that breaks the condition."""


Legality = tuple[Condition, ...]


def reasons(legality: Sequence[Condition], candidate: object) -> Iterator[Reason]:
    """Everything that forbids the rewrite of a candidate, condition by condition."""
    for condition in legality:
        yield from condition.broken(candidate)


def legal(legality: Sequence[Condition], candidate: object) -> bool:
    """Whether a candidate meets every condition. Later ones are not asked after a broken one."""
    return next(reasons(legality, candidate), None) is None
