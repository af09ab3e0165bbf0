"""Where a run's completions and rewards come from, and who watches it train.

A live run samples and asks its verifiers, and nobody watches it train. `replay` substitutes a
recording for both, and watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from rpeg.runtime.interfaces import AskedEngine, Named, Scorer, WeightReader, WeightSource
from rpeg.runtime.trajectories import Prompts, Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.batches.examples import Examples
    from rpeg.runtime.engine.sampling import Sampling
    from rpeg.runtime.groups import Groups
    from rpeg.runtime.terms import Lesson, Said


class WatchedTrainer(Named, WeightSource, Protocol):
    """A trainer, as its oracle watches it."""

    @property
    def groups(self) -> Groups:
        """The processes that hold it."""
        ...


class AwaitedWeights(Named, WeightReader, Protocol):
    """Weights of another pool, as an oracle sees them."""

    def wait_for_last(self) -> None:
        """Chooses the version that the last step made, and waits for it."""
        ...


class Oracle:
    """The oracle of a live run."""

    live = True
    """Whether what is trained is to be used, and kept at the end."""

    def completions(
        self, engine: AskedEngine, prompts: Prompts, settings: Sampling, dtype: str
    ) -> tuple[Trajectories, Tensor]:
        """What `engine.generate` answers."""
        return engine.sample(prompts, settings, dtype)

    def rewards(self, verifier: Scorer, y: Trajectories) -> list[float]:
        """What `verifier.score` answers."""
        return verifier.ask(y)

    def receives(self, weights: AwaitedWeights) -> None:
        """Sees weights of another pool that an engine of this one samples from."""

    def refuse_order(self, name: str) -> None:
        """Raises ReplayFailure where batches of trajectories can't be the first groups that end."""

    def computed(self, model: Named, said: Said, found: Tensor) -> None:
        """Sees log-probs, or values or scores, [samples, max_tokens] computed apart from updates; a
        reward model's are [samples, 1].
        """

    def trained(self, model: WatchedTrainer, examples: Examples, lesson: Lesson) -> None:
        """Sees a micro-batch of an optimizer step."""

    def stepped(self, model: WatchedTrainer, grad_norm: float) -> None:
        """Sees the end of an optimizer step: the gradient's global norm before clipping."""

    def end_step(self) -> None:
        """Sees the end of a step of the pipeline. Collective."""

    def finish(self) -> None:
        """Sees the end of the run. Collective over the pool, and over the pools."""
