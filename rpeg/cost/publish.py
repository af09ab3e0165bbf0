"""Moving weights from trainers to rollout engines: bytes, and the time they take at least.

With trainer and engine on the same GPUs a rank of t·p parts gathers its group (HybridFlow,
arXiv 2409.19256, table 2). Apart, the receivers' cards bound it, or the senders' where several
copies leave them. From host memory, buckets pass one host link after another.

Weights go in buckets: one is packed and one unpacked while another travels, so that what nothing
hides is the packing of the first and the unpacking of the last, and the start of each.
"""

from __future__ import annotations

import numpy as np

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger
from rpeg.cost.hardware import Machine


def weight_bytes(shape: Architecture, width: float = 2.0) -> float:
    """All weights at `width` bytes each."""
    return width * shape.parameters


def gathered_bytes(weights: Array, parts: Array, engine_parts: Array) -> Array:
    """Bytes that a GPU receives to go from `parts` shards to `engine_parts`, on the same GPUs.

    Nothing where the engine splits at least as finely.
    """
    more = larger(parts - engine_parts, 0.0)
    return weights * more / (engine_parts * parts)


def apart_s(
    weights: Array, engine_parts: Array, senders: Array, copies: Array, machine: Machine
) -> Array:
    """Seconds between separate pools: receivers take a shard each, senders give every copy."""
    received = weights / engine_parts / machine.nic.reached
    sent = weights * copies / senders / machine.nic.reached
    return larger(received, sent)


def buckets(weights: float, bucket: float) -> float:
    """How many messages carry so many bytes."""
    return float(np.ceil(weights / bucket))


def pack_s(weights: float, bucket: float, machine: Machine) -> float:
    """Seconds in which the first bucket is packed and the last unpacked, read and written."""
    return 4.0 * min(bucket, weights) / machine.memory_rate


def start_s(weights: float, bucket: float, latency_s: float, machine: Machine) -> float:
    """Seconds that the starts of all buckets take: two kernels and one message each."""
    return buckets(weights, bucket) * (2.0 * machine.kernel_s + latency_s)


def from_host_s(weights: float, machine: Machine) -> float:
    """Seconds from pinned host memory to all engines: every byte passes one host link, then fans
    out while the next bucket is read.
    """
    return weights / machine.host_bytes_per_s


TENSOR_S = 0.55e-3
"""Host time to gather, rename and load one weight of a checkpoint: NeMo-RL v0.3 takes 12 s for the
18.6 thousand of Qwen3-30B-A3B; verl's docs/advance/fully_async has 16 s for them."""


def by_tensor_s(shape: Architecture, machine: Machine, gpus: Array) -> Array:
    """Seconds in which each of so many GPUs sees all weights, one tensor of a checkpoint after
    another: through its card, unless one link domain holds all of them.
    """
    domain = gpus <= machine.link.gpus
    rate = np.where(domain, machine.link.reached, machine.nic.reached)
    return weight_bytes(shape) / rate + TENSOR_S * shape.tensors
