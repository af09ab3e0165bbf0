"""Work of one layer and one micro-batch on one GPU: kernels of each pass, bytes sent.

Matmuls are priced at the shape a rank holds after tensor, context and expert parallelism, so that
splitting too finely costs what it costs. Attention's core is one fused kernel, causal, whose
backward pass takes 2.5 times the FLOPs (arXiv 2205.14135). Everything else streams: norms,
residuals, rotary positions, activations, casts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

import numpy as np

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger
from rpeg.cost.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    POINT_TO_POINT,
    Group,
    collective,
    dispatch,
)
from rpeg.cost.hardware import Machine
from rpeg.cost.kernels import BF16_BYTES, matmul, streamed, usual_width
from rpeg.cost.plans import Plans

ATTENTION_BACKWARD = 2.5

MAIN_GRADIENT_BYTES = 8.0
"""A micro-batch adds to fp32 gradients: reads and writes four bytes a weight."""


@dataclass(frozen=True)
class Host:
    """What the host starts for one layer, forward and backward, in launches of one kernel from
    Python: the GPU waits for them; on cores, which compute too, they come on top.
    """

    plain: float = 80.0
    mixture: float = 600.0
    """With fused routing and permutation, and one kernel for all experts."""
    expert: float = 0.0
    """In each pass over each expert on the rank, where they run one after another."""
    streams: float = 1.0
    """Bytes that pass through memory outside of products, over those of fused kernels."""
    ends: float = 0.0
    """The same before and behind layers, forward, in hidden states of a token."""


FUSED = Host()

CAPTURED = Host(mixture=250.0)
"""Routing in CUDA graphs and dispatch by the GPUs: nobody waits for the counts of tokens."""

EAGER = Host(mixture=1300.0)
"""Routing kernel by kernel; the host reads the counts before it can launch the experts."""

LOOPED = Host(mixture=1300.0, expert=8.0)
"""The same with a loop over the experts."""

FALLBACK = Host(mixture=1300.0, expert=15.0)
"""The same where PyTorch has no grouped kernel for the device: it slices, multiplies and copies for
each of an expert's three matrices (pytorch/pytorch#161407), five launches each."""

ADAPTED = Host(mixture=1300.0, expert=55.0)
"""The same with adapters: two small products more for each, twice as many in the backward pass."""

MEASURED = Host(plain=950.0, mixture=1800.0, expert=8.0, streams=3.8, ends=3.8)
"""RPEG's own modules, whose every linear is Megatron-Core's. An operation of an update counts for
1.9 launches of a decode step: on cores, an update of 10 tokens took so much for each. A test counts
operations, and what passes through memory.
"""


@dataclass(frozen=True)
class Dispatcher:
    """How tokens get to their experts and back."""

    permuted: float = 8.0
    """Bytes moved on a GPU for each element sent: into the order of the ranks, and back."""
    by_expert: float = 0.0
    """The same where a rank that receives has several experts: into their order, and back."""
    once: bool = False
    """A token goes once to a GPU, however many of its experts are there."""
    exposed: float = 1.0
    """Share of its messages that nothing hides."""


USUAL = Dispatcher()

ALL_TO_ALLS = Dispatcher(by_expert=8.0)
"""A copy for every expert, in an all-to-all of NCCL."""

DEEP_EP = Dispatcher(once=True)
"""Kernels that send a token once, and take it apart where it arrives (DeepEP)."""

HYBRID_EP = Dispatcher(permuted=0.0, once=True)
"""The same, permuting as they send (HybridEP)."""

SCORE_BYTES = 4.5
"""Moved for a score where attention isn't fused: written, scaled and masked, softmax, read."""

LOSS_BYTES = 12.0
"""Bytes moved for a logit in the forward pass: fp32 copy, maximum, exponentials, sum."""

STATE_BYTES, STATE_KERNELS = 36.0, 8
"""Of a layer with a state, for each element of its inner width: convolution, scan, gate and norm
write and read it; and how many kernels that takes."""

SCAN_SHARE = 0.25
"""Of the rate of fused attention, what the scan's small products reach: tiles of 64 by 64, in four
kernels with the states of chunks written and read between them."""

ROUTING_KERNELS = 16
"""Small kernels of a router and a dispatcher: scores, top-k, histogram, permutation, padding."""

ZERO = np.zeros(())


def nothing() -> Array:
    """No time."""
    return ZERO


@dataclass(frozen=True)
class Work:
    """Seconds on one GPU, of one micro-batch."""

    forward: Array = field(default_factory=nothing)
    core: Array = field(default_factory=nothing)
    """Of `forward`, the core of attention: what selective recomputation repeats."""
    cover: Array = field(default_factory=nothing)
    """What hides the exchange of keys and values: the core, and the GPU waiting for the host."""
    data_gradient: Array = field(default_factory=nothing)
    weight_gradient: Array = field(default_factory=nothing)
    tensor: Array = field(default_factory=nothing)
    """Collectives of tensor parallelism in the forward pass; the backward pass has as many."""
    context: Array = field(default_factory=nothing)
    """Exchange of keys and values in the forward pass; the backward pass has twice as much."""
    expert: Array = field(default_factory=nothing)
    """Dispatch and combine of experts in the forward pass; the backward pass has as many."""

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Work)))

    def times(self, factor: Array | float) -> Work:
        """So many of it."""
        return Work(*(getattr(self, f.name) * factor for f in fields(Work)))


@dataclass(frozen=True)
class Pricing:
    """What layers are priced for. Each method gives the work of one micro-batch."""

    shape: Architecture
    machine: Machine
    precision: str
    """Of matmul inputs: "bf16", "fp8" or "fp4"."""
    plans: Plans
    attention: float | Array = 1.0
    """Share of the device's attention rate that the software's kernel reaches."""
    host: Host = FUSED
    dispatcher: Dispatcher = USUAL

    def plain_layer(self) -> Work:
        """Attention and an MLP."""
        work = self.mixer() + self.mlp(self.shape.ffn) + self._tensor_exchange(2)
        return self._launched(work, self.host.plain)

    def mixture_layer(self) -> Work:
        """Attention, shared experts and routed experts."""
        work = self.mixer() + self.mixture() + self._tensor_exchange(1)
        return self._launched(work, self.host.mixture)

    def alone(self) -> tuple[tuple[int, Work], ...]:
        """Layers of a model with state spaces, by how many: each is one block."""
        shape, plain = self.shape, self.host.plain / 2.0
        hybrid = shape.state_space
        assert hybrid is not None
        sent = self._tensor_exchange(1)
        kinds = [
            (hybrid.layers, self._launched(self.states() + sent, plain)),
            (hybrid.attention, self._launched(self.mixer() + sent, plain)),
            (hybrid.mlps, self._launched(self.mlp(shape.ffn) + sent, plain)),
        ]
        if shape.experts:
            kinds.append((shape.mixture_layers, self._launched(self.mixture(), self.host.mixture)))
        return tuple(kinds)

    def states(self) -> Work:
        """A layer with a state of fixed size: projections, convolution, scan by chunks, gate."""
        shape, plans, hybrid = self.shape, self.plans, self.shape.state_space
        assert hybrid is not None
        work = self._dense(plans.tokens, shape.hidden, hybrid.projected / plans.tp)
        work += self._dense(plans.tokens, hybrid.inner / plans.tp, shape.hidden)
        flops = plans.tokens * hybrid.flops / plans.tp
        scan = np.asarray(flops / (SCAN_SHARE * self.machine.attention_rate))
        kept = STATE_BYTES * hybrid.inner + 4.0 * hybrid.state_bytes / hybrid.chunk
        moved = 10.0 * shape.hidden / plans.sequence_split + kept / plans.tp
        work += Work(forward=scan, data_gradient=ATTENTION_BACKWARD * scan)
        return work + self._stream(plans.tokens * moved, STATE_KERNELS)

    def mixture(self) -> Work:
        """Shared experts and routed ones."""
        experts = self.shape.experts
        assert experts is not None
        shared = self.mlp(experts.shared_ffn) if experts.shared_ffn else Work()
        if experts.latent:
            shared += self._dense(self.plans.tokens, self.shape.hidden, 2.0 * experts.latent)
        return shared + self.routed()

    def mixer(self) -> Work:
        """Attention: projections, the core, norm, residual and rotary positions; the ring of cp."""
        shape, plans = self.shape, self.plans
        work = Work()
        for k, n, split in shape.projections:
            rows, columns = self._split(k, n, split)
            work += self._dense(plans.tokens, rows, columns)
        hidden = 10.0 * shape.hidden / plans.sequence_split
        rotary = 4.0 * (shape.query_width + shape.kv_width) / plans.tp
        return work + self._core() + self._stream(plans.tokens * (hidden + rotary), 4)

    def mlp(self, ffn: int) -> Work:
        """A plain MLP of inner width `ffn`, with norm and residual."""
        shape, plans = self.shape, self.plans
        inner = ffn / plans.tp
        up = inner * (shape.mlp_matrices - 1)
        work = self._dense(plans.tokens, shape.hidden, up)
        work += self._dense(plans.tokens, inner, shape.hidden)
        moved = 10.0 * shape.hidden / plans.sequence_split + 2.0 * (up + inner)
        return work + self._stream(plans.tokens * moved, 3)

    def routed(self) -> Work:
        """Router, dispatch, grouped matmuls of the local experts, combine."""
        shape, plans = self.shape, self.plans
        experts = shape.experts
        assert experts is not None
        sent = plans.tokens / plans.tp * experts.per_token * plans.imbalance
        local = experts.number / plans.ep
        inner = experts.ffn / plans.etp
        rows = sent * plans.etp / local
        up = inner * (shape.mlp_matrices - 1)
        width = shape.sent_width
        grouped = self._dense(rows, width, up) + self._dense(rows, inner, width)
        several = self.dispatcher.by_expert * ((local > 1.0) & (plans.ep > 1.0))
        permuted = (self.dispatcher.permuted + several) * width
        moved = permuted + 2.0 * (up + inner) * plans.etp
        routing = self._stream(sent * moved, ROUTING_KERNELS)
        looped = local * self.host.expert * self.machine.launch_s
        experts_work = _at_least(_grouped(grouped, local, self.machine), looped)
        return experts_work + routing + self._exchange(sent)

    def head(self) -> Work:
        """Logits and cross entropy over a vocabulary that tensor parallelism splits."""
        shape, plans = self.shape, self.plans
        columns = shape.vocabulary / plans.tp
        moved = columns * LOSS_BYTES + BF16_BYTES * self.host.ends * shape.hidden
        softmax = self._stream(plans.tokens * moved, 6)
        return self._in_bf16()._dense(plans.tokens, shape.hidden, columns) + softmax

    def _in_bf16(self) -> Pricing:
        """Heads are multiplied in bf16 whatever the layers use."""
        return replace(self, precision="bf16")

    def _split(self, k: int, n: int, split: bool) -> tuple[Array | float, Array | float]:
        """A projection's shape on one rank: the side that isn't the hidden state is split."""
        if not split:
            return k, n
        return (k, n / self.plans.tp) if n != self.shape.hidden else (k / self.plans.tp, n)

    def _core(self) -> Work:
        """Softmax(QK)V: 2·s² multiplications of width q for each sequence, causally halved."""
        plans = self.plans
        pairs = plans.tokens * plans.seq * self.shape.attended_share(plans.seq)
        flops = 2.0 * pairs * self.shape.score_width / plans.tp
        forward = flops / (self.machine.attention_rate * self.attention) + self.machine.kernel_s
        heads = plans.attended * self.shape.heads / plans.tp
        forward = forward + heads * self.machine.attend_s
        if self.shape.sinks:
            scores = SCORE_BYTES * self.shape.heads * plans.seq / plans.tp
            forward = forward + plans.tokens * scores / self.machine.memory_rate
        sent = (plans.cp - 1.0) * plans.tokens * self.shape.kv_width / plans.tp
        ring = sent * usual_width(self.machine)
        group = Group.of(self.machine, plans.cp, plans.tp)
        exchange = collective(self.machine, POINT_TO_POINT, ring, group)
        return Work(
            forward=forward,
            core=forward,
            cover=forward,
            data_gradient=ATTENTION_BACKWARD * forward,
            context=np.where(plans.cp > 1, exchange, 0.0),
        )

    def _tensor_exchange(self, blocks: int) -> Work:
        """All-gather and reduce-scatter (or one all-reduce) around each block."""
        plans = self.plans
        size = plans.tokens * self.shape.hidden * usual_width(self.machine)
        group = Group.of(self.machine, plans.tp)
        split = 2.0 * collective(self.machine, ALL_GATHER, size, group)
        whole = collective(self.machine, ALL_REDUCE, size, group)
        return Work(tensor=blocks * np.where(plans.sp > 0, split, whole))

    def _exchange(self, sent: Array) -> Work:
        """Two all-to-alls; within an expert's tensor parallelism, gather and scatter too."""
        plans = self.plans
        size = sent * self.shape.sent_width * usual_width(self.machine)
        across = Group.of(self.machine, plans.ep, plans.etp)
        copies = self.shape.experts.per_token if self.shape.experts else 1
        once, exposed = self.dispatcher.once, self.dispatcher.exposed
        work = 2.0 * exposed * dispatch(self.machine, size, across, copies, once)
        within = Group.of(self.machine, plans.etp)
        gathered = collective(self.machine, ALL_GATHER, size * plans.etp, within)
        return Work(expert=work + 2.0 * gathered)

    def _dense(self, m: Array | float, k: Array | float, n: Array | float) -> Work:
        """A matmul with weights, in its three passes; fp8 casts its input row- and column-wise."""
        accumulated = k * n * MAIN_GRADIENT_BYTES / self.machine.memory_rate
        product = matmul(self.machine, self.precision, m, k, n)
        narrow = self.precision != "bf16"
        cast = 4.0 * m * k / self.machine.memory_rate if narrow else ZERO
        cast_back = 4.0 * m * n / self.machine.memory_rate if narrow else ZERO
        return Work(
            forward=product + cast,
            data_gradient=matmul(self.machine, self.precision, m, n, k) + cast_back,
            weight_gradient=larger(matmul(self.machine, self.precision, k, m, n), accumulated),
        )

    def _launched(self, work: Work, launches: float) -> Work:
        """At least the time that the host takes to launch the layer's kernels, in each pass."""
        each = np.asarray(launches * self.machine.launch_s / 3.0)
        if self.machine.launches_itself:
            return work + Work(forward=each, data_gradient=each, weight_gradient=each)
        waiting = larger(each - work.forward, 0.0)
        return replace(_at_least(work, each), cover=work.cover + waiting)

    def _stream(self, moved: Array | float, kernels: float) -> Work:
        """Memory-bound kernels, twice as much in the backward pass; bytes as fused kernels move in
        bf16.
        """
        wide = usual_width(self.machine) / BF16_BYTES
        forward = streamed(self.machine, moved * self.host.streams * wide, kernels)
        return Work(forward=forward, data_gradient=2.0 * forward)


def _at_least(work: Work, least: Array | float) -> Work:
    """The work where each pass takes so many seconds or more."""
    return replace(
        work,
        forward=larger(work.forward, least),
        data_gradient=larger(work.data_gradient, least),
        weight_gradient=larger(work.weight_gradient, least),
    )


def _grouped(one: Work, local: Array, machine: Machine) -> Work:
    """`local` experts in one launch: their work, with the head and tail of one kernel."""
    saved = (local - 1.0) * 2.0 * machine.kernel_s
    return Work(
        forward=one.forward * local - saved,
        data_gradient=one.data_gradient * local - saved,
        weight_gradient=one.weight_gradient * local - saved,
    )
