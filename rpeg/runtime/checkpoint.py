"""Checkpoints: the whole state after a step, committed by one rename.

`checkpoints/step-000020/` holds one file for each part of the state, or for each piece of a part
that is sharded, and `manifest.json`. A part is anything with `state_dict` and `load_state_dict`; no
random state is kept, since every draw is a function of its coordinates.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from rpeg.runtime import world
from rpeg.runtime.errors import CheckpointFailure
from rpeg.runtime.files import commit_folder, empty_folder, write_atomic


class Stateful(Protocol):
    """A part of a run's state: tensors, numbers, texts, and lists and dicts of them."""

    def state_dict(self) -> dict[str, Any]:
        """The state now."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts a saved state back."""
        ...


@dataclass(frozen=True)
class Part:
    """A part of the state as one process sees it."""

    name: str
    owner: Stateful
    shard: str = ""
    """Which piece of a sharded part this process holds; empty: the part is the same everywhere."""
    writes: bool = True
    """Whether this process writes the piece."""

    @property
    def file(self) -> str:
        return f"{self.name}.{self.shard}.pt" if self.shard else f"{self.name}.pt"


def save(folder: Path, step: int, parts: list[Part], keep: int) -> None:
    """Writes the checkpoint after `step` steps and keeps the newest `keep`. Collective."""
    temporary, final = folder / f".step-{step:06d}.tmp", _path(folder, step)
    world.on_first(lambda: empty_folder(temporary))
    for part in parts:
        if part.writes:
            _write(temporary / part.file, part.owner.state_dict())
    world.barrier()

    def commit() -> None:
        manifest = {"step": step, "processes": world.size(), "files": sorted(os.listdir(temporary))}
        write_atomic(temporary / "manifest.json", json.dumps(manifest, indent=2) + "\n")
        commit_folder(temporary, final)
        for outdated in saved_steps(folder)[:-keep]:
            shutil.rmtree(_path(folder, outdated))

    world.on_first(commit)


def restore(folder: Path, parts: list[Part]) -> int:
    """Loads the newest checkpoint into the parts; returns its step, 0 without one. Collective."""
    step = world.on_first(lambda: max(saved_steps(folder), default=0))
    for part in parts if step else []:
        part.owner.load_state_dict(_read(_path(folder, step), part))
    return step


def saved_steps(folder: Path) -> list[int]:
    """Steps of the committed checkpoints, oldest first."""
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


def _write(path: Path, state: dict[str, Any]) -> None:
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _read(checkpoint: Path, part: Part) -> dict[str, Any]:
    path = checkpoint / part.file
    if not path.exists():
        raise CheckpointFailure(
            f"{checkpoint} holds no {part.file}: it was written by another program or layout "
            f"(found: {', '.join(sorted(p.name for p in checkpoint.glob('*.pt')))}); "
            "set RPEG_RUN_DIR to a new folder, or go back to the plan that wrote it"
        )
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointFailure(
            f"{path} cannot be read ({error}); delete {checkpoint} to go back to an older one"
        ) from error
    return state


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:06d}"
