"""How Megatron-Core spreads a decoder-only transformer over processes, as boxes of its tensors.

One Megatron parameter is made of one or more Hugging Face tensors: q, k and v are interleaved by
key-value group, gate and up are stacked in each tensor-parallel shard, embeddings get padding rows.
Pipeline stages hold whole layers, in `vpp` chunks that take turns; a distributed optimizer cuts a
stage's parameters, end to end, into equal flat parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

from rpeg.sharding.boxes import Box, Held, Shape, Sharding

VOCAB_MULTIPLE = 8
"""Each shard of an embedding has a multiple of so many rows."""

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
_VALUES = ("value_head.weight", "score.weight")
"""Where it stands beside the output layer; a critic has it instead."""


class Decoder(Protocol):
    """What of a model's shape its shards depend on."""

    @property
    def vocab(self) -> int:
        """Tokens."""
        ...

    @property
    def layers(self) -> int:
        """Layers."""
        ...

    @property
    def heads(self) -> int:
        """Query heads."""
        ...

    @property
    def kv_heads(self) -> int:
        """Key-value heads."""
        ...

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        ...

    @property
    def tied(self) -> bool:
        """The output layer is the embedding."""
        ...

    @property
    def critic(self) -> bool:
        """One value for each position instead of logits."""
        ...

    @property
    def two_heads(self) -> bool:
        """One value for each position beside logits."""
        ...

    def tensors(self) -> Iterator[tuple[str, Shape]]:
        """(Hugging Face name, shape) of every weight."""
        ...

    def layer_tensors(self) -> Iterator[tuple[str, Shape]]:
        """(name, shape) of one layer's weights."""
        ...


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


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of a parameter that are a box of one Hugging Face tensor."""

    source: str
    row: int
    """First row in the parameter."""
    box: Box
    """In the whole tensor."""

    @property
    def rows(self) -> slice:
        """Its rows in the parameter."""
        return slice(self.row, self.row + self.box.shape[0])

    @property
    def held(self) -> Held:
        """What a process holds with it."""
        return Held(self.source, self.box)


def local_name(chunk: int, name: str) -> str:
    """What a process calls a parameter of one of its chunks of the model."""
    return f"{chunk}.{name}"


def padded_vocab(vocab: int, tp: int) -> int:
    """Rows of the padded embedding."""
    multiple = VOCAB_MULTIPLE * tp
    return -(-vocab // multiple) * multiple


class Split:
    """A decoder over `tp` x `pp` processes, in `vpp` chunks on each pipeline stage."""

    def __init__(self, decoder: Decoder, *, tp: int = 1, pp: int = 1, vpp: int = 1) -> None:
        self.decoder = decoder
        self.tp = tp
        self.pp = pp
        self.vpp = vpp
        self._shapes: Mapping[str, Shape] = dict(decoder.tensors())

    # ---- which parameters there are

    def units(self) -> Iterator[Unit]:
        """Every parameter of the whole model, input to output."""
        yield Unit(local_name(0, _EMBEDDING[0]), 0, (_EMBEDDING[1],), 0, "vocab")
        for layer in range(self.decoder.layers):
            yield from self._layer_units(layer)
        yield self._at_the_end(_NORM[0], _NORM[1], None, "copy")
        if self.decoder.two_heads:
            yield self._at_the_end(*_VALUES, None, "copy")
        if self.decoder.critic:
            yield self._at_the_end(_OUTPUT[0], _VALUES[1], None, "copy")
        elif not self.decoder.tied:
            yield self._at_the_end(_OUTPUT[0], _OUTPUT[1], 0, "vocab")

    def _at_the_end(self, name: str, source: str, dim: int | None, join: str) -> Unit:
        return Unit(local_name(self.vpp - 1, name), self.pp - 1, (source,), dim, join)

    def _layer_units(self, layer: int) -> Iterator[Unit]:
        each = self.decoder.layers // (self.pp * self.vpp)
        part, local = divmod(layer, each)
        chunk, stage = divmod(part, self.pp)
        prefix = f"model.layers.{layer}."
        present = {name for name, _ in self.decoder.layer_tensors()}
        for name, (sources, dim, join) in _LAYER.items():
            if present.issuperset(sources):
                whole = tuple(prefix + source for source in sources)
                here = local_name(chunk, f"decoder.layers.{local}.{name}")
                yield Unit(here, stage, whole, dim, join)

    def on_stage(self, stage: int) -> Iterator[Unit]:
        """A pipeline stage's parameters; the last stage has a copy of a tied embedding."""
        yield from (unit for unit in self.units() if unit.stage == stage)
        if self.decoder.tied and stage == self.pp - 1 > 0:
            yield self._at_the_end(_OUTPUT[0], _EMBEDDING[1], 0, "vocab")

    # ---- what of the whole tensors each holds

    def local_shape(self, unit: Unit) -> Shape:
        """The shape of a parameter on one process, padding included."""
        parts = [self._shapes[name] for name in unit.sources]
        rows, columns = sum(part[0] for part in parts), parts[0][1:]
        if unit.join == "vocab":
            rows = padded_vocab(rows, self.tp)
        if unit.dim == 1:
            return (rows, columns[0] // self.tp)
        return (rows if unit.dim is None else rows // self.tp, *columns)

    def blocks(self, unit: Unit, rank: int) -> list[Block]:
        """What a parameter holds on a rank of the tensor-parallel group, padding left out."""
        if unit.join == "qkv":
            return list(self._grouped_blocks(unit, rank))
        if unit.join == "stack":
            height = self._shapes[unit.sources[0]][0] // self.tp
            return [
                self._rows(source, k * height, rank * height, height)
                for k, source in enumerate(unit.sources)
            ]
        return [self._simple_block(unit, rank)]

    def _simple_block(self, unit: Unit, rank: int) -> Block:
        source, local = unit.sources[0], self.local_shape(unit)
        if unit.dim == 1:
            left = rank * local[1]
            return Block(source, 0, Box((0, left), (local[0], left + local[1])))
        return self._rows(source, 0, rank * local[0] if unit.dim == 0 else 0, local[0])

    def _rows(self, source: str, row: int, first: int, count: int) -> Block:
        """`count` rows of a tensor from `first`, as far as it has them."""
        height, *columns = self._shapes[source]
        low, high = min(first, height), min(first + count, height)
        return Block(source, row, Box((low, *(0 for _ in columns)), (high, *columns)))

    def _grouped_blocks(self, unit: Unit, rank: int) -> Iterator[Block]:
        """q, k and v of one key-value head after the other."""
        decoder, row = self.decoder, 0
        ratio, groups = decoder.heads // decoder.kv_heads, decoder.kv_heads // self.tp
        for group in range(rank * groups, (rank + 1) * groups):
            for source, heads in zip(unit.sources, (ratio, 1, 1), strict=True):
                rows = heads * decoder.head_dim
                yield self._rows(source, row, group * rows, rows)
                row += rows

    # ---- whole models

    def sharding(self, replicas: int = 1) -> Sharding:
        """What each of replicas x pp x tp ranks holds, tensor-parallel ranks fastest."""
        one = [
            [block.held for unit in self.on_stage(stage) for block in self.blocks(unit, rank)]
            for stage in range(self.pp)
            for rank in range(self.tp)
        ]
        return dict(enumerate(one * replicas))

    def flat_sharding(self, replicas: int) -> Sharding:
        """The same, each replica with an equal flat part of its stage's parameters, end to end."""
        return {
            (replica * self.pp + stage) * self.tp + rank: list(
                self._flat_part(stage, rank, replica, replicas)
            )
            for replica in range(replicas)
            for stage in range(self.pp)
            for rank in range(self.tp)
        }

    def _flat_part(self, stage: int, rank: int, part: int, parts: int) -> Iterator[Held]:
        units = list(self.on_stage(stage))
        sizes = [prod(self.local_shape(unit)) for unit in units]
        each = -(-sum(sizes) // parts)
        low, high = part * each, (part + 1) * each
        for unit, size in zip(units, sizes, strict=True):
            begin, end = max(low, 0), min(high, size)
            for _, _, held in self.rectangles(unit, rank, begin, end):
                yield held
            low, high = low - size, high - size

    def rectangles(
        self, unit: Unit, rank: int, begin: int, end: int
    ) -> Iterator[tuple[int, int, Held]]:
        """(begin, end, box) of the parts of elements [begin, end) of a parameter, row by row, that
        are boxes of whole tensors.
        """
        columns = prod(self.local_shape(unit)[1:])
        for block in self.blocks(unit, rank):
            first = block.row * columns
            low, high = max(first, begin), min(first + block.box.size, end)
            for start, stop in _spans(low, high, columns):
                yield start, stop, Held(block.source, _part(block, start, stop, columns))


def _part(block: Block, start: int, stop: int, columns: int) -> Box:
    """Of elements [start, stop) of a parameter: whole rows, or a part of one."""
    row, column = divmod(start - block.row * columns, columns)
    width = min(columns, stop - start)
    height = (stop - start) // width
    rank = len(block.box.low)
    low = tuple(a + b for a, b in zip(block.box.low, (row, column), strict=False))
    return Box(low, tuple(a + b for a, b in zip(low, (height, width)[:rank], strict=True)))


def _spans(low: int, high: int, columns: int) -> Sequence[tuple[int, int]]:
    """[low, high) in rectangles: the end of a row, whole rows, the beginning of a row."""
    head = min(high, -(-low // columns) * columns)
    tail = max(head, high // columns * columns)
    spans = ((low, head), (head, tail), (tail, high))
    return [(start, end) for start, end in spans if start < end]
