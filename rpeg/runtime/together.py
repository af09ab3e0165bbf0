"""Forward passes of several models over the same trajectories, from one packing of the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

from rpeg.runtime.batches.examples import Examples, ModelInputs
from rpeg.runtime.groups import device
from rpeg.runtime.trainer import ANSWERS, Model
from rpeg.runtime.trajectories import Pairs, Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.terms import Said


@dataclass(frozen=True)
class SharedExamples(Examples):
    """Examples whose micro-batches are packed once and stay on the device until the last model has
    read them: about 60 bytes per token.
    """

    _made: dict[tuple[tuple[int, ...], int], ModelInputs] = field(default_factory=dict)

    @staticmethod
    def of_batch(y: Trajectories | Pairs, model: Model) -> SharedExamples:
        """Those of `Examples.of`."""
        found = Examples.of(model.here(y), model.tokenizer)
        return SharedExamples(
            found.prompt_ids, found.tokens, found.mask, found.temperature, found.together
        )

    def inputs(self, rows: Sequence[int], multiple: int = 1) -> ModelInputs:
        """See `Examples.inputs`; the same object for the same rows."""
        key = (tuple(rows), multiple)
        if key not in self._made:
            self._made[key] = super().inputs(rows, multiple).to(device())
        return self._made[key]


def forward(
    y: Trajectories | Pairs, /, *models: Model, asked: Sequence[Said] | None = None
) -> tuple[Tensor, ...]:
    """For each model [samples, max_tokens], what its `logprob(y)` gives, or a critic's `values(y)`:
    the same numbers.

    `asked` says which, where a model could give either; one that is named twice runs once.
    Collective over the processes of each model, in order.
    """
    examples = SharedExamples.of_batch(y, models[0])
    wanted = asked if asked is not None else [_only(model) for model in models]
    of_model: dict[Model, list[Said]] = {}
    for model, what in zip(models, wanted, strict=True):
        of_model.setdefault(model, []).append(what)
    found = {model: iter(model.answers(examples, *each)) for model, each in of_model.items()}
    return tuple(next(found[model]) for model in models)


def _only(model: Model) -> Said:
    """What a model with one head says."""
    return "logprob" if "logprob" in ANSWERS[model.role] else "values"
