"""Recordings of runs, and their files: tensors as safetensors, the rest as JSON beside them.

Half of a recording is an oracle's answers, which another execution can replay; the other half is
what an execution made of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from rpeg.runtime.recordings import plain as taken_apart
from rpeg.runtime.trajectories import Trajectories

Tree = dict[str, dict[str, Tensor]]

_GROUPS = ("sampled", "rewards", "logprobs", "values", "trained_rows", "trained")
"""Of a step."""
TARGETS = ("advantages", "returns")
"""Fields of loss terms that a model is trained towards."""
_PLAIN = ("makers", "grad_norms", "losses", "metrics", "events")
"""Of a step."""


@dataclass
class StepRecord:
    """One step. Keys are names in the text: of values, or of models where it says so."""

    trajectories: dict[str, Trajectories] = field(default_factory=dict)
    sampled: dict[str, Tensor] = field(default_factory=dict)
    """[samples, max_tokens] log-probs that the trajectories of this name were sampled under."""
    rewards: dict[str, Tensor] = field(default_factory=dict)
    """[samples] rewards of verifiers."""
    logprobs: dict[str, Tensor] = field(default_factory=dict)
    """[samples, max_tokens] log-probs that the step computed apart from updates."""
    values: dict[str, Tensor] = field(default_factory=dict)
    """Likewise values of critics and scores of tokens [samples, max_tokens], and of reward models
    [samples, 1].
    """
    makers: dict[str, str] = field(default_factory=dict)
    """Of trajectories, rewards, log-probs and values: the model or verifier that gave them, in
    order.
    """
    trained_rows: dict[str, Tensor] = field(default_factory=dict)
    """By `MODEL/K`: [rows] the samples of its optimizer step K that have a loss, ascending."""
    trained: dict[str, Tensor] = field(default_factory=dict)
    """By `MODEL/K/WHAT`, of these samples: `logprob` and `values` [rows, max_tokens] under the
    weights before it, `advantages` and `returns` that it trains towards, and by `loss/TERM` what
    each adds to the loss [rows, 1].
    """
    grad_norms: dict[str, list[float]] = field(default_factory=dict)
    """By model: the global norm before clipping, of each optimizer step."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """By model, of each optimizer step."""
    metrics: dict[str, float] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    """What a run would have written or ended: `checkpoint`, `export MODEL to FOLDER`, `stop`."""

    def made_by(self, maker: str, kind: Mapping[str, Any]) -> list[str]:
        """Names of the trajectories, rewards or log-probs that a model or verifier gave."""
        return [name for name in kind if self.makers.get(name) == maker]


@dataclass
class Recording:
    """A run of a pipeline."""

    pipeline: str
    steps: list[StepRecord] = field(default_factory=list)
    weights: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    """By trained model: its weights after the last step, under Hugging Face names."""
    greedy: dict[str, Tensor] = field(default_factory=dict)
    """By the name of trajectories: [prompts, max_tokens] what the model's final weights say to the
    prompts of the last step, the most probable token each time; -1 past the end."""


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
    return Recording(plain["pipeline"], steps, weights, tree.get("greedy", {}))


def _flat(recording: Recording) -> Iterator[tuple[str, Tensor]]:
    """(path with bars between its parts, tensor): names may hold dots and slashes."""
    for model, weights in recording.weights.items():
        yield from ((f"weights|{model}|{name}", tensor) for name, tensor in weights.items())
    yield from ((f"greedy|{name}", tensor) for name, tensor in recording.greedy.items())
    for i, step in enumerate(recording.steps):
        for name, y in step.trajectories.items():
            yield from ((f"step{i}|{name}|{part}", t) for part, t in taken_apart.tensors(y).items())
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
    trajectories = {name: taken_apart.rest(y) for name, y in step.trajectories.items()}
    return {"trajectories": trajectories, **{name: getattr(step, name) for name in _PLAIN}}


def _step(plain: dict[str, Any], tensors: Mapping[str, Tensor]) -> StepRecord:
    tree = _tree(tensors)
    order = list(plain["makers"])
    groups: dict[str, Any] = {group: _sorted(tree.get(f"{group}:", {}), order) for group in _GROUPS}
    return StepRecord(
        trajectories={
            name: taken_apart.trajectories(held, tree[name])
            for name, held in plain["trajectories"].items()
        },
        **groups,
        **{name: plain[name] for name in _PLAIN},
    )


def _sorted(named: dict[str, Tensor], order: list[str]) -> dict[str, Tensor]:
    """In the order in which they were made, which files of tensors don't keep."""
    return {name: named[name] for name in [*order, *sorted(named.keys() - order)] if name in named}
