"""Time of one optimizer step: pipeline, data parallelism, optimizer.

1F1B over m micro-batches and p stages takes m slots of the slowest stage and (p-1)/v slots of
bubble, v chunks per rank (arXiv 2104.04473, section 2.2). Gradients are summed once per step, or
once per micro-batch with split weights (ZeRO-3), under cover of the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger, smaller
from rpeg.cost.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    BROADCAST,
    POINT_TO_POINT,
    REDUCE_SCATTER,
    Group,
    collective,
)
from rpeg.cost.hardware import Machine
from rpeg.cost.kernels import streamed, usual_width
from rpeg.cost.layers import FUSED, USUAL, Dispatcher, Host, Pricing, Work
from rpeg.cost.plans import FULL, SELECTIVE, Plans

STEP_S = 0.02
"""Of a step besides: norm of the gradients, launches of the optimizer, the next batch."""

ADAM_BYTES = 30.0
"""Moved for a weight: master, two moments and gradient in fp32, read; three written; bf16 out."""


@dataclass(frozen=True)
class Software:
    """What a generation of frameworks makes of the hardware: the two constants of an era, and how
    it launches layers.
    """

    slowdown: float = 1.0
    """Time of a step over what its kernels and exposed messages take."""
    attention: float | Array = 1.0
    """Share of the device's attention rate that its attention kernels reach."""
    host: Host = FUSED
    """How its layers are launched."""
    dispatcher: Dispatcher = USUAL
    """How its tokens get to their experts."""
    step_s: float = STEP_S
    """Host time of an optimizer step besides its layers."""
    layer_launches: float = 0.0
    """Of the optimizer, for each layer; on GPUs `step_s` holds them."""
    adam_bytes: float = ADAM_BYTES
    """That its optimizer moves for a weight."""
    gathers: float = 1.0
    """Messages in which ZeRO-3 moves a layer's weights: 1 where they lie in one stretch."""


EXPOSED = 0.3
"""Share of messages that computation could hide but doesn't."""


def exposed(machine: Machine) -> float:
    """The same; all where the processor that computes sends, too."""
    return 1.0 if machine.launches_itself else EXPOSED


@dataclass(frozen=True)
class StepTime:
    """Seconds of one optimizer step and what they consist of; the parts add up to `total`."""

    total: Array
    compute: Array
    recompute: Array
    tensor: Array
    context: Array
    expert: Array
    pipeline: Array
    """Bubble and messages between stages."""
    data: Array
    optimizer: Array


def step_time(
    shape: Architecture,
    machine: Machine,
    plans: Plans,
    precision: str = "bf16",
    software: Software | None = None,
) -> StepTime:
    """The time of a step of each plan; arrays of the plans' shape."""
    era = software or Software()
    pricing = Pricing(shape, machine, precision, plans, era.attention, era.host, era.dispatcher)
    stage, last = _stages(pricing)
    shown = exposed(machine)
    slowest = _slot(stage + last, plans, shown)
    layers = _slot(stage, plans, shown)
    sent = _between_stages(pricing) * shown
    bubble = (plans.pp - 1.0) / plans.vpp * (layers.total + sent)
    count = plans.micro_batches
    data = _data_parallel(pricing, slowest, era.gathers)
    optimizer = streamed(machine, era.adam_bytes * _updated(shape, plans), 10)
    parts = {
        "compute": count * slowest.compute,
        "recompute": count * slowest.recompute,
        "tensor": count * slowest.tensor + _ends(pricing),
        "context": count * slowest.context,
        "expert": count * slowest.expert,
        "pipeline": bubble + (count - float(machine.launches_itself)) * sent,
        "data": data + _agreed(pricing),
        "optimizer": optimizer + _host_s(shape, machine, plans, era),
    }
    scaled = {name: era.slowdown * part for name, part in parts.items()}
    return StepTime(total=sum(scaled.values(), start=np.zeros(())), **scaled)


def _host_s(shape: Architecture, machine: Machine, plans: Plans, era: Software) -> Array:
    """What the host takes for an optimizer step beside passes."""
    launches = era.layer_launches * shape.layers / plans.pp
    return np.asarray(era.step_s + plans.trained * launches * machine.launch_s)


def forward_time(
    shape: Architecture,
    machine: Machine,
    plans: Plans,
    precision: str = "bf16",
    software: Software | None = None,
) -> Array:
    """Seconds of a forward pass over the batch: log probabilities, values, scores."""
    era = software or Software()
    pricing = Pricing(shape, machine, precision, plans, era.attention, era.host, era.dispatcher)
    stage, last = _stages(pricing)
    work = stage + last
    shown = exposed(machine)
    slot = work.forward + work.tensor * shown + work.expert + work.context * shown
    return np.asarray(era.slowdown * (plans.micro_batches + plans.pp - 1.0) * slot)


def _stages(pricing: Pricing) -> tuple[Work, Work]:
    """Layers of one pipeline rank, and what the last rank has besides."""
    shape, plans = pricing.shape, pricing.plans
    layers = Work()
    if shape.state_space:
        for count, work in pricing.alone():
            layers += work.times(count)
        return layers.times(1.0 / plans.pp), pricing.head()
    if shape.plain_layers:
        layers += pricing.plain_layer().times(shape.plain_layers)
    if shape.mixture_layers:
        layers += pricing.mixture_layer().times(shape.mixture_layers)
    return layers.times(1.0 / plans.pp), pricing.head()


@dataclass(frozen=True)
class _Slot:
    """Seconds of one micro-batch on one stage, forward and backward."""

    forward: Array
    compute: Array
    recompute: Array
    tensor: Array
    context: Array
    expert: Array

    @property
    def total(self) -> Array:
        return self.compute + self.recompute + self.tensor + self.context + self.expert


def _slot(work: Work, plans: Plans, shown: float) -> _Slot:
    whole = np.where(plans.recompute == FULL, work.forward, 0.0)
    repeated = np.where(plans.recompute == SELECTIVE, work.core, whole)
    again = np.where(plans.recompute == FULL, 1.0, 0.0)
    hidden = smaller(work.context, work.cover)
    context = work.context - hidden * (1.0 - shown)
    return _Slot(
        forward=work.forward,
        compute=work.forward + work.data_gradient + plans.trained * work.weight_gradient,
        recompute=repeated,
        tensor=(2.0 + again) * work.tensor * shown,
        context=3.0 * context,
        expert=(2.0 + again) * work.expert,
    )


def _between_stages(pricing: Pricing) -> Array:
    """Activations forward and gradients back, over each boundary of a micro-batch."""
    plans, machine = pricing.plans, pricing.machine
    width = usual_width(machine)
    size = plans.tokens * pricing.shape.hidden * width / plans.sequence_split
    stride = plans.tp * plans.cp * plans.dp
    sent = collective(machine, POINT_TO_POINT, size, Group.of(machine, plans.pp, stride))
    return np.where(plans.pp > 1, 2.0 * plans.vpp * sent, 0.0)


def local_parameters(shape: Architecture, plans: Plans) -> tuple[Array, Array]:
    """Weights of a pipeline's end before ZeRO splits them: all but routed experts, and those.

    Each end holds a table of the vocabulary, also where both are tied.
    """
    table = float(shape.vocabulary * shape.hidden)
    ends = np.where(plans.pp > 1, table, float(shape.embedding_parameters))
    rest = shape.layer_parameters / plans.pp + ends
    return rest / plans.tp, shape.routed_parameters / (plans.ep * plans.etp * plans.pp)


def expert_replicas(plans: Plans) -> Array:
    """Ranks that hold the same routed experts."""
    return larger(plans.tp * plans.cp * plans.dp / (plans.ep * plans.etp), 1.0)


def _updated(shape: Architecture, plans: Plans) -> Array:
    """Weights that one rank's optimizer updates."""
    rest, routed = local_parameters(shape, plans)
    split = plans.zero >= 1
    updated: Array = rest / np.where(split, plans.shards, 1.0)
    updated = updated + routed / np.where(split, smaller(plans.shard, expert_replicas(plans)), 1.0)
    return plans.trained * updated


def _data_parallel(pricing: Pricing, slot: _Slot, gathers: float) -> Array:
    """What data parallelism adds beyond the computation that covers it."""
    plans = pricing.plans
    gathered, scattered = _weights_moved(pricing, gathers)
    if pricing.machine.launches_itself:
        again = np.where(plans.zero >= 3, plans.micro_batches * (2.0 * gathered + scattered), 0.0)
        # An all-reduce where each rank keeps all of the optimizer; gloo's reduce-scatter is one.
        once = scattered + np.where(plans.zero >= 1, gathered, 0.0)
        return np.where(plans.zero >= 3, again, plans.trained * once)
    back = slot.total - slot.forward
    once = _uncovered(gathered, slot.forward) + _uncovered(scattered, back)
    each = _uncovered(gathered, slot.forward) + _uncovered(gathered + scattered, back)
    return np.where(plans.zero >= 3, plans.micro_batches * each, plans.trained * once)


NUMBER_BYTES = 8.0
"""Of a small message: one or two numbers."""

DATA_SUMS = 3.0
"""Small all-reduces of an optimizer step among replicas: rows and tokens of each minibatch, and
tokens that were trained on.
"""


def _ends(pricing: Pricing) -> Array:
    """Messages of tensor parallelism besides layers', where those of cores are told one by one: an
    embedding's, the gradient's of what goes into the head, and two sums over the vocabulary.
    """
    plans, machine = pricing.plans, pricing.machine
    if not machine.launches_itself:
        return np.zeros(())
    group = Group.of(machine, plans.tp)
    width = usual_width(machine)
    hidden = collective(machine, ALL_REDUCE, plans.tokens * pricing.shape.hidden * width, group)
    sums = collective(machine, ALL_REDUCE, plans.tokens * width, group)
    gradients = collective(machine, ALL_REDUCE, NUMBER_BYTES, group)
    return np.asarray(plans.micro_batches * 2.0 * (hidden + sums) + gradients)


def _agreed(pricing: Pricing) -> Array:
    """Small messages of an optimizer step between cores: counts, the norm of gradients, shapes of
    what goes between pipeline stages, and the gradient of a table that both ends hold.
    """
    plans, machine, shape = pricing.plans, pricing.machine, pricing.shape
    if not machine.launches_itself:
        return np.zeros(())

    def small(operation: str, group: Group, size: float = NUMBER_BYTES) -> Array:
        return collective(machine, operation, size, group)

    stages = Group.of(machine, plans.pp, plans.tp * plans.cp * plans.dp)
    replicas = Group.of(machine, plans.dp * plans.cp, plans.tp)
    table = float(shape.vocabulary * shape.hidden) * usual_width(machine) if shape.tied else 0.0
    crossings = plans.micro_batches + plans.pp - 2.0
    shapes = 2.0 * crossings * small(POINT_TO_POINT, stages)
    ends = small(BROADCAST, stages) + small(ALL_REDUCE, stages, table)
    parts = np.where(plans.zero >= 1, plans.gpus, plans.tp * plans.pp)
    norm = small(ALL_REDUCE, Group.of(machine, parts))
    return np.asarray(DATA_SUMS * small(ALL_REDUCE, replicas) + shapes + ends + norm)


def _uncovered(sent: Array, cover: Array) -> Array:
    return larger(sent - cover, 0.0) + EXPOSED * smaller(sent, cover)


def _weights_moved(pricing: Pricing, gathers: float) -> tuple[Array, Array]:
    """Seconds to gather a rank's weights and to scatter its gradients, in the usual precision.

    ZeRO-3 needs them layer by layer, in `gathers` messages each, which all have their latency.
    """
    plans, machine = pricing.plans, pricing.machine
    width = usual_width(machine)
    pieces = np.where(plans.zero >= 3, pricing.shape.layers / plans.pp * gathers, 1.0)
    rest, routed = local_parameters(pricing.shape, plans)
    copies = smaller(plans.shard, expert_replicas(plans))
    dense = Group.of(machine, plans.shards, plans.tp)
    sparse = Group.of(machine, copies, plans.ep * plans.etp)

    def moved(operation: str) -> Array:
        one = collective(machine, operation, rest / pieces * width, dense)
        experts = collective(machine, operation, routed / pieces * width, sparse)
        nothing = machine.launches_itself and not pricing.shape.experts
        return np.asarray(pieces * (one + (0.0 if nothing else experts)))

    return moved(ALL_GATHER), moved(REDUCE_SCATTER) + _summed_over_copies(pricing, rest)


def _summed_over_copies(pricing: Pricing, rest: Array) -> Array:
    """Seconds to sum a shard's gradients over the ranks that hold a copy of it (HSDP)."""
    plans = pricing.plans
    copies = plans.dp * plans.cp / plans.shards
    group = Group.of(pricing.machine, copies, plans.tp * plans.shards)
    pieces = pricing.shape.layers / plans.pp
    size = rest / plans.shards / pieces * usual_width(pricing.machine)
    each = collective(pricing.machine, ALL_REDUCE, size, group)
    return np.where(copies > 1, pieces * each, 0.0)
