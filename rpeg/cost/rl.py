"""A step of reinforcement learning: generate, score, update, and publish the weights.

On shared GPUs the phases follow one another; on separate pools a step of an asynchronous pipeline
takes as long as its slower side. What no phase accounts for (rewards, advantages, moving data,
waking and sleeping engines) is a share of the step: published tables of verl leave 2 to 7 %.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger
from rpeg.cost.generation import Engine, Requests, Serving, generation_time
from rpeg.cost.hardware import Machine
from rpeg.cost.plans import Plans
from rpeg.cost.publish import apart_s, gathered_bytes, weight_bytes
from rpeg.cost.training import Software, forward_time, step_time

REST, REST_SHARED = 0.05, 0.15
"""Share of a step besides its phases: on pools of their own, and where engine and trainer take
turns on the same GPUs, each emptying its memory for the other."""


@dataclass(frozen=True)
class Rollout:
    """What is generated in one step, over all replicas."""

    serving: Serving
    requests: Requests
    replicas: float
    refilled: bool = False
    """Whether a slot that ends goes to a prompt of the next step, so that none waits for the
    longest response: an asynchronous pipeline that hands over sample by sample."""

    def seconds(self, engine: Engine) -> Array:
        """Of the slowest replica, requests shared out evenly."""
        longest = self.requests.mean if self.refilled else self.requests.longest
        each = Requests(
            self.requests.number / self.replicas,
            self.requests.prompt,
            self.requests.mean,
            self.requests.square,
            longest,
        )
        return generation_time(self.serving, each, engine)


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
    publish = _publish(rollout, learning, apart)
    train = learning.passes * forward + learning.models * update + publish
    total = larger(generate, train) if apart else generate + train
    rest = REST if apart else REST_SHARED
    return RlStep(total / (1.0 - rest), generate, forward, update, publish)


def _publish(rollout: Rollout, learning: Learning, apart: bool) -> Array:
    """Seconds at least: gathered on the same GPUs, or sent between pools by every trainer."""
    serving, plans, machine = rollout.serving, learning.plans, learning.machine
    weights = np.asarray(weight_bytes(learning.shape))
    engine_parts = serving.tp * serving.pp
    if apart:
        copies = np.asarray(rollout.replicas)
        return apart_s(weights, engine_parts, plans.gpus, copies, machine)
    return gathered_bytes(weights, plans.tp * plans.pp, engine_parts) / machine.link.reached
