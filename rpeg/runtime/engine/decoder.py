"""A lean forward pass for sampling: plain functions on whole weights, fused products, a static
cache.

Every shape depends on the settings and the prompt's own length class only, never on who else is in
the batch, so that neither the batch's composition nor the data-parallel width changes a bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rpeg.runtime.shape import ModelShape


@dataclass(frozen=True)
class Layer:
    """One layer's weights; q, k, v and gate, up are fused."""

    norm1: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    q_norm: Tensor | None
    k_norm: Tensor | None
    out: Tensor
    norm2: Tensor
    gate_up: Tensor
    down: Tensor


class Cache:
    """Keys and values, each [layers, rows, kv heads, slots, head dim]."""

    def __init__(self, shape: ModelShape, rows: int, slots: int, like: Tensor) -> None:
        size = (shape.layers, rows, shape.kv_heads, slots, shape.head_dim)
        self.keys, self.values = like.new_empty(size), like.new_empty(size)

    def write(self, layer: int, slot: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Puts k and v [rows, kv heads, length, head dim] from `slot` on; all keys and values
        up to there.
        """
        end = slot + k.shape[2]
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, slot:end] = k
        values[:, :, slot:end] = v
        return keys[:, :, :end], values[:, :, :end]

    def repeat(self, n: int, prompt: int) -> None:
        """Every row becomes n rows with the same first `prompt` slots."""
        self.keys = _repeat(self.keys, n, prompt)
        self.values = _repeat(self.values, n, prompt)


def _repeat(cache: Tensor, n: int, prompt: int) -> Tensor:
    layers, rows, heads, slots, dim = cache.shape
    wide = cache.new_empty(layers, rows * n, heads, slots, dim)
    wide[:, :, :, :prompt] = cache[:, :, :, :prompt].repeat_interleave(n, dim=1)
    return wide


@dataclass(frozen=True)
class _Reading:
    """Where a forward pass stands: rotations [rows, length, head dim / 2], and the cache."""

    cos: Tensor
    sin: Tensor
    cache: Cache
    slot: int
    visible: Tensor | None


class Decoder:
    """A model's weights, ready to sample from."""

    def __init__(
        self, shape: ModelShape, weights: Mapping[str, Tensor], dtype: torch.dtype
    ) -> None:
        self.shape = shape
        w = {name: tensor.to(dtype) for name, tensor in weights.items()}
        self.embedding = w["model.embed_tokens.weight"]
        self.head = self.embedding if shape.tied else w["lm_head.weight"]
        self.norm = w["model.norm.weight"]
        self.layers = [_layer(w, f"model.layers.{i}.") for i in range(shape.layers)]
        angles = torch.outer(torch.arange(shape.positions).float(), rotary_frequencies(shape))
        self._cos = angles.cos().to(self.embedding)
        self._sin = angles.sin().to(self.embedding)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    def cache(self, rows: int, slots: int) -> Cache:
        """An empty cache."""
        return Cache(self.shape, rows, slots, self.embedding)

    def prefill(self, ids: Tensor, cache: Cache) -> Tensor:
        """Reads prompts [rows, k], right-padded, into slots 0..k-1; hidden states [rows, k,
        hidden].
        """
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        return self._forward(ids, places, cache, slot=0, visible=None)

    def step(self, ids: Tensor, places: Tensor, cache: Cache, slot: int, visible: Tensor) -> Tensor:
        """Reads one token a row [rows] at rotary positions `places` into `slot`; hidden [rows,
        hidden].

        `visible` [rows, 1, 1, slot + 1] says which slots each row looks at.
        """
        hidden = self._forward(ids[:, None], places[:, None], cache, slot, visible)
        return hidden[:, 0]

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., vocabulary] of hidden states."""
        return F.linear(hidden, self.head).float()

    def _forward(
        self, ids: Tensor, places: Tensor, cache: Cache, slot: int, visible: Tensor | None
    ) -> Tensor:
        x = F.embedding(ids, self.embedding)
        reading = _Reading(self._cos[places], self._sin[places], cache, slot, visible)
        for index, layer in enumerate(self.layers):
            x = x + self._attend(layer, index, self._rms(x, layer.norm1), reading)
            gate, up = F.linear(self._rms(x, layer.norm2), layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return self._rms(x, self.norm)

    def _attend(self, layer: Layer, index: int, x: Tensor, at: _Reading) -> Tensor:
        s, (rows, length, _) = self.shape, x.shape
        heads = F.linear(x, layer.qkv, layer.qkv_bias).view(rows, length, -1, s.head_dim)
        q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], dim=2)
        q = rotate(self._rms(q, layer.q_norm), at.cos, at.sin).transpose(1, 2)
        k = rotate(self._rms(k, layer.k_norm), at.cos, at.sin).transpose(1, 2)
        keys, values = at.cache.write(index, at.slot, k, v.transpose(1, 2))
        out = F.scaled_dot_product_attention(
            q,
            keys,
            values,
            attn_mask=at.visible,
            is_causal=at.visible is None,
            enable_gqa=s.heads != s.kv_heads,
        )
        return F.linear(out.transpose(1, 2).reshape(rows, length, -1), layer.out)

    def _rms(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else F.rms_norm(x, weight.shape, weight, self.shape.eps)


def _layer(w: Mapping[str, Tensor], prefix: str) -> Layer:
    def fused(*names: str) -> Tensor:
        return torch.cat([w[prefix + name] for name in names])

    bias = prefix + "self_attn.q_proj.bias" in w
    qkv = [f"self_attn.{part}_proj" for part in "qkv"]
    return Layer(
        norm1=w[prefix + "input_layernorm.weight"],
        qkv=fused(*(f"{part}.weight" for part in qkv)),
        qkv_bias=fused(*(f"{part}.bias" for part in qkv)) if bias else None,
        q_norm=w.get(prefix + "self_attn.q_norm.weight"),
        k_norm=w.get(prefix + "self_attn.k_norm.weight"),
        out=w[prefix + "self_attn.o_proj.weight"],
        norm2=w[prefix + "post_attention_layernorm.weight"],
        gate_up=fused("mlp.gate_proj.weight", "mlp.up_proj.weight"),
        down=w[prefix + "mlp.down_proj.weight"],
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates [rows, length, heads, head dim] by angles [rows, length, head dim / 2]."""
    cos, sin = cos[:, :, None], sin[:, :, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def rotary_frequencies(shape: ModelShape) -> Tensor:
    """[head dim / 2] radians per position, stretched for long waves where Llama 3 does it.

    theta^(-2 i / d) (RoFormer, arXiv:2104.09864); the stretch blends from none, for waves shorter
    than 8192 / 4 positions, to 1 / factor, for those longer than 8192 (arXiv:2407.21783, section
    3.2).
    """
    exponents = torch.arange(0, shape.head_dim, 2, dtype=torch.float32) / shape.head_dim
    frequencies: Tensor = 1.0 / shape.rope_theta**exponents
    if shape.rope_factor is None:
        return frequencies
    turns = 8192 * frequencies / (2 * math.pi)
    blend = ((turns - 1.0) / (4.0 - 1.0)).clamp(0.0, 1.0)
    return frequencies * (blend + (1.0 - blend) / shape.rope_factor)
