"""Trajectories taken apart: named tensors, and what JSON can hold of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rpeg.runtime.trajectories import Row, Trajectories

TENSORS = ("tokens", "mask", "versions", "finished", "ordinals", "samples")


def tensors(y: Trajectories) -> dict[str, Tensor]:
    """Its tensors by name."""
    return {name: getattr(y, name) for name in TENSORS}


def rest(y: Trajectories) -> dict[str, Any]:
    """The rest: lists, dicts, texts and numbers. Where rows are written is left out."""
    return {
        "rows": [[row.prompt, row.answer, row.completion, row.metadata] for row in y.rows],
        "prompt_ids": [list(ids) for ids in y.prompt_ids],
        "texts": list(y.texts),
        "n": y.n,
        "temperature": y.temperature,
    }


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
