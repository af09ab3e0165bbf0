"""Weights between Hugging Face names, whole, and Megatron-Core's parameters, fused and sharded.

One Megatron parameter is made of one or more Hugging Face tensors: q, k and v are interleaved by
key-value group, gate and up are stacked in each tensor-parallel shard, embeddings get padding rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from rpeg.runtime.groups import Groups
from rpeg.runtime.megatron.config import padded_vocab
from rpeg.runtime.models.shape import ModelShape

Read = Callable[[str], Tensor]
"""Hugging Face name -> whole tensor."""

_QKV = tuple(f"self_attn.{part}_proj" for part in "qkv")
_GATE_UP = ("mlp.gate_proj.weight", "mlp.up_proj.weight")

_LAYER: dict[str, tuple[tuple[str, ...], int | None, str]] = {
    "input_layernorm.weight": (("input_layernorm.weight",), None, "copy"),
    "self_attention.linear_qkv.weight": (tuple(f"{part}.weight" for part in _QKV), 0, "qkv"),
    "self_attention.linear_qkv.bias": (tuple(f"{part}.bias" for part in _QKV), 0, "qkv"),
    "self_attention.linear_proj.weight": (("self_attn.o_proj.weight",), 1, "copy"),
    "self_attention.q_layernorm.weight": (("self_attn.q_norm.weight",), None, "copy"),
    "self_attention.k_layernorm.weight": (("self_attn.k_norm.weight",), None, "copy"),
    "pre_mlp_layernorm.weight": (("post_attention_layernorm.weight",), None, "copy"),
    "mlp.linear_fc1.weight": (_GATE_UP, 0, "stack"),
    "mlp.linear_fc2.weight": (("mlp.down_proj.weight",), 1, "copy"),
}
"""Megatron name within a layer -> (Hugging Face names, sharded dimension, how they are joined)."""

_EMBEDDING = ("embedding.word_embeddings.weight", "model.embed_tokens.weight")
_NORM = ("decoder.final_layernorm.weight", "model.norm.weight")
_OUTPUT = ("output_layer.weight", "lm_head.weight")


@dataclass(frozen=True)
class Unit:
    """One Megatron parameter, wherever it lives."""

    name: str
    """Its name on its pipeline stage, see `local_name`."""
    stage: int
    sources: tuple[str, ...]
    """Hugging Face names of what it is made of."""
    dim: int | None
    """Dimension that tensor parallelism shards, or None."""
    join: str
    """`copy`, `qkv`, `stack` or `vocab`."""


def local_name(chunk: int, name: str) -> str:
    """What a process calls a parameter of one of its chunks of the model."""
    return f"{chunk}.{name}"


class WeightMap:
    """Both directions between whole Hugging Face tensors and one process's Megatron parameters."""

    def __init__(self, shape: ModelShape, groups: Groups) -> None:
        self.shape = shape
        self.groups = groups
        self._stages = groups.layout.pp
        self._chunks = groups.layout.vpp
        """On each pipeline stage; they take turns over the layers."""

    def units(self) -> Iterator[Unit]:
        """Every parameter of the whole model, input to output."""
        yield Unit(local_name(0, _EMBEDDING[0]), 0, (_EMBEDDING[1],), 0, "vocab")
        for layer in range(self.shape.layers):
            yield from self._layer_units(layer)
        yield self._at_the_end(_NORM[0], _NORM[1], None, "copy")
        if self.shape.critic:
            yield self._at_the_end(_OUTPUT[0], "score.weight", None, "copy")
        elif not self.shape.tied:
            yield self._at_the_end(_OUTPUT[0], _OUTPUT[1], 0, "vocab")

    def _at_the_end(self, name: str, source: str, dim: int | None, join: str) -> Unit:
        last = self._stages - 1
        return Unit(local_name(self._chunks - 1, name), last, (source,), dim, join)

    def _layer_units(self, layer: int) -> Iterator[Unit]:
        each = self.shape.layers // (self._stages * self._chunks)
        part, local = divmod(layer, each)
        chunk, stage = divmod(part, self._stages)
        prefix = f"model.layers.{layer}."
        present = {name for name, _ in self.shape.layer_tensors()}
        for name, (sources, dim, join) in _LAYER.items():
            if present.issuperset(sources):
                whole = tuple(prefix + source for source in sources)
                here = local_name(chunk, f"decoder.layers.{local}.{name}")
                yield Unit(here, stage, whole, dim, join)

    def local_units(self) -> Iterator[Unit]:
        """The parameters on this pipeline stage, with the last stage's copy of a tied embedding."""
        yield from (unit for unit in self.units() if unit.stage == self.groups.pp.rank())
        if self.shape.tied and self.groups.last_stage and not self.groups.first_stage:
            yield self._at_the_end(_OUTPUT[0], _EMBEDDING[1], 0, "vocab")

    def shards(self, read: Read) -> Iterator[tuple[str, Tensor]]:
        """(Megatron name, this process's shard) of every parameter on this pipeline stage."""
        for unit in self.local_units():
            yield unit.name, self._shard(unit, read)

    def _shard(self, unit: Unit, read: Read) -> Tensor:
        rank, tp = self.groups.tp.rank(), self.groups.tp.size()
        parts = [read(name) for name in unit.sources]
        if unit.join == "stack":
            return torch.cat([part.chunk(tp)[rank] for part in parts])
        whole = self._join(unit, parts)
        return whole if unit.dim is None else whole.chunk(tp, unit.dim)[rank]

    def _join(self, unit: Unit, parts: list[Tensor]) -> Tensor:
        match unit.join:
            case "qkv":
                rows = (self.shape.kv_heads, -1, self.shape.head_dim)
                grouped = [part.reshape(*rows, *part.shape[1:]) for part in parts]
                return torch.cat(grouped, dim=1).reshape(-1, *parts[0].shape[1:])
            case "vocab":
                missing = padded_vocab(self.shape.vocab, self.groups.tp.size()) - self.shape.vocab
                return torch.nn.functional.pad(parts[0], (0, 0, 0, missing))
            case _:
                return parts[0]

    def whole(self, local: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """(Hugging Face name, whole tensor) from every process's `local` parameters.

        Collective over the tensor- and pipeline-parallel groups; every process gets every tensor.
        """
        shapes = dict(self.shape.tensors())
        for unit in self.units():
            if unit.stage == self.groups.pp.rank():
                parts = self._split(unit, self._gather(local[unit.name]))
            else:
                like = next(iter(local.values()))
                parts = [like.new_empty(shapes[name]) for name in unit.sources]
            for name, part in zip(unit.sources, parts, strict=True):
                yield name, self._to_every_stage(part.contiguous(), unit.stage)

    def _gather(self, shard: Tensor) -> list[Tensor]:
        tp = self.groups.tp.size()
        if tp == 1:
            return [shard]
        shards = [torch.empty_like(shard) for _ in range(tp)]
        dist.all_gather(shards, shard.contiguous(), group=self.groups.tp)
        return shards

    def _split(self, unit: Unit, shards: list[Tensor]) -> list[Tensor]:
        if unit.dim is None:
            return [shards[0]]
        if unit.join == "stack":
            halves = [shard.chunk(2) for shard in shards]
            return [torch.cat([half[k] for half in halves]) for k in range(2)]
        joined = torch.cat(shards, dim=unit.dim)
        match unit.join:
            case "qkv":
                return self._split_qkv(joined)
            case "vocab":
                return [joined[: self.shape.vocab]]
            case _:
                return [joined]

    def _split_qkv(self, joined: Tensor) -> list[Tensor]:
        groups, ratio = self.shape.kv_heads, self.shape.heads // self.shape.kv_heads
        heads = joined.reshape(groups, ratio + 2, self.shape.head_dim, *joined.shape[1:])
        parts = heads.split([ratio, 1, 1], dim=1)
        return [part.reshape(-1, *joined.shape[1:]) for part in parts]

    def _to_every_stage(self, tensor: Tensor, stage: int) -> Tensor:
        if self.groups.pp.size() > 1:
            owner = dist.get_global_rank(self.groups.pp, stage)
            dist.broadcast(tensor, src=owner, group=self.groups.pp)
        return tensor
