"""The five parts that a generated program is made of, as interfaces.

A synchronous program and an asynchronous one differ in the implementations behind these, never in
the signatures: weights versions are carried per token, and process groups are handed in, never
global.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from torch import Tensor

from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.terms import LossTerm
from rpeg.runtime.trajectories import Prompts, Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.engine.sampling import Sampling

NamedTensors = Iterator[tuple[str, Tensor]]
"""Whole (unsharded) weights under their Hugging Face names."""

T = TypeVar("T")


class Clock(Protocol):
    """One time line for everything that a process reports."""

    def now(self) -> float:
        """Seconds since the run's start (monotonic within a process)."""
        ...

    def stage(self, name: str) -> AbstractContextManager[None]:
        """Times the body as stage `name` of the current step."""
        ...


class Answers(Protocol):
    """Where completions and rewards come from: made now, or recorded earlier."""

    def completions(
        self, engine: AskedEngine, prompts: Prompts, settings: Sampling, dtype: str
    ) -> tuple[Trajectories, Tensor]:
        """Those of the prompts, and log-probs [samples, max_tokens] of their tokens."""
        ...

    def rewards(self, verifier: Scorer, y: Trajectories) -> list[float]:
        """One per sample."""
        ...


class Host(Protocol):
    """What data sets and verifiers ask of the run around them."""

    @property
    def root(self) -> Path:
        """The folder against which relative sources resolve."""
        ...

    @property
    def clock(self) -> Clock:
        """The run's time line."""
        ...

    @property
    def oracle(self) -> Answers:
        """Where its completions and rewards come from."""
        ...

    @property
    def data_parallel(self) -> tuple[int, int]:
        """(index, width): which share of every batch this process holds."""
        ...

    @property
    def leads_shard(self) -> bool:
        """Whether this process is the first of those that hold its share."""
        ...

    def attach(self, name: str, part: Any) -> None:
        """Makes `part` belong to every checkpoint."""
        ...

    def log(
        self,
        name: str,
        value: float,
        weight: float = 1.0,
        how: Literal["mean", "max", "min", "sum"] = "mean",
    ) -> None:
        """Adds to a metric of this step."""
        ...

    def note(self, topic: str, text: str) -> None:
        """Has process 0 print `note: topic: text` after this step, the first of each topic only."""
        ...

    def share_with_replicas(self, value: T) -> T:
        """The value of the process that leads this one's share. Collective."""
        ...


class SeededHost(Host, Protocol):
    """What an engine asks of the run around it."""

    @property
    def seed(self) -> int:
        """The seed of every draw."""
        ...

    def watch(self, register: Digested) -> None:
        """Has each step's metrics tell the digest of the weights that `register` holds."""
        ...


class Named(Protocol):
    """Something that a pipeline declares."""

    @property
    def name(self) -> str:
        """What the pipeline calls it."""
        ...


class Sampled(Named, Protocol):
    """A model as its engine sees it."""

    @property
    def shape(self) -> ModelShape:
        """Its architecture."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        ...


class WeightSource(Protocol):
    """A model whose weights can be published."""

    @property
    def version(self) -> int:
        """Finished steps: 0 = initial weights."""
        ...

    def named_tensors(self) -> NamedTensors:
        """The current weights, whole, under Hugging Face names, in tensors that no later step
        changes. Collective over the model's groups.
        """
        ...


class Digested(Protocol):
    """Weights whose digest belongs to a step's metrics."""

    @property
    def checksum(self) -> str:
        """Digest over names, places and bits of the weights, however they are spread."""
        ...


class WeightReader(Digested, Protocol):
    """Where an engine takes weights from."""

    @property
    def version(self) -> int:
        """Version of the weights to be read: finished steps, 0 = initial."""
        ...

    def read(self) -> NamedTensors:
        """The weights. Raises WeightMismatch if they came from elsewhere and aren't what was
        published.
        """
        ...


class RenewedWeights(WeightReader, Protocol):
    """Weights that may be replaced while samples are in flight."""

    def renew(self) -> bool:
        """Whether a newer version was there, which is the one to be read now."""
        ...


class WeightRegister(WeightReader, Protocol):
    """The newest published weights of one model: a latest-value register, not a queue."""

    def publish(self, source: WeightSource) -> None:
        """Takes over the trainer's weights and version. Collective over the trainer's groups."""
        ...


class Engine(Protocol):
    """Generates from the weights it was last given."""

    @property
    def version(self) -> int:
        """Version of the weights in use."""
        ...

    def generate(
        self,
        prompts: Prompts,
        *,
        n: int,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        max_turns: int = 1,
        stop: tuple[str, ...] = (),
        dtype: str = "fp32",
        routing: str = "free",
        seed: int = 0,
    ) -> tuple[Trajectories, Tensor]:
        """n completions for each prompt, and the log-probs [samples, max_tokens] they were sampled
        under.
        """
        ...

    def swap_weights(self, register: WeightReader) -> None:
        """Takes the register's weights."""
        ...

    def reset_prefix_cache(self) -> None:
        """Forgets every cached key and value: they belong to the weights before the swap."""
        ...


class AskedEngine(Named, Engine, Protocol):
    """An engine, as seen by the oracle that asks it for answers."""

    def sample(
        self, prompts: Prompts, settings: Sampling, dtype: str
    ) -> tuple[Trajectories, Tensor]:
        """New completions, and the log-probs [samples, max_tokens] they were sampled under."""
        ...

    def logprobs(self, y: Trajectories, settings: Sampling, dtype: str) -> Tensor:
        """[samples, max_tokens] log-probs of given completions under the weights in use."""
        ...


class Scorer(Named, Protocol):
    """A verifier or a judge, as seen by the oracle that asks it for rewards."""

    def ask(self, y: Trajectories) -> list[float]:
        """Its rewards, one per sample."""
        ...


class Trainer(WeightSource, Protocol):
    """A trained model and its optimizer."""

    def logprob(self, y: Trajectories) -> Tensor:
        """[samples, max_tokens] log-probs of y's tokens under the current weights, zero outside the
        mask.
        """
        ...

    def update(
        self,
        *losses: LossTerm,
        agg: str | tuple[str, int],
        epochs: int = 1,
        minibatches: int = 1,
        shuffle: bool = True,
        routing: str = "free",
        seed: int = 0,
    ) -> None:
        """epochs x minibatches optimizer steps on the sum of the losses."""
        ...


class Buffer(Protocol):
    """Trajectories between an engine and a trainer: bounded, in order."""

    def put(self, y: Trajectories, *fields: Tensor) -> None:
        """Adds the next batch."""
        ...

    def take(self, *, step: int) -> tuple[Trajectories, *tuple[Tensor, ...]]:
        """The next batch, for update `step`. Raises StalenessExceeded if a trained token is older
        than allowed.
        """
        ...
