"""Time of generation: prefill, decode steps, continuous batching.

A decode step of n sequences reads the weights once and each sequence's cache: the larger of FLOPs
and bytes, kernel by kernel, plus two all-reduces per layer and the scheduler's own time. Experts
read: E·(1 - (1 - k/E)^n), for n tokens under uniform routing. Under continuous batching a sequence
is met with probability in proportion to its length, so the running ones have on average the
context P + E[l²] / (2·E[l]). How many run is bounded by requests, by the scheduler's limit and by
the memory that weights leave for the cache.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from rpeg.cost.architecture import Architecture
from rpeg.cost.arrays import Array, larger, smaller
from rpeg.cost.collectives import ALL_REDUCE, Group, collective, dispatch
from rpeg.cost.hardware import Machine
from rpeg.cost.kernels import BF16_BYTES, WIDTHS

KERNELS_A_LAYER, KERNELS_A_MIXTURE = 8.0, 24.0
"""Kernels of a decode step in each layer, and more of them where experts are chosen."""

STREAMED_BYTES = 24.0
"""Bytes moved for a token, layer and element of the hidden state, outside matmuls."""

EAGER_LAYER = 80.0
"""Operations of a layer in a decode step that Python starts one by one, views included."""

EAGER_STEP = 80.0
"""Of a step besides: noise, sampling, what is kept of it."""

EAGER_ELEMENTS = 61.0
"""Read and written for a token, layer and element of the hidden state, where nothing is fused."""

LEFT = 1.0 - ((np.arange(24) + 0.5) / 24) ** 3
STRETCHES = np.diff((np.arange(25) / 24) ** 3)
"""Shares of the longest response that are left, and the stretch that each is for: closer at its
start, where most sequences end if few are long."""

ACCEPTED = 0.85
"""Of the tokens that a model's own extra layer proposes, those that the model agrees with
(DeepSeek-V3, arXiv 2412.19437, section 5.4.3: 85 to 90 %)."""

ENGINE_BYTES = 1.5e9
"""Of a GPU: context, graphs, activations of a step."""


@dataclass(frozen=True)
class Engine:
    """How an inference engine runs. Seconds, shares, bytes."""

    slowdown: float = 1.0
    sequence_s: float | Array = 2e-6
    """Host time that a step takes for each running sequence: scheduling, sampling, output."""
    step_s: float | Array = 0.5e-3
    """Host time of a step that doesn't depend on them."""
    utilization: float = 0.95
    """Of a GPU's memory that weights, cache and the engine take together."""
    most_sequences: float = 2048.0
    reserves: bool = False
    """Whether a sequence is admitted only where the cache of its longest response fits."""
    graph_kernel_s: float = 2e-6
    """Head and tail of a kernel within a CUDA graph."""
    drafted: float = 0.0
    """Tokens that a step proposes for each sequence beside the next one (speculative decoding)."""
    layer_launches: float = 0.0
    """Operations that the host starts for each layer of a step which is captured in no graph."""
    step_launches: float = 0.0
    """And for each step: sampling, noise, what is kept."""
    streamed_elements: float = 0.0
    """Moved for a token, layer and element of the hidden state in a decode step; graphs of fused
    kernels move next to nothing beside weights and cache."""

    @property
    def tokens_a_step(self) -> float:
        """That a sequence gets from a step: a proposed one counts where all before it do."""
        return float((1.0 - ACCEPTED ** (self.drafted + 1.0)) / (1.0 - ACCEPTED))


def eager(engine: Engine) -> Engine:
    """The engine with steps that Python starts operation by operation, nothing fused."""
    return replace(
        engine,
        layer_launches=EAGER_LAYER,
        step_launches=EAGER_STEP,
        streamed_elements=EAGER_ELEMENTS,
    )


@dataclass(frozen=True)
class Serving:
    """A model on the GPUs of one replica."""

    shape: Architecture
    machine: Machine
    tp: Array
    pp: Array
    precision: str = "bf16"
    """Of weights."""
    cache_bytes: float = BF16_BYTES
    """Of an element of the cache."""
    attention_dp: bool = False
    """Whether each GPU attends for sequences of its own, with all of attention's weights; only
    routed experts are split over tp."""

    @classmethod
    def of(
        cls,
        shape: Architecture,
        machine: Machine,
        tp: ArrayLike = 1,
        pp: ArrayLike = 1,
        precision: str = "bf16",
        cache_bytes: float = BF16_BYTES,
        attention_dp: bool = False,
    ) -> Serving:
        """From plain numbers or arrays."""
        degrees = np.broadcast_arrays(np.asarray(tp, np.float64), np.asarray(pp, np.float64))
        return cls(shape, machine, degrees[0], degrees[1], precision, cache_bytes, attention_dp)

    @property
    def width(self) -> float:
        """Bytes of a weight; a precision the device lacks is stored in its usual one."""
        return WIDTHS[
            self.precision if self.precision in self.machine.flops else self.machine.usual
        ]

    @property
    def cached(self) -> Array:
        """Bytes of cache for one token on one GPU; heads are copied beyond one per rank."""
        whole = self.shape.cached_bytes(self.cache_bytes) / self.pp
        if self.attention_dp:
            return whole / self.tp
        heads = 1.0 if self.shape.latent else float(self.shape.kv_heads)
        return whole / smaller(self.tp, heads)

    @property
    def states(self) -> Array:
        """Bytes of a sequence's states on one GPU, which a step reads and writes."""
        hybrid = self.shape.state_space
        held = hybrid.layers * hybrid.state_bytes if hybrid else 0.0
        return held / (self.tp * self.pp)

    @property
    def _latent_flops(self) -> Array:
        """FLOPs for a token of the cache: each head multiplies the whole latent, twice."""
        latent = self.shape.latent
        if latent is None:
            return np.zeros_like(self.tp)
        each = 2.0 * (2.0 * latent.kv_rank + latent.rope_width)
        return each * self.shape.heads * self.shape.attention_layers / self.tp

    @property
    def weights(self) -> Array:
        """Bytes of weights on one GPU."""
        if not self.attention_dp:
            return self.width * self.shape.parameters / (self.tp * self.pp)
        routed = self.shape.routed_parameters
        return self.width * (self.shape.parameters - routed + routed / self.tp) / self.pp

    def room(self, engine: Engine) -> Array:
        """Tokens whose cache fits beside the weights."""
        usable = engine.utilization * self.machine.memory_bytes
        return larger(usable - self.weights - ENGINE_BYTES, 0.0) / self.cached

    def step(self, running: ArrayLike, context: ArrayLike, engine: Engine) -> Array:
        """Seconds of one decode step of `running` sequences with `context` tokens each."""
        n, past = np.asarray(running, np.float64), np.asarray(context, np.float64)
        tokens = n * (1.0 + engine.drafted)
        flops = 2.0 * self.shape.multiplied * tokens / self.machine.matmul_rate(self.precision)
        bytes_read = self.width * self._weights_read(tokens) / self.machine.memory_rate
        weights = larger(flops / self.tp, bytes_read)
        weights = weights + 2.0 * n * self.states / self.machine.memory_rate
        attended = self.shape.attended(past)
        cache = n * attended * self.cached * self.pp / self.machine.memory_rate
        cache = larger(cache, n * attended * self._latent_flops / self.machine.attention_rate)
        kernels = KERNELS_A_LAYER * self.shape.blocks / 2.0
        kernels += KERNELS_A_MIXTURE * self.shape.mixture_layers
        sent = tokens * self.shape.hidden * BF16_BYTES
        host = engine.step_s + engine.sequence_s * n + self.launches(engine)
        launches = kernels * engine.graph_kernel_s
        small = self._small_kernels(n, engine)
        return weights + cache + small + launches + self._reductions(sent) + host

    def launches(self, engine: Engine) -> float:
        """Host seconds of what is started one by one in a step, or in a pass over prompts."""
        started = engine.layer_launches * self.shape.layers + engine.step_launches
        return started * self.machine.launch_s

    def _small_kernels(self, tokens: Array, engine: Engine) -> Array:
        """Seconds of what an engine without fused kernels does between its matmuls: it streams
        activations, and attends by two small products for each token and head of the cache.
        """
        if not engine.streamed_elements:
            return np.zeros_like(tokens)
        each = engine.streamed_elements * WIDTHS[self.machine.usual] * self.shape.hidden
        heads = 1.0 if self.shape.latent else float(self.shape.kv_heads)
        products = 2.0 * heads * self.machine.product_s
        layer = tokens * (each / self.machine.memory_rate + products)
        return self.shape.layers * layer / self.tp

    def prefill(self, tokens: ArrayLike, length: ArrayLike) -> Array:
        """Seconds to read prompts of `length` tokens, `tokens` in all; only the last has logits."""
        count, each = np.asarray(tokens, np.float64), np.asarray(length, np.float64)
        inner = self.shape.multiplied - self.shape.vocabulary * self.shape.hidden
        dense = 2.0 * inner * count / self.machine.matmul_rate(self.precision)
        core = 2.0 * self.shape.attention_layers * self.shape.score_width * count * each
        core = core * self.shape.attended_share(each)
        read = self.width * self._weights_read(count) / self.machine.memory_rate
        moved = STREAMED_BYTES * self.shape.layers * self.shape.hidden * count
        work = core / self.machine.attention_rate + moved / self.machine.memory_rate
        sent = count * self.shape.hidden * BF16_BYTES
        return larger(dense / self.tp, read) + work / self.tp + self._reductions(sent)

    def _weights_read(self, tokens: Array) -> Array:
        """Weights on one GPU that a step of so many tokens touches."""
        shape = self.shape
        whole = shape.layer_parameters + shape.vocabulary * shape.hidden
        rest = whole / np.where(self.attention_dp, 1.0, self.tp)
        if shape.experts is None:
            return rest + np.zeros_like(tokens)
        met = 1.0 - (1.0 - shape.experts.per_token / shape.experts.number) ** tokens
        return np.asarray(rest + shape.routed_parameters * met / self.tp)

    def _reductions(self, size: Array) -> Array:
        """An all-reduce a block; with attention of each GPU's own, tokens go to experts and
        back.
        """
        group = Group.of(self.machine, self.tp)
        if self.attention_dp:
            copies = float(self.shape.experts.per_token) if self.shape.experts else 1.0
            sent = dispatch(self.machine, size / self.tp * copies, group, copies)
            return 2.0 * self.shape.mixture_layers * sent
        one = collective(self.machine, ALL_REDUCE, size, group)
        return self.shape.blocks * one


@dataclass(frozen=True)
class Requests:
    """What is generated: how many, and the moments of prompt and response lengths."""

    number: Array
    prompt: Array
    mean: Array
    square: Array
    """Mean of squared response lengths; mean² where all are equal."""
    longest: Array

    @classmethod
    def of(
        cls,
        number: ArrayLike,
        prompt: ArrayLike,
        mean: ArrayLike,
        square: ArrayLike | None = None,
        longest: ArrayLike | None = None,
    ) -> Requests:
        """From numbers or arrays; equal lengths unless told otherwise."""
        one = np.asarray(mean, np.float64)
        given = (
            *(number, prompt, one),
            *(one**2 if square is None else square, one if longest is None else longest),
        )
        return cls(*np.broadcast_arrays(*(np.asarray(value, np.float64) for value in given)))

    @property
    def context(self) -> Array:
        """Tokens before the next one of a running sequence, on average."""
        return self.prompt + self.square / (2.0 * self.mean)


def concurrency(serving: Serving, requests: Requests, engine: Engine) -> Array:
    """Sequences that run at once, at least one."""
    each = requests.prompt + requests.longest if engine.reserves else requests.context
    held = serving.shape.attended(each) + serving.states / serving.cached
    fitting = serving.room(engine) / held
    slots = engine.most_sequences * np.where(serving.attention_dp, serving.tp, 1.0)
    most = smaller(smaller(fitting, slots), requests.number)
    return larger(most, 1.0)


@dataclass(frozen=True)
class ServingMemory:
    """Bytes of one GPU that generates; the parts add up to `total`."""

    total: Array
    weights: Array
    cache: Array
    engine: Array


def serving_memory(serving: Serving, requests: Requests, engine: Engine) -> ServingMemory:
    """What one GPU holds while as many sequences run as fit, one at least."""
    held = serving.shape.attended(requests.context)
    cache = concurrency(serving, requests, engine) * held * serving.cached
    weights, rest = serving.weights, np.full_like(cache, ENGINE_BYTES)
    return ServingMemory(weights + cache + rest, weights, cache, rest)


def generation_time(serving: Serving, requests: Requests, engine: Engine) -> Array:
    """Seconds to answer all requests on one replica, refilling as sequences end.

    Steps number at least the longest response. Where full slots would take fewer, sequences end
    one by one: 1 - t/longest to the power that conserves tokens of them run after t steps, one at
    least. Pipeline stages work on as many groups of sequences.
    """
    running = concurrency(serving, requests, engine)
    full = requests.number * requests.mean / running
    steps = larger(full, requests.longest)
    power = steps / full - 1.0
    rank = np.broadcast(power, engine.step_s, engine.sequence_s).ndim
    shares = LEFT.reshape(-1, *[1] * rank)
    left = larger(running * shares**power, 1.0)
    step = np.tensordot(STRETCHES, serving.step(left, requests.context, engine), 1)
    read = serving.prefill(requests.number * requests.prompt, requests.prompt)
    return np.asarray(engine.slowdown * (steps * step / engine.tokens_a_step + read / serving.pp))


def batch_time(serving: Serving, requests: Requests, engine: Engine) -> Array:
    """Seconds of a static batch: one prefill, then as many steps as the response has tokens."""
    read = serving.prefill(requests.number * requests.prompt, requests.prompt)
    read = read + serving.launches(engine)
    step = serving.step(requests.number, requests.prompt + requests.mean / 2.0, engine)
    return np.asarray(engine.slowdown * (read + requests.longest * step))
