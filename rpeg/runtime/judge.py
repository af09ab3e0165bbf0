"""A generative reward model: a language model that is asked what a response is worth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rpeg.runtime.engine.embedded import EmbeddedEngine
from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.engine.weights import LatestWeights
from rpeg.runtime.groups import Groups
from rpeg.runtime.models.saved import SavedModel
from rpeg.runtime.trainer import InitialWeights, open_weights
from rpeg.runtime.trajectories import Prompts, Trajectories
from rpeg.runtime.verifiers.answers import filled, last_number

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


class Judge:
    """Fills a template with prompt and response, answers greedily, and takes the last number of its
    answer for the reward.

    An answer without a number is worth 0 and counts in `verifier/<name>/failed`; the first of a run
    is noted. Its weights are whole on every process.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        source: str | InitialWeights,
        template: str,
        max_tokens: int,
        dtype: str,
        groups: Groups,
    ) -> None:
        self.name = name
        self._run = run
        self._template = template
        self._settings = Sampling(1, max_tokens, 0.0, 1.0, (), run.seed, seed=0)
        self._dtype = dtype
        held = open_weights(run, name, source)
        model = SavedModel(
            title=source if isinstance(source, str) else f"{source.model.name}@0",
            name=name,
            source=held,
            read=lambda: ((n, held.read(n)) for n, _ in held.shape.tensors()),
        )
        self._engine = EmbeddedEngine(run, model, groups=groups)
        weights = LatestWeights(run, model)
        weights.publish(model)
        self._engine.swap_weights(weights)

    def score(self, y: Trajectories) -> Tensor:
        """[samples] float32: the reward of each response. Collective where several processes hold
        the same samples.
        """
        with self._run.clock.stage(f"score_{self.name}"):
            return torch.tensor(self._run.oracle.rewards(self, y), dtype=torch.float32)

    def ask(self, y: Trajectories) -> list[float]:
        """The rewards from the judge itself. Collective, like `score`."""
        pairs = zip(y.rows, y.texts, strict=True)
        asked = tuple(replace(row, prompt=filled(self._template, row, text)) for row, text in pairs)
        said, _ = self._engine.sample(Prompts(asked, y.ordinals), self._settings, self._dtype)
        rewards = [last_number(text) for text in said.texts]
        silent = [text for text, r in zip(said.texts, rewards, strict=True) if r is None]
        if silent:
            self._run.note(f"judge {self.name}", f"an answer without a number: {silent[0]!r}")
        self._run.log(f"verifier/{self.name}/failed", len(silent), how="sum")
        return self._run.share_with_replicas([0.0 if r is None else r for r in rewards])
