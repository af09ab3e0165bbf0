"""The shapes of a pipeline's models: by names on Hugging Face, folders, or the user's word."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.ir import Operation

from rpeg.cost.architecture import Architecture
from rpeg.cost.architecture_files import find, load_architecture
from rpeg.ir.declared import declarations
from rpeg.ir.figures import FigureError
from rpeg.ir.ops.declare import ModelOp
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value
from rpeg.resources import found

SCALAR = ("value", "reward", "process_reward")
"""Forms whose head gives one number instead of logits."""

WIDTH = {"bf16": 2.0, "fp32": 4.0}
"""Bytes of a weight, by the datatype that a model is declared with."""


TUNED = re.compile(r"-(instruct|base|chat|it)$", re.IGNORECASE)
"""What a name ends with where training, and not the shape, differs."""


class ShapeError(Exception):
    """A model whose shape, or a line whose lengths, nothing tells: where, and what to write."""

    def __init__(self, op: Operation, message: str) -> None:
        super().__init__(message)
        self.op = op
        self.message = message


@dataclass(frozen=True)
class ModelShape:
    """A declared model as costs see it."""

    name: str
    shape: Architecture
    trained: float
    """Share of the weights that get gradients: 0 of a frozen model, little under LoRA."""
    width: float
    """Bytes of a weight."""

    @property
    def weight_bytes(self) -> float:
        """All of its weights."""
        return self.width * self.shape.parameters


def model_shapes(
    pipeline: Operation, folder: Path, named: Mapping[str, str]
) -> dict[str, ModelShape]:
    """The shape of each declared model; `named` overrides what the file says, by model.

    Paths are relative to `folder`, that of the file. Raises ShapeError.
    """
    declared = {op.title: op for op in declarations(pipeline) if isinstance(op, ModelOp)}
    return {name: _model(op, declared, folder, named) for name, op in declared.items()}


def _model(
    op: ModelOp, declared: Mapping[str, ModelOp], folder: Path, named: Mapping[str, str]
) -> ModelShape:
    shape = _shape(op, declared, folder, named)
    if op.form_name in SCALAR:
        shape = _with_scalar_head(shape)
    return ModelShape(op.title, shape, _trained(op, shape), WIDTH[op.text_of("dtype") or "bf16"])


def _shape(
    op: ModelOp, declared: Mapping[str, ModelOp], folder: Path, named: Mapping[str, str]
) -> Architecture:
    """By the name the user gave, that of the model it starts from, or its source."""
    if op.title in named:
        try:
            return load_architecture(named[op.title])
        except FigureError as error:
            raise ShapeError(op, str(error)) from error
    if op.initial is not None and op.initial in declared:
        return _shape(declared[op.initial], declared, folder, named)
    shape = _of_source(op, op.uri or "", folder)
    if shape is None:
        text = (
            f"nothing tells the shape of `{op.title}` ({op.uri}): "
            f"name one with --arch {op.title}=qwen2.5-7b, or the path of a config.json"
        )
        raise ShapeError(op, text)
    return shape


def _of_source(op: ModelOp, uri: str, folder: Path) -> Architecture | None:
    scheme, colon, rest = uri.partition(":")
    if colon:
        return published(rest) if scheme == "hf" else None
    path = found(folder, uri) / "config.json"
    if not path.is_file():
        return find(Path(uri).name)
    try:
        return load_architecture(str(path))
    except FigureError as error:
        raise ShapeError(op, str(error)) from error


def published(name: str) -> Architecture | None:
    """The shape of a model by its name on Hugging Face, where one of `architectures/` has it."""
    return find(name) or find(TUNED.sub("", name))


def _with_scalar_head(shape: Architecture) -> Architecture:
    """The table of the vocabulary stays; the head is one row, and there are no logits."""
    rows = shape.positions + shape.vocabulary
    return replace(shape, vocabulary=1, positions=rows, tied=True)


def _trained(op: ModelOp, shape: Architecture) -> float:
    """1 where every weight is trained; the adapters' share under LoRA: two matrices of its rank
    around each of a layer's.
    """
    if op.optim is None:
        return 0.0
    if not isinstance(op.lora, RecordAttr):
        return 1.0
    rank = python_value(op.lora.settings.get("rank"))
    assert isinstance(rank, int)
    sides = sum(k + n for k, n, _ in shape.projections)
    sides += shape.mlp_matrices * (shape.hidden + shape.ffn)
    return rank * shape.layers * sides / shape.parameters
