"""A lean forward pass for sampling: plain functions on whole weights, fused products, a static
cache.

Every shape depends on the settings and the prompt's own length class only, never on who else is in
the batch, so that neither the batch's composition nor the data-parallel width changes a bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from rpeg.runtime.model_time import model_span
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.numerics.products import Weight, widens
from rpeg.runtime.numerics.rotary import rotary_table
from rpeg.runtime.numerics.stacking import stacked


@dataclass(frozen=True)
class Layer:
    """One layer's weights; q, k, v and gate, up are fused."""

    norm1: Tensor
    qkv: Weight
    qk_norm: Tensor | None
    """[heads + kv heads, head dim]: the norms of queries and keys, head by head."""
    out: Weight
    norm2: Tensor
    gate_up: Weight
    down: Weight


class Cache:
    """Keys and values, each [layers, rows, kv heads, slots, head dim]."""

    def __init__(self, shape: ModelShape, rows: int, slots: int, like: Tensor) -> None:
        size = (shape.layers, rows, shape.kv_heads, slots, shape.head_dim)
        self.keys, self.values = like.new_empty(size), like.new_empty(size)

    def write(self, layer: int, slot: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Puts k and v [rows, kv heads, 1, head dim] into `slot`; everything up to there."""
        keys, values = self.keys[layer], self.values[layer]
        keys[:, :, slot : slot + 1] = k
        values[:, :, slot : slot + 1] = v
        return keys[:, :, : slot + 1], values[:, :, : slot + 1]

    def begin(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Puts k and v [prompts, kv heads, length, head dim] into the first slots, each for as
        many rows, side by side, as the cache has for a prompt.
        """
        for cache, new in ((self.keys, k), (self.values, v)):
            cache[layer, :, :, : new.shape[2]].unflatten(0, (len(new), -1)).copy_(new[:, None])


@dataclass(frozen=True)
class _Reading:
    """Where a forward pass stands: rotations [rows, length, 1, head dim / 2], and the cache."""

    cos: Tensor
    sin: Tensor
    cache: Cache
    slot: int
    bias: Tensor | None


class Decoder:
    """A model's weights, ready to sample from."""

    def __init__(
        self,
        shape: ModelShape,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        version: int = -1,
    ) -> None:
        self.shape = shape
        self.version = version
        """Of the weights; -1 where nobody counts."""
        w = {name: tensor.to(dtype) for name, tensor in weights.items()}
        self.embedding = w["model.embed_tokens.weight"]
        self._head = Weight(self.embedding if shape.tied else w["lm_head.weight"])
        self._norm = w["model.norm.weight"]
        self._layers = [_layer(shape, w, f"model.layers.{i}.") for i in range(shape.layers)]
        tables = rotary_table(shape, shape.positions)
        self._cos, self._sin = (table.to(self.device).unsqueeze(1) for table in tables)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embedding.device

    def cache(self, rows: int, slots: int) -> Cache:
        """An empty cache."""
        return Cache(self.shape, rows, slots, self.embedding)

    def prefill(self, ids: Tensor, cache: Cache) -> Tensor:
        """Reads prompts [prompts, k], right-padded, into slots 0..k-1 of a cache with as many rows
        for each; hidden states [prompts, k, hidden].
        """
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        with model_span("engine"):
            return self._forward(ids, places, cache, slot=0, bias=None)

    def step(self, ids: Tensor, places: Tensor, cache: Cache, slot: int, bias: Tensor) -> Tensor:
        """Reads one token a row [rows, 1] at rotary positions `places` [rows, 1] into `slot`;
        hidden [rows, hidden].

        `bias` [rows, 1, slot + 1] float32 is added to the scores of each slot.
        """
        with model_span("engine"):
            hidden = self._forward(ids, places, cache, slot, bias)
        return hidden.squeeze(1)

    def logits(self, hidden: Tensor) -> Tensor:
        """float32 logits [..., vocabulary] of hidden states."""
        with model_span("engine"):
            return self._head(hidden).float()

    def _forward(
        self, ids: Tensor, places: Tensor, cache: Cache, slot: int, bias: Tensor | None
    ) -> Tensor:
        x = F.embedding(ids, self.embedding)
        reading = _Reading(self._cos[places], self._sin[places], cache, slot, bias)
        for index, layer in enumerate(self._layers):
            x = x + self._attend(layer, index, self._rms(x, layer.norm1), reading)
            gate, up = layer.gate_up(self._rms(x, layer.norm2)).chunk(2, dim=-1)
            x = x + layer.down(F.silu(gate, inplace=True).mul_(up))
        return self._rms(x, self._norm)

    def _attend(self, layer: Layer, index: int, x: Tensor, at: _Reading) -> Tensor:
        s, (rows, length, _) = self.shape, x.shape
        heads = layer.qkv(x).view(rows, length, -1, s.head_dim)
        qk, v = heads.split([s.heads + s.kv_heads, s.kv_heads], dim=2)
        if layer.qk_norm is not None:
            qk = self._rms(qk, layer.qk_norm)
        q, k = rotate(qk, at.cos, at.sin).split([s.heads, s.kv_heads], dim=2)
        k, v = k.transpose(1, 2), v.transpose(1, 2)
        if at.bias is None:
            k, v = k.contiguous(), v.contiguous()  # they are read several times
            at.cache.begin(index, k, v)
            out = attend_causally(q.transpose(1, 2), k, v).transpose(1, 2)
        else:
            keys, values = at.cache.write(index, at.slot, k, v)
            out = attend_once(q.squeeze(1), keys, values, at.bias)
        return layer.out(out.reshape(rows, length, -1))

    def _rms(self, x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        norm: Tensor = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
        scale = norm.square_().div_(x.shape[-1]).add_(self.shape.eps).rsqrt_()
        return (wide * scale).mul_(weight).to(x.dtype)


def _layer(shape: ModelShape, w: Mapping[str, Tensor], prefix: str) -> Layer:
    def fused(*names: str) -> Tensor:
        return stacked([w[f"{prefix}{name}"] for name in names])

    qkv = [f"self_attn.{part}_proj" for part in "qkv"]
    bias = fused(*(f"{part}.bias" for part in qkv)) if shape.qkv_bias else None
    return Layer(
        norm1=w[prefix + "input_layernorm.weight"],
        qkv=Weight(fused(*(f"{part}.weight" for part in qkv)), bias),
        qk_norm=_qk_norm(shape, w, prefix) if shape.qk_norm else None,
        out=Weight(w[prefix + "self_attn.o_proj.weight"]),
        norm2=w[prefix + "post_attention_layernorm.weight"],
        gate_up=Weight(fused("mlp.gate_proj.weight", "mlp.up_proj.weight")),
        down=Weight(w[prefix + "mlp.down_proj.weight"]),
    )


def _qk_norm(shape: ModelShape, w: Mapping[str, Tensor], prefix: str) -> Tensor:
    q, k = (w[f"{prefix}self_attn.{part}_norm.weight"] for part in "qk")
    return torch.cat([q.expand(shape.heads, -1), k.expand(shape.kv_heads, -1)])


def attend_causally(q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Whole prompts from the first slot on: q [rows, heads, length, head dim] to the same."""
    dtype = q.dtype
    if widens(dtype):
        q, keys, values = q.float(), keys.float(), values.float()
    grouped = q.shape[1] != keys.shape[1]
    out = F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=grouped)
    return out.to(dtype)


def attend_once(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """One token a row: q [rows, heads, head dim] to the same, over keys and values [rows, kv
    heads, slots, head dim], with `bias` [rows, 1, slots] added to the scores.

    The queries of one key-value head are the rows of one small product: nothing is repeated.
    """
    rows, groups, _, dim = keys.shape
    queries = q.reshape(rows * groups, -1, dim)
    keys, values = keys.flatten(0, 1), values.flatten(0, 1)
    wide = queries.dtype if not widens(queries.dtype) else torch.float32
    bias = bias.repeat_interleave(groups, dim=0).to(wide)
    scores = torch.baddbmm(bias, queries.to(wide), keys.to(wide).mT, alpha=dim**-0.5)
    mixed = torch.bmm(scores.softmax(dim=-1), values.to(wide))
    return mixed.view(q.shape).to(q.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the pairs (x_i, x_{i + dim / 2}) of [rows, length, heads, head dim] by angles [rows,
    length, 1, head dim / 2].
    """
    wide = x.float()
    a, b = wide.chunk(2, dim=-1)
    out = torch.empty_like(wide, memory_format=torch.contiguous_format)
    left, right = out.chunk(2, dim=-1)
    torch.mul(a, cos, out=left).addcmul_(b, sin, value=-1.0)
    torch.mul(b, cos, out=right).addcmul_(a, sin)
    return out.to(x.dtype)
