"""Recordings in files: tensors as safetensors, the rest as JSON beside them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from rpeg.interp.record import Recording, StepRecord
from rpeg.runtime.trajectories import Row, Trajectories

Tree = dict[str, dict[str, Tensor]]

_TENSORS = ("tokens", "mask", "versions", "finished", "ordinals", "samples")
"""Of trajectories."""
_GROUPS = ("sampled", "rewards", "logprobs")
"""Of a step."""
_PLAIN = ("grad_norms", "losses", "metrics", "events")
"""Of a step."""


def save(recording: Recording, folder: Path) -> None:
    """Writes `recording.json` and `recording.safetensors` into `folder`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {path: tensor.contiguous().clone() for path, tensor in _flat(recording)}
    save_file(tensors, str(folder / "recording.safetensors"))
    plain = {"pipeline": recording.pipeline, "steps": [_plain(step) for step in recording.steps]}
    (folder / "recording.json").write_text(json.dumps(plain), encoding="utf-8")


def load(folder: Path) -> Recording:
    """Reads what `save` wrote."""
    from safetensors.torch import load_file

    plain = json.loads((folder / "recording.json").read_text(encoding="utf-8"))
    tree = _tree(load_file(str(folder / "recording.safetensors")))
    weights = _tree(tree.get("weights", {}))
    steps = [_step(held, tree.get(f"step{i}", {})) for i, held in enumerate(plain["steps"])]
    return Recording(plain["pipeline"], steps, weights)


def _flat(recording: Recording) -> Iterator[tuple[str, Tensor]]:
    """(path with bars between its parts, tensor): names may hold dots and slashes."""
    for model, weights in recording.weights.items():
        yield from ((f"weights|{model}|{name}", tensor) for name, tensor in weights.items())
    for i, step in enumerate(recording.steps):
        for name, y in step.trajectories.items():
            yield from ((f"step{i}|{name}|{part}", getattr(y, part)) for part in _TENSORS)
        for group in _GROUPS:
            named = getattr(step, group).items()
            yield from ((f"step{i}|{group}:|{name}", tensor) for name, tensor in named)


def _tree(tensors: Mapping[str, Tensor]) -> Tree:
    """Tensors by the first part of their paths, then by the rest."""
    tree: Tree = {}
    for path, tensor in tensors.items():
        first, _, rest = path.partition("|")
        tree.setdefault(first, {})[rest] = tensor
    return tree


def _plain(step: StepRecord) -> dict[str, Any]:
    trajectories = {name: _plain_trajectories(y) for name, y in step.trajectories.items()}
    return {"trajectories": trajectories, **{name: getattr(step, name) for name in _PLAIN}}


def _plain_trajectories(y: Trajectories) -> dict[str, Any]:
    return {
        "rows": [[row.prompt, row.answer, row.completion, row.metadata] for row in y.rows],
        "prompt_ids": y.prompt_ids,
        "texts": y.texts,
        "n": y.n,
        "temperature": y.temperature,
    }


def _step(plain: dict[str, Any], tensors: Mapping[str, Tensor]) -> StepRecord:
    tree = _tree(tensors)
    groups: dict[str, Any] = {group: tree.get(f"{group}:", {}) for group in _GROUPS}
    return StepRecord(
        trajectories={
            name: _trajectories(held, tree[name]) for name, held in plain["trajectories"].items()
        },
        **groups,
        **{name: plain[name] for name in _PLAIN},
    )


def _trajectories(plain: dict[str, Any], tensors: Mapping[str, Tensor]) -> Trajectories:
    return Trajectories(
        rows=tuple(Row(*row) for row in plain["rows"]),
        prompt_ids=tuple(tuple(ids) for ids in plain["prompt_ids"]),
        texts=tuple(plain["texts"]),
        n=plain["n"],
        temperature=plain["temperature"],
        **tensors,
    )
