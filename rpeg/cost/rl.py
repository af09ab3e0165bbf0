"""A step of reinforcement learning: generate, score, update, and publish the weights.

On shared GPUs the phases follow one another. On separate pools a step takes as long as its slower
side, or longer: weights of k steps ago make a cycle of generating a batch, training on it and
publishing, which 1 + k steps take together. Engines load weights as from a checkpoint, tensor by
tensor, which the frameworks that published steps have in common. What no phase accounts for
(rewards, advantages, moving data, waking and sleeping engines) is a share of the step: published
tables of verl leave 2 to 7 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger
from rpeg.cost.generation import Engine, Requests, Serving, generation_time
from rpeg.cost.hardware import Machine
from rpeg.cost.plans import Plans
from rpeg.cost.publish import by_tensor_s
from rpeg.cost.training import Software, forward_time, step_time

REST, REST_SHARED = 0.05, 0.10
"""Share of a step besides its phases: on pools of their own, and where engine and trainer take
turns on the same GPUs, each emptying its memory for the other. Of steps of NeMo-RL v0.3 on shared
GPUs the phases leave 2 to 4 %, and its refit of dense models, which empties and wakes, takes 3 to
10 %."""


@dataclass(frozen=True)
class Rollout:
    """What is generated in one step, over all replicas."""

    serving: Serving
    requests: Requests
    replicas: float
    ahead: float = 1.0
    """Steps whose prompts are in flight at once: with weights of up to k steps ago, k. A slot that
    ends goes to a prompt of the next of them, so that a step waits for its share of the longest
    response."""

    @property
    def gpus(self) -> Array:
        """Of all replicas."""
        return self.serving.tp * self.serving.pp * self.replicas

    def seconds(self, engine: Engine) -> Array:
        """From the first prompt of a step to its longest response, requests shared out evenly."""
        each = replace(self.requests, number=self.requests.number / self.replicas)
        return generation_time(self.serving, each, engine)

    def refilled_s(self, engine: Engine) -> Array:
        """Of a step among those in flight, where slots never wait for the longest response."""
        number = self.requests.number * self.ahead / self.replicas
        each = replace(self.requests, number=number, longest=self.requests.mean)
        return generation_time(self.serving, each, engine) / self.ahead


@dataclass(frozen=True)
class Learning:
    """What is trained in one step: `updates` optimizer steps of `plans`, `passes` forward."""

    shape: Architecture
    machine: Machine
    plans: Plans
    """Of one optimizer step."""
    updates: float
    passes: float
    """Forward passes over all samples: log probabilities of policy, reference, values."""
    models: float = 1.0
    """How many are updated: two with a critic of the policy's size."""
    precision: str = "bf16"

    def update_s(self, software: Software) -> Array:
        """Seconds of all optimizer steps of one model."""
        one = step_time(self.shape, self.machine, self.plans, self.precision, software)
        return self.updates * one.total

    def forward_s(self, software: Software) -> Array:
        """Seconds of one forward pass over all samples."""
        one = forward_time(self.shape, self.machine, self.plans, self.precision, software)
        return self.updates * one


@dataclass(frozen=True)
class RlStep:
    """Seconds of one step and of its phases."""

    total: Array
    generate: Array
    forward: Array
    """Of one forward pass."""
    update: Array
    """Of one model."""
    publish: Array
    """From trainer to rollout engine."""


def rl_step(
    rollout: Rollout, learning: Learning, engine: Engine, software: Software, apart: bool
) -> RlStep:
    """`apart`: generation and training have GPUs of their own and overlap."""
    generate = rollout.seconds(engine)
    forward, update = learning.forward_s(software), learning.update_s(software)
    gpus = learning.plans.gpus + (rollout.gpus if apart else 0.0)
    publish = by_tensor_s(learning.shape, learning.machine, gpus)
    train = learning.passes * forward + learning.models * update + publish
    rest = REST if apart else REST_SHARED
    total = generate + train
    if apart:
        cycle = total / (1.0 + rollout.ahead)
        total = larger(larger(train, rollout.refilled_s(engine)), cycle)
    return RlStep(total / (1.0 - rest), generate, forward, update, publish)
