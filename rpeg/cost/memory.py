"""Peak memory of one GPU in training, and what makes it.

Weights and optimizer follow Megatron's table: bf16 weights and fp32 gradients on every rank, fp32
master and two moments split over data parallelism by the distributed optimizer (ZeRO-1); ZeRO-3
splits all of it. Activations count what the backward pass of each kernel reads (arXiv 2205.05198,
section 4, redone for grouped queries, gated MLPs and fused attention). A pipeline's first rank
holds the activations of p + (p-1)/v micro-batches, of p without chunks; its last rank holds those
of one, and the logits. The busier of both counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger, smaller
from rpeg.cost.kernels import BF16_BYTES
from rpeg.cost.plans import FULL, SELECTIVE, Plans
from rpeg.cost.training import expert_replicas, local_parameters

WORKSPACE_BYTES = 1.06e8
"""What matmul libraries keep: a deterministic run of Megatron holds it beyond its tensors."""


@dataclass(frozen=True)
class Keeping:
    """What a training framework keeps for each element."""

    weight: float = 2.0
    gradient: float = 4.0
    optimizer: float = 12.0
    """Of a weight: fp32 copy and two moments."""
    matmul_input: float = 2.0
    """Of an element that a matmul reads; fp8 keeps what it has cast."""
    logit: float = 6.0
    """Bytes of a logit at the peak: bf16 and fp32."""
    chunk: float = np.inf
    """Tokens whose logits are held at once."""
    routed: float = 4.0
    """Of a token sent to an expert and an element of the hidden state: its copies, in and out."""
    offloaded: bool = False
    """Whether the inputs of recomputed layers wait in the host's memory."""
    fused_attention: bool = True
    """False where the matrix of scores is kept: 2 bytes per head and pair of tokens, 5 with
    dropout's mask and output."""
    dropout: bool = False
    """Whether masks of a byte per element are kept."""
    selected: float = 1.0
    """Share of a layer's activations that selective recomputation keeps, beside scores."""
    whole_in_pipeline: bool = False
    """Whether a pipeline of ZeRO-3 gathers its weights once a step, and sums whole gradients."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one GPU; the parts add up to `total`."""

    total: Array
    weights: Array
    gradients: Array
    optimizer: Array
    activations: Array
    logits: Array
    workspace: Array

    @property
    def states(self) -> Array:
        """What stays between steps."""
        return self.weights + self.gradients + self.optimizer + self.workspace


def training_memory(shape: Architecture, plans: Plans, keeping: Keeping | None = None) -> Memory:
    """The peak of the busier end of the pipeline, without what the runtime reserves."""
    first = first_rank(shape, plans, keeping)
    last = last_rank(shape, plans, keeping)
    later = last.total > first.total
    names = Memory.__dataclass_fields__
    return Memory(*(np.where(later, getattr(last, n), getattr(first, n)) for n in names))


def first_rank(shape: Architecture, plans: Plans, keeping: Keeping | None = None) -> Memory:
    """The rank that waits longest for its backward passes; alone, it has the logits too."""
    return _rank(shape, plans, keeping or Keeping(), held_first(plans), plans.pp == 1)


def last_rank(shape: Architecture, plans: Plans, keeping: Keeping | None = None) -> Memory:
    """The rank with head and loss, which is the one that Megatron logs."""
    return _rank(shape, plans, keeping or Keeping(), held_last(plans), plans.pp >= 1)


def held_first(plans: Plans) -> Array:
    """Micro-batches whose activations the first rank holds at once."""
    interleaved = plans.pp + (plans.pp - 1.0) / plans.vpp
    held = np.where(plans.vpp > 1, interleaved, plans.pp)
    return smaller(held, plans.micro_batches)


def held_last(plans: Plans) -> Array:
    """The same of the last rank: one, or the chunks it warms up with."""
    chunks = (plans.vpp - 1.0) * plans.pp + 1.0
    return smaller(chunks / plans.vpp, plans.micro_batches)


def _rank(
    shape: Architecture, plans: Plans, keeping: Keeping, held: Array, has_head: NDArray[np.bool_]
) -> Memory:
    rest, routed = local_parameters(shape, plans)
    copies, replicas = plans.shards, smaller(plans.shard, expert_replicas(plans))

    def split(stage: int) -> Array:
        over = plans.zero >= stage
        mine: Array = rest / np.where(over, copies, 1.0)
        mine += routed / np.where(over, replicas, 1.0)
        return mine

    layers, tables = _gathered(shape, plans)
    held_whole = keeping.whole_in_pipeline & (plans.pp > 1) & (plans.zero >= 3)
    whole = np.where(held_whole, rest + routed, 0.0)
    layers = np.where(held_whole, 0.0, layers)
    logits = shape.vocabulary / plans.tp * smaller(plans.tokens, keeping.chunk) * keeping.logit
    weights = keeping.weight * (split(3) + layers) + BF16_BYTES * (tables + whole)
    parts = {
        "weights": weights,
        "gradients": keeping.gradient * plans.trained * (split(2) + tables + whole),
        "optimizer": keeping.optimizer * plans.trained * split(1),
        "activations": activations(shape, plans, keeping, held),
        "logits": np.where(has_head, logits, 0.0),
        "workspace": np.full_like(plans.tp, WORKSPACE_BYTES),
    }
    return Memory(total=sum(parts.values(), start=np.zeros(())), **parts)


def _gathered(shape: Architecture, plans: Plans) -> tuple[Array, Array]:
    """Weights that ZeRO-3 holds whole: two layers, and the tables of the vocabulary throughout."""
    whole = (plans.zero >= 3) & (plans.dp * plans.cp > 1)
    layers = np.where(whole, 2.0 * largest_layer(shape) / plans.tp, 0.0)
    return layers, np.where(whole, shape.embedding_parameters / plans.tp, 0.0)


def largest_layer(shape: Architecture) -> float:
    """Weights of the largest layer: what ZeRO-3 gathers at a time."""
    experts = shape.experts
    mixture = experts.number * shape.expert_weights + shape.shared_weights if experts else 0
    return shape.attention_weights + max(mixture, shape.plain_mlp_weights)


def activations(shape: Architecture, plans: Plans, keeping: Keeping, held: Array) -> Array:
    """Bytes of one rank's layers for `held` micro-batches.

    With FULL it is their inputs, and one layer with the gradients of all that it keeps.
    """
    attention = _attention(shape, plans, keeping)
    plain = attention + _mlp(shape, plans, keeping, shape.ffn)
    layers, largest = shape.plain_layers * plain, plain
    if shape.state_space:
        return _hybrid(shape, plans, keeping, held)
    if shape.experts:
        mixture = attention + _mixture(shape, plans, keeping)
        layers = layers + shape.mixture_layers * mixture
        largest = larger(plain, mixture)
    inputs = 2.0 * shape.hidden / plans.sequence_split * shape.layers
    waiting = 0.0 if keeping.offloaded else inputs
    full = plans.recompute == FULL
    selective = np.where(plans.recompute == SELECTIVE, keeping.selected, 1.0)
    each: Array = np.where(full, waiting, selective * layers) / plans.pp
    kept: Array = each * held + np.where(full, 2.0 * largest, 0.0)
    return plans.tokens * kept


def _hybrid(shape: Architecture, plans: Plans, keeping: Keeping, held: Array) -> Array:
    """The same where a layer is one block."""
    hybrid = shape.state_space
    assert hybrid is not None
    states = (
        _around(shape, plans, keeping) + 2.0 * (hybrid.projected + 4.0 * hybrid.inner) / plans.tp
    )
    attention, mlp = _attention(shape, plans, keeping), _mlp(shape, plans, keeping, shape.ffn)
    mixture = _mixture(shape, plans, keeping) if shape.experts else np.zeros(())
    layers = hybrid.layers * states + hybrid.attention * attention + hybrid.mlps * mlp
    layers = layers + shape.mixture_layers * mixture
    inputs = 2.0 * shape.hidden / plans.sequence_split * shape.layers
    full = plans.recompute == FULL
    largest = larger(larger(states, attention), larger(mlp, mixture))
    each: Array = np.where(full, 0.0 if keeping.offloaded else inputs, layers) / plans.pp
    kept: Array = each * held + np.where(full, 2.0 * largest, 0.0)
    return plans.tokens * kept


def _around(shape: Architecture, plans: Plans, keeping: Keeping) -> Array:
    """Bytes per token outside a block's matmuls: residual, norm, and the mask of dropout."""
    each = 4.0 + keeping.matmul_input + (1.0 if keeping.dropout else 0.0)
    return each * shape.hidden / plans.sequence_split


def _attention(shape: Architecture, plans: Plans, keeping: Keeping) -> Array:
    """Bytes per token of one layer's attention: queries, keys, values, output, and the core."""
    heads = 4.0 * shape.query_width + 2.0 * shape.kv_width
    pair = 5.0 if keeping.dropout else 2.0
    scores = np.where(plans.recompute == SELECTIVE, 0.0, pair * shape.heads * plans.seq)
    core = 4.0 * shape.heads if keeping.fused_attention else scores
    return _around(shape, plans, keeping) + (heads + core) / plans.tp


def _mlp(shape: Architecture, plans: Plans, keeping: Keeping, ffn: float) -> Array:
    """Bytes per token of an MLP: what each matrix reads or writes, at its inner width."""
    inner = 2.0 * (shape.mlp_matrices - 1) + keeping.matmul_input
    return _around(shape, plans, keeping) + inner * ffn / plans.tp


def _mixture(shape: Architecture, plans: Plans, keeping: Keeping) -> Array:
    """Bytes per token of a mixture: routed tokens are kept once sent, and within their expert."""
    experts = shape.experts
    assert experts is not None
    each = keeping.routed * shape.sent_width + 2.0 * shape.mlp_matrices * experts.ffn
    routed = experts.per_token * each * plans.imbalance / plans.tp
    return _mlp(shape, plans, keeping, experts.shared_ffn) + routed
