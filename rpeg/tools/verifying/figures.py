"""What is compared of each model and of each of its heads.

A critic's head is a row of some hundred numbers beside a trunk of millions: in a mean over all
weights, or in one maximum with a policy's log-probs, its errors would go unseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from rpeg.interp import Gap, Head
from rpeg.interp.network import VALUE_HEAD
from rpeg.interp.parity import greatest, squared_gaps
from rpeg.runtime.recordings.recording import Recording

Tensors = Mapping[tuple[str, str], Tensor]
"""By (model, tensor)."""


@dataclass(frozen=True)
class Part:
    """A model's head, and how far it is from the recording."""

    model: str
    head: Head
    figures: Mapping[str, float]
    """By the names of `Parity`'s figures, as far as there is something to compare. A gradient's
    norm is of the whole model. Of the weights, a policy has all but the value head; a critic's
    figure is that of its trunk or of its head, whichever is greater."""


def parts(found: Sequence[Gap], a: Recording, b: Recording) -> tuple[Part, ...]:
    """Of all models that say or train something, in the order in which they first do.

    Raises InterpreterError if the recordings have not the same weights.
    """
    squares = squared_gaps(a, b)
    heads = _heads(found, a)
    return tuple(
        Part(model, head, dict(_figures(found, squares, model, head, heads)))
        for model, head in heads
    )


def _heads(found: Iterable[Gap], recorded: Recording) -> list[tuple[str, Head]]:
    said = [(gap.model, gap.head) for gap in found if gap.head is not None]
    silent: list[tuple[str, Head]] = [
        (model, "policy")
        for model in recorded.weights
        if model not in {speaker for speaker, _ in said}
    ]
    return list(dict.fromkeys([*said, *silent]))


def _figures(
    found: Sequence[Gap],
    squares: Tensors,
    model: str,
    head: Head,
    heads: Sequence[tuple[str, Head]],
) -> Iterator[tuple[str, float]]:
    own = [gap for gap in found if gap.model == model and gap.head in (head, None)]
    for kind in dict.fromkeys(gap.kind for gap in own):
        yield kind, greatest(own, kind)
    mine = {name: gap for (owner, name), gap in squares.items() if owner == model}
    trunk = [gap for name, gap in mine.items() if name != VALUE_HEAD]
    top = [gap for name, gap in mine.items() if name == VALUE_HEAD]
    alone = (model, "policy") not in heads
    groups = [trunk, top] if alone else [top if head == "value" else trunk]
    means = [_root_mean(group) for group in groups if group]
    if means:
        yield "weights", max(means)


def _root_mean(squares: Sequence[Tensor]) -> float:
    total, numbers = sum(float(s.sum()) for s in squares), sum(s.numel() for s in squares)
    return float((total / max(1, numbers)) ** 0.5)
