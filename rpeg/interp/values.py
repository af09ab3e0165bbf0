"""What the values of a step are while it runs: immutable, so that older versions stay readable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rpeg.interp.lora import Lora, is_adapter
from rpeg.interp.network import Network, Outputs, Tensors
from rpeg.interp.optimizer import AdamW
from rpeg.interp.rectangle import Rectangle
from rpeg.runtime.data import DemoData, PairData, PromptData
from rpeg.runtime.trajectories import Batch


@dataclass(frozen=True)
class Place:
    """Which value of which step is asked for."""

    step: int
    name: str
    """Its name in the text: `y`, `acc`; inside of a collect with its round, `y/0`."""


@dataclass(frozen=True)
class Model:
    """A declared model: what all versions of its weights have in common."""

    name: str
    role: str
    network: Network
    optim: AdamW | None
    lora: Lora | None = None

    def effective(self, tensors: Tensors) -> Tensors:
        """The weights that it computes with: the base with its adapters, if it has some."""
        return tensors if self.lora is None else self.lora.merged(tensors)

    def trainable(self, tensors: Tensors) -> dict[str, Tensor]:
        """What an optimizer changes: the adapters, or everything."""
        adapters = self.lora is not None
        return {name: t for name, t in tensors.items() if is_adapter(name) or not adapters}

    def outputs(self, tensors: Tensors, rows: Rectangle) -> Outputs:
        """What it says about completions under the given weights."""
        reads = {
            "policy": self.network.policy,
            "value": self.network.critic,
            "actor_critic": self.network.actor_critic,
            "reward": self.network.reward,
            "process_reward": self.network.process_reward,
        }
        return reads[self.role](self.effective(tensors), rows)


@dataclass(frozen=True)
class Weights:
    """One version of a model's weights."""

    model: Model
    tensors: Tensors
    version: int
    """Finished updates: 0 = initial weights."""


@dataclass(frozen=True)
class OptimizerState:
    """Moments of a model's optimizer, in torch's form; empty before the first step."""

    moments: Mapping[str, Any]


@dataclass(frozen=True)
class Cursor:
    """A data set at a position: rows that it has given."""

    data: PromptData | DemoData | PairData
    position: int


@dataclass(frozen=True)
class OnPolicy:
    """Stands for the log-probs that the update itself computes, detached."""


@dataclass(frozen=True)
class LossTerm:
    """One summand of a loss."""

    name: str
    """Of its operation."""
    batch: Batch
    per_token: Callable[[Outputs, Tensor], Tensor]
    """(what the model says about some rows, these rows [k]) -> loss [k, tokens], zero outside the
    mask; of pairs [k / 2]."""
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    """Of all rows: what it trains towards, by the names in `recording.TARGETS`."""
