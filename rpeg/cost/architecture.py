"""The shape of a model, and what follows from it alone: parameters, FLOPs and cached bytes.

Counts follow the usual decoder: attention of h·(q + 2·kv) + q·h weights, an MLP of 3·h·f gated or
2·h·f plain, embeddings once where tied, twice otherwise. With multi-head latent attention (MLA) the
projections go through two low ranks (arXiv 2405.04434, section 2.1). A mixture of experts has E
routed experts, of which each token takes k, and shared ones that all tokens take. Norms and biases
are left out: under 0.1 % of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.cost.arrays import Array, smaller


@dataclass(frozen=True)
class Latent:
    """Ranks and head widths of multi-head latent attention."""

    q_rank: int
    """0 where queries are projected straight from the hidden state."""
    kv_rank: int
    nope_width: int
    rope_width: int
    value_width: int


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the MLP of most layers."""

    number: int
    per_token: int
    ffn: int
    shared_ffn: int
    """Inner width of all shared experts together; 0 without any."""
    dense_layers: int
    """Leading layers that keep a plain MLP."""
    every: int = 1
    """Every how manieth of the other layers is a mixture."""
    latent: int = 0
    """Width that tokens are sent and multiplied at, projected down and up; 0 is the hidden one."""


@dataclass(frozen=True)
class StateSpace:
    """Layers with a state of fixed size in place of attention (Mamba-2, arXiv 2405.21060).

    A model that has them has one block per layer: of these, attention, an MLP or a mixture.
    """

    layers: int
    attention: int
    """Layers with attention alone."""
    mlps: int
    """Layers with a plain MLP alone; mixtures are the rest."""
    heads: int
    head_width: int
    state_width: int
    groups: int
    chunk: int
    """Tokens whose pairs are multiplied as in attention."""

    @property
    def inner(self) -> int:
        """Width of what the state is kept for."""
        return self.heads * self.head_width

    @property
    def projected(self) -> int:
        """What the first projection writes: a gate, inputs, keys and queries, steps."""
        return 2 * self.inner + 2 * self.groups * self.state_width + self.heads

    @property
    def flops(self) -> float:
        """Of a token in a forward pass, outside of projections."""
        within = self.chunk * (self.inner + self.groups * self.state_width)
        return 2.0 * (within + 2.0 * self.inner * self.state_width)

    @property
    def state_bytes(self) -> float:
        """Of one sequence and layer, in fp32."""
        return 4.0 * self.inner * self.state_width


@dataclass(frozen=True)
class Architecture:
    """A decoder's shape. Widths in elements."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_width: int
    vocabulary: int
    gated: bool = True
    tied: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    state_space: StateSpace | None = None
    positions: int = 0
    """Rows of a learned table of positions; 0 without one."""
    sinks: bool = False
    """Whether the softmax has a learned sink, for which training runs attention unfused."""
    window: int = 0
    """Tokens that layers with a sliding window attend to; 0 where none has one."""
    full_every: int = 1
    """Every how manieth layer attends to all tokens; the others have the window."""
    notes: tuple[str, ...] = ()
    """What is assumed of it, or passed over, where its file says more than is priced."""

    @property
    def query_width(self) -> int:
        """What the output projection reads: heads times the width of a value."""
        width = self.latent.value_width if self.latent else self.head_width
        return self.heads * width

    @property
    def score_width(self) -> float:
        """Width of attention's two matmuls, on average: heads times (key + value) / 2."""
        if self.latent is None:
            return self.heads * self.head_width
        key = self.latent.nope_width + self.latent.rope_width
        return self.heads * (key + self.latent.value_width) / 2

    @property
    def kv_width(self) -> int:
        """Elements of one token's keys and values that attention reads, in training."""
        if self.latent is None:
            return 2 * self.kv_heads * self.head_width
        key = self.latent.nope_width + self.latent.rope_width
        return self.heads * (key + self.latent.value_width)

    @property
    def cached_width(self) -> int:
        """Elements of one token and layer in the cache of generation."""
        if self.latent is None:
            return self.kv_width
        return self.latent.kv_rank + self.latent.rope_width

    @property
    def projections(self) -> tuple[tuple[int, int, bool], ...]:
        """Attention's matmuls as (K, N, split): whether tensor parallelism splits one of them."""
        if self.latent is None:
            qkv = self.heads * self.head_width + self.kv_width
            return ((self.hidden, qkv, True), (self.query_width, self.hidden, True))
        rank, low = self.latent, self.latent.kv_rank + self.latent.rope_width
        queries = self.heads * (rank.nope_width + rank.rope_width)
        up = (rank.kv_rank, self.heads * (rank.nope_width + rank.value_width), True)
        down = (self.hidden, low, False)
        out = (self.query_width, self.hidden, True)
        if not rank.q_rank:
            return ((self.hidden, queries, True), down, up, out)
        return ((self.hidden, rank.q_rank, False), (rank.q_rank, queries, True), down, up, out)

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's attention."""
        return sum(k * n for k, n, _ in self.projections)

    @property
    def mlp_matrices(self) -> int:
        """Matrices of an MLP: three where gated."""
        return 3 if self.gated else 2

    @property
    def mixture_layers(self) -> int:
        """Layers that hold experts."""
        if self.experts is None:
            return 0
        if (hybrid := self.state_space) is not None:
            return self.layers - hybrid.layers - hybrid.attention - hybrid.mlps
        return (self.layers - self.experts.dense_layers) // self.experts.every

    @property
    def plain_layers(self) -> int:
        """Layers with a plain MLP."""
        return self.state_space.mlps if self.state_space else self.layers - self.mixture_layers

    @property
    def attention_layers(self) -> int:
        """Layers with attention."""
        return self.state_space.attention if self.state_space else self.layers

    @property
    def blocks(self) -> int:
        """Attention, MLPs, mixtures and state spaces together: two per layer of a usual model."""
        return self.layers if self.state_space else 2 * self.layers

    @property
    def state_weights(self) -> int:
        """Weights of one layer with a state: its two projections."""
        if self.state_space is None:
            return 0
        return self.hidden * (self.state_space.projected + self.state_space.inner)

    @property
    def plain_mlp_weights(self) -> int:
        """Weights of one plain MLP."""
        return self.mlp_matrices * self.hidden * self.ffn

    @property
    def expert_weights(self) -> int:
        """Weights of one routed expert."""
        return self.mlp_matrices * self.sent_width * self.experts.ffn if self.experts else 0

    @property
    def sent_width(self) -> int:
        """Elements of a token that is sent to an expert."""
        return self.experts.latent or self.hidden if self.experts else self.hidden

    @property
    def shared_weights(self) -> int:
        """Weights of one mixture layer that every token uses: shared experts and the router."""
        if self.experts is None:
            return 0
        shared = self.mlp_matrices * self.hidden * self.experts.shared_ffn
        latent = 2 * self.hidden * self.experts.latent
        return shared + latent + self.hidden * self.experts.number

    @property
    def routed_parameters(self) -> int:
        """All weights of routed experts, which expert parallelism splits."""
        number = self.experts.number if self.experts else 0
        return self.mixture_layers * number * self.expert_weights

    @property
    def layer_parameters(self) -> int:
        """All weights of layers other than routed experts."""
        states = self.state_space.layers * self.state_weights if self.state_space else 0
        return (
            states
            + self.attention_layers * self.attention_weights
            + self.plain_layers * self.plain_mlp_weights
            + self.mixture_layers * self.shared_weights
        )

    @property
    def embedding_parameters(self) -> int:
        """Input table and output head (one matrix where tied), and learned positions."""
        tables = 1 if self.tied else 2
        return (tables * self.vocabulary + self.positions) * self.hidden

    @property
    def parameters(self) -> int:
        """All of them."""
        return self.layer_parameters + self.routed_parameters + self.embedding_parameters

    @property
    def tensors(self) -> int:
        """Matrices of a checkpoint, in which queries, keys, values and each expert have their own;
        routers are left out.
        """
        experts = self.experts.number + bool(self.experts.shared_ffn) if self.experts else 0
        mlps = self.plain_layers + self.mixture_layers * experts
        attention = self.attention_layers * (len(self.projections) + (0 if self.latent else 2))
        states = 2 * self.state_space.layers if self.state_space else 0
        return mlps * self.mlp_matrices + attention + states + (1 if self.tied else 2)

    @property
    def multiplied(self) -> int:
        """Weights that a token is multiplied with: no look-up of the input table."""
        active = self.experts.per_token if self.experts else 0
        experts = self.mixture_layers * active * self.expert_weights
        return self.layer_parameters + experts + self.vocabulary * self.hidden

    def forward_flops(self, tokens: float, squares: float) -> float:
        """FLOPs of a causal forward pass: 2·N·S1 + 2·L·q·S2.

        `tokens` is S1, the sum of the lengths; `squares` is S2, the sum of their squares.
        """
        states = self.state_space.layers * self.state_space.flops if self.state_space else 0.0
        core = 2 * self.attention_layers * self.score_width * squares
        return 2 * self.multiplied * tokens + core + states * tokens

    def attended(self, tokens: Array) -> Array:
        """Of so many tokens of context those that a layer attends to, on average."""
        if not self.window:
            return tokens
        windowed = 1.0 - 1.0 / self.full_every
        return (1.0 - windowed) * tokens + windowed * smaller(tokens, float(self.window))

    def attended_share(self, length: Array) -> Array:
        """Share of the pairs of a causal sequence that its layers multiply, on average.

        A window of w leaves w·l - w²/2 of l²/2 pairs.
        """
        if not self.window:
            return np.ones_like(length)
        windowed = 1.0 - 1.0 / self.full_every
        seen = smaller(self.window / length, 1.0)
        return 1.0 - windowed + windowed * seen * (2.0 - seen)

    def cached_bytes(self, bytes_each: float = 2) -> float:
        """Bytes of the key-value cache for one token."""
        return self.attention_layers * self.cached_width * bytes_each
