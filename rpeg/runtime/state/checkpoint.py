"""Checkpoints: the whole state after a step, committed by one rename.

checkpoints/step-000020/
  manifest.json    layouts, size and checksum of every file
  NAME.pt          a plain part, the same on every process: the run, data cursors, the ledger
  NAME.0-of-2.pt   a part of which each data-parallel share holds its own: buffers
  MODEL/           weights and optimizer of a trained model, by Megatron-Core's dist_checkpointing
  models/MODEL/    its configuration and tokenizer

Each pool writes its own models. The home pool begins a checkpoint and commits it, once every other
one has said what it wrote.

No random state is kept: every draw is a function of its coordinates. Models are stored whole, under
Hugging Face names, so another layout can go on from them.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from rpeg.rundir.ahead import refuse_buffers, refuse_order
from rpeg.rundir.files import commit_folder, empty_folder, remove_folder
from rpeg.rundir.manifest import Manifest, Written, damages, record_files
from rpeg.runtime import world
from rpeg.runtime.errors import CheckpointFailure
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.layout import Layout
from rpeg.runtime.models.export import copy_configuration
from rpeg.runtime.models.shape import ModelShape

WEIGHTS = "weights."
"""How the keys of a stored model's weights begin; its optimizer's begin otherwise."""


class Stateful(Protocol):
    """A plain part of a run's state: tensors, numbers, texts, and lists and dicts of them.

    It is the same on every process.
    """

    def state_dict(self) -> dict[str, Any]:
        """The state now."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts a saved state back."""
        ...


class Sharded(Protocol):
    """A trained model: its state is spread over the processes of its layout."""

    @property
    def layout(self) -> Layout:
        """How it is spread."""
        ...

    @property
    def shape(self) -> ModelShape:
        """Its architecture."""
        ...

    @property
    def hf_folder(self) -> Path:
        """The Hugging Face folder whose configuration and tokenizer it has."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        ...

    def save_shards(self, folder: Path) -> None:
        """Writes weights and optimizer into an empty folder. Collective."""
        ...

    def load_shards(self, folder: Path) -> None:
        """Reads what `save_shards` wrote, under any layout. Collective."""
        ...


class Shared(Protocol):
    """A plain part of a run's state of which every data-parallel share holds its own."""

    @property
    def saves(self) -> tuple[int, int] | None:
        """(index, width) of the share that this process writes; None if another one does."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The state of this process's share now."""
        ...

    def load_shares(self, states: Sequence[dict[str, Any]]) -> None:
        """Puts back what all shares saved, in their order, whatever this process's share is; of a
        checkpoint without it, nothing.
        """
        ...


class Others(Protocol):
    """Other pools that train models, which the first process of the home pool speaks with; in the
    other processes nothing happens.
    """

    def begin(self) -> None:
        """Has them write their models, now that the checkpoint's folder is there."""
        ...

    def written(self) -> list[Written]:
        """What each of them wrote; waits until they have."""
        ...


@dataclass(frozen=True)
class State:
    """Everything that a checkpoint holds, by name."""

    parts: dict[str, Stateful] = field(default_factory=dict)
    models: dict[str, Sharded] = field(default_factory=dict)
    away: dict[str, dict[str, Any]] = field(default_factory=dict)
    """States of parts that other pools hold, as of the step that is saved; of a part that this pool
    holds too, theirs counts."""
    shares: dict[str, Shared] = field(default_factory=dict)


@dataclass(frozen=True)
class Restored:
    """Where a run goes on."""

    step: int = 0
    """Finished steps; 0 without a checkpoint."""
    notes: tuple[str, ...] = ()
    """What the user should know: refused checkpoints, a change of layout."""


def save(folder: Path, step: int, state: State, keep: int, others: Others | None = None) -> None:
    """Writes the checkpoint after `step` steps, with what other pools write of it, and keeps the
    newest `keep`. Collective.

    Raises CheckpointFailure if the disk refuses it; the older checkpoints are still there then.
    """
    temporary = _temporary(folder, step)
    with _on_disk(temporary):
        world.on_first(lambda: _write_plain(empty_folder(temporary), state))
        if others is not None:
            others.begin()
        _write_shares(temporary, state)
        mine = _write_models(temporary, state.models, plain=True)
        theirs = others.written() if others is not None else []
        world.on_first(lambda: _commit(temporary, step, [mine, *theirs], keep))


def save_models(folder: Path, step: int, models: Mapping[str, Sharded]) -> Written:
    """Writes models of another pool than the home pool, which has begun the checkpoint after `step`
    steps. Collective over this pool. Raises CheckpointFailure if the disk refuses it.
    """
    temporary = _temporary(folder, step)
    with _on_disk(temporary):
        return _write_models(temporary, models, plain=False)


def _temporary(folder: Path, step: int) -> Path:
    """Where a checkpoint is until it is whole."""
    return folder / f".{step_name(step)}.tmp"


@contextmanager
def _on_disk(temporary: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointFailure(f"the checkpoint {temporary} can't be written: {error}") from error


def _write_plain(temporary: Path, state: State) -> None:
    plain = {name: part.state_dict() for name, part in state.parts.items()}
    for name, content in (plain | state.away).items():
        torch.save(content, temporary / f"{name}.pt")


def _write_models(temporary: Path, models: Mapping[str, Sharded], *, plain: bool) -> Written:
    """Writes models; what this pool wrote then, with the `plain` parts or without."""
    world.on_first(lambda: _write_configurations(temporary, models))
    for name, model in models.items():
        model.save_shards(temporary / name)
    world.barrier()
    mine = slice(world.rank(), None, world.size())  # each file is read by one process
    shares = world.gather(record_files(temporary, _files(temporary, models, plain=plain)[mine]))
    files = {name: record for share in shares for name, record in share.items()}
    return Written({name: asdict(model.layout) for name, model in models.items()}, files)


def _write_configurations(temporary: Path, models: Mapping[str, Sharded]) -> None:
    for name, model in models.items():
        (temporary / name).mkdir()
        folder, scores = temporary / "models" / name, model.shape.critic
        folder.mkdir(parents=True)
        copy_configuration(model.hf_folder, folder, model.dtype, scores=scores)


def _files(temporary: Path, models: Iterable[str], *, plain: bool) -> list[str]:
    """Paths within the folder of what this pool wrote; others may be writing theirs."""
    folders = [temporary / part for name in models for part in (name, f"models/{name}")]
    found = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found += temporary.glob("*.pt") if plain else ()
    return sorted(str(path.relative_to(temporary)) for path in found)


def _write_shares(temporary: Path, state: State) -> None:
    for name, part in state.shares.items():
        if part.saves is not None:
            index, width = part.saves
            torch.save(part.state_dict(), temporary / f"{name}.{index}-of-{width}.pt")


def _commit(temporary: Path, last: int, parts: Sequence[Written], keep: int) -> None:
    folder = temporary.parent
    layouts = {name: layout for part in parts for name, layout in part.layouts.items()}
    files = {name: record for part in parts for name, record in part.files.items()}
    Manifest(last, world.size(), layouts, dict(sorted(files.items()))).write(temporary)
    commit_folder(temporary, folder / step_name(last))
    # A later step belongs to a history that was refused when this launch started.
    steps = saved_steps(folder)
    kept = [step for step in steps if step <= last][-keep:]
    for step in set(steps).difference(kept):
        remove_folder(folder / step_name(step))


def restore(folder: Path, state: State) -> Restored:
    """Loads the newest sound checkpoint, if there is any, into the state. Collective.

    Raises CheckpointFailure if there are checkpoints, but none is sound or fits the program.
    """
    world.on_first(lambda: _tidy(folder))
    step, notes = newest_sound(folder, _verified_together)
    if not step:
        return Restored()
    checkpoint = folder / step_name(step)
    for name, part in state.parts.items():
        part.load_state_dict(_read_plain(checkpoint, f"{name}.pt"))
    refuse_buffers(checkpoint, state.shares)
    for name, share in state.shares.items():
        share.load_shares(_read_shares(checkpoint, name))
    return Restored(step, (*notes, *restore_models(folder, step, state.models)))


def restore_models(folder: Path, step: int, models: Mapping[str, Sharded]) -> list[str]:
    """Loads a pool's models of a sound checkpoint; a line for each that another layout wrote.
    Collective over the pool. Raises CheckpointFailure if one isn't there.
    """
    checkpoint = folder / step_name(step)
    for name, model in models.items():
        model.load_shards(_model_shards(checkpoint, name))
    return _moved(Manifest.read(checkpoint), models)


def read_parts(folder: Path, step: int, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """States of plain parts in the checkpoint after `step`, for all other pools.

    Raises CheckpointFailure if one isn't there, or if there is something in flight that is not
    among them.
    """
    refuse_order(folder / step_name(step), names)
    return {name: _read_plain(folder / step_name(step), f"{name}.pt") for name in names}


def _tidy(folder: Path) -> None:
    """Removes what killed processes left half written or half removed."""
    for leftover in folder.glob(".step-*"):
        remove_folder(leftover)


def _verified_together(checkpoint: Path) -> list[str]:
    shares = world.gather(damages(checkpoint, (world.rank(), world.size())))
    return list(dict.fromkeys(damage for share in shares for damage in share))


def _moved(manifest: Manifest, models: Mapping[str, Sharded]) -> list[str]:
    """A line for each model that another layout wrote."""
    lines = []
    for name, model in models.items():
        then, now = manifest.layouts[name], asdict(model.layout)
        if then != now:
            settings = (
                f"{_settings(now)}; {step_name(manifest.step)} was written on {_settings(then)}"
            )
            lines.append(f"`{name}` continues on another layout: {settings}")
    return lines


def _settings(layout: Mapping[str, Any]) -> str:
    """What differs from the layout of one process: `tp=2, zero=1`."""
    default = asdict(Layout())
    settings = [f"{name}={value}" for name, value in layout.items() if value != default.get(name)]
    return ", ".join(settings) or "one process"


def verified(checkpoint: Path) -> list[str]:
    """What is wrong with a checkpoint, one text per file; empty if it is sound. Reads all of it."""
    return damages(checkpoint)


def newest_sound(
    folder: Path, verify: Callable[[Path], list[str]] = verified
) -> tuple[int, list[str]]:
    """(step, a note on each newer checkpoint that was refused); step 0 if there are none at all.

    Raises CheckpointFailure if there are checkpoints, but all are damaged.
    """
    notes: list[str] = []
    for step in reversed(saved_steps(folder)):
        found = verify(folder / step_name(step))
        if not found:
            return step, notes
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        notes.append(f"checkpoint {step_name(step)} is damaged: {found[0]}{more}")
    if notes:
        raise CheckpointFailure(
            f"no checkpoint in {folder} can be used: {'; '.join(notes)}. "
            f"Put a sound copy back, or delete {folder} to train from the beginning"
        )
    return 0, []


def saved_steps(folder: Path) -> list[int]:
    """Steps of the committed checkpoints, oldest first."""
    return sorted(int(path.name.removeprefix("step-")) for path in folder.glob("step-*"))


def saved_models(checkpoint: Path) -> list[str]:
    """Names of the trained models in a checkpoint."""
    return sorted(path.parent.name for path in checkpoint.glob("*/.metadata"))


def model_folder(checkpoint: Path, model: str) -> Path:
    """The folder with a stored model's configuration and tokenizer."""
    return _model_shards(checkpoint, model).parent / "models" / model


def load_weights(checkpoint: Path, model: str) -> NamedTensors:
    """(Hugging Face name, whole tensor) of a stored model's weights, one after the other.

    For one process, whatever layout wrote them; neither a launcher nor Megatron-Core is needed.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = FileSystemReader(_model_shards(checkpoint, model))
    for key, stored in reader.read_metadata().state_dict_metadata.items():
        if key.startswith(WEIGHTS) and isinstance(stored, TensorStorageMetadata):
            tensor = torch.empty(stored.size, dtype=stored.properties.dtype)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it warns that one process loads
                load({key: tensor}, storage_reader=reader, no_dist=True)
            yield key.removeprefix(WEIGHTS), tensor


def _model_shards(checkpoint: Path, model: str) -> Path:
    if model not in saved_models(checkpoint):
        there = ", ".join(saved_models(checkpoint)) or "none"
        raise CheckpointFailure(
            f"{checkpoint} holds no trained model `{model}` (it holds: {there}); "
            "it belongs to another pipeline"
        )
    return checkpoint / model


def _read_shares(checkpoint: Path, name: str) -> list[dict[str, Any]]:
    """What all shares saved of a part, whatever their number was; nothing if it was not there."""
    found = next(checkpoint.glob(f"{name}.0-of-*.pt"), None)
    if found is None:
        return []
    width = int(found.stem.rpartition("-of-")[2])
    return [_read_plain(checkpoint, f"{name}.{k}-of-{width}.pt") for k in range(width)]


def _read_plain(checkpoint: Path, file: str) -> dict[str, Any]:
    path = checkpoint / file
    if not path.exists():
        raise CheckpointFailure(
            f"{checkpoint} holds no {file}: it was written by another program "
            f"(found: {', '.join(sorted(p.name for p in checkpoint.glob('*.pt')))}); "
            "set RPEG_RUN_DIR to a new folder, or go back to the program that wrote it"
        )
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointFailure(f"{path} can't be read: {error}") from error
    return state


def step_name(step: int) -> str:
    """A checkpoint's name in its folder."""
    return f"step-{step:06d}"
