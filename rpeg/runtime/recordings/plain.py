"""Trajectories taken apart: named tensors, and what JSON can hold of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from rpeg.runtime.errors import DataFailure
from rpeg.runtime.trajectories import Row, Trajectories

PLAIN = (str, int, float, bool, bytes, type(None))

TENSORS = ("tokens", "mask", "versions", "finished", "ordinals", "samples")


def tensors(y: Trajectories) -> dict[str, Tensor]:
    """Its tensors by name."""
    return {name: getattr(y, name) for name in TENSORS}


def rest(y: Trajectories) -> dict[str, Any]:
    """Everything else: lists, dicts, texts and numbers, without the places of rows."""
    return {
        "rows": [row(each) for each in y.rows],
        "prompt_ids": [list(ids) for ids in y.prompt_ids],
        "texts": list(y.texts),
        "n": y.n,
        "temperature": y.temperature,
    }


def row(held: Row) -> list[Any]:
    """A row's fields but for its place: `Row(*fields)` makes it again."""
    return [held.prompt, held.answer, held.completion, held.metadata]


def portable_row(held: Row) -> Row:
    """A row that a file gives back as it is. Raises DataFailure where it holds something else."""
    try:
        return replace(held, metadata=portable(held.metadata))
    except TypeError as error:
        raise DataFailure(
            f"{held.place}: a field holds a {error}, which batches that wait for their step can't "
            "keep: make it a text or a number"
        ) from None


def trajectories(held: Mapping[str, Any], parts: Mapping[str, Tensor]) -> Trajectories:
    """What `rest` and `tensors` were made from."""
    return Trajectories(
        rows=tuple(Row(*row) for row in held["rows"]),
        prompt_ids=tuple(tuple(ids) for ids in held["prompt_ids"]),
        texts=tuple(held["texts"]),
        n=held["n"],
        temperature=held["temperature"],
        **parts,
    )


def portable(value: Any) -> Any:
    """The same of Python's own texts, numbers, lists, tuples, sets and dicts, which files keep as
    they are; numpy's texts and numbers become those. Raises TypeError, which names the type, for
    anything else.
    """
    if type(value) in PLAIN:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple, set):
        return type(value)(map(portable, value))
    if type(value) is dict:
        return {portable(key): portable(held) for key, held in value.items()}
    raise TypeError(type(value).__name__)
