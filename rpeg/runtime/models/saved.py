"""A model from wherever one was saved: a run's checkpoint, a Hugging Face folder, an export.

What the places have in common is a `SavedModel`: a folder with configuration and tokenizer, and
whole weights under Hugging Face names. Opening one needs one process and no launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rpeg.rundir.exports import newest_export
from rpeg.rundir.folder import RunFolder
from rpeg.rundir.manifest import NAME as MANIFEST
from rpeg.rundir.manifest import Manifest
from rpeg.runtime.errors import CheckpointFailure, ModelFailure
from rpeg.runtime.groups import device
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.models.model_source import ModelSource, open_source
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.state.checkpoint import (
    load_weights,
    model_folder,
    newest_sound,
    saved_models,
    saved_steps,
    step_name,
    verified,
)

PLACES = (
    "a run's folder, a checkpoint of it, a Hugging Face folder with weights, hf:NAME, "
    "or run:PIPELINE/MODEL"
)


@dataclass(frozen=True)
class SavedModel:
    """Implements `export.Exportable`, `interfaces.Sampled` and `interfaces.WeightSource`."""

    title: str
    """What messages call it."""
    name: str
    """Its name in the pipeline; of a Hugging Face folder, the folder's."""
    source: ModelSource
    """Its configuration and tokenizer."""
    read: Callable[[], NamedTensors]
    """Reads its weights, whole."""
    version: int = 0
    """Finished steps, where that is known."""
    notes: tuple[str, ...] = ()
    """Newer checkpoints that were refused, why, and what is used instead."""

    @property
    def hf_folder(self) -> Path:
        """The Hugging Face folder whose configuration and tokenizer it has."""
        return self.source.folder

    @property
    def shape(self) -> ModelShape:
        """Its architecture."""
        return self.source.shape

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        return self.source.tokenizer

    def named_tensors(self) -> NamedTensors:
        """(Hugging Face name, whole tensor on this process's device) of each weight; those of a
        second head stay in the checkpoint.
        """
        names = dict(self.shape.tensors())
        for name, tensor in self.read():
            if name in names:
                yield name, tensor.to(device())


def open_saved(
    where: str, *, step: int | None = None, model: str | None = None, runs: Path = Path("runs")
) -> SavedModel:
    """The model that `where` names: see `PLACES`; `run:` looks into the folder `runs`.

    Of a run `step` chooses the checkpoint (default: the newest that is sound), of a checkpoint
    `model` chooses the trained model (default: the only one). Raises ModelFailure or
    CheckpointFailure, with what is there instead.
    """
    path = Path(where)
    if where.startswith(("run:", "hf:")) or (path / "config.json").is_file():
        if step is not None or model is not None:
            raise ModelFailure(f"{where} is one model: --step and --model are for runs")
        folder = newest_export([runs.resolve()], where) if where.startswith("run:") else path
        return _of_folder(where, open_source(folder, where, seed=0))
    if (path / MANIFEST).is_file():
        if step is not None:
            raise ModelFailure(f"{where} is one checkpoint: --step is for the folder of a run")
        return _of_checkpoint(_sound(path), model)
    run = RunFolder(path)
    if run.read() is not None or run.checkpoints.is_dir():
        return _of_run(run.checkpoints, step, model)
    found = "holds no model" if path.exists() else "does not exist"
    raise ModelFailure(f"{where} {found}: name {PLACES}")


def _of_run(checkpoints: Path, step: int | None, model: str | None) -> SavedModel:
    steps = saved_steps(checkpoints)
    if not steps:
        raise CheckpointFailure(
            f"{checkpoints.parent} holds no checkpoint: a run writes one at `checkpoint()` "
            "and at its end"
        )
    if step is None:
        newest, notes = newest_sound(checkpoints)
        used = (f"using {step_name(newest)}",) if notes else ()
        return _of_checkpoint(checkpoints / step_name(newest), model, (*notes, *used))
    if step not in steps:
        there = ", ".join(map(str, steps))
        raise CheckpointFailure(f"{checkpoints} holds no step {step}; there is: {there}")
    return _of_checkpoint(_sound(checkpoints / step_name(step)), model)


def _sound(checkpoint: Path) -> Path:
    """The checkpoint, which was read as a whole. Raises CheckpointFailure if it is damaged."""
    damages = verified(checkpoint)
    if damages:
        others = ", ".join(str(step) for step in saved_steps(checkpoint.parent))
        raise CheckpointFailure(
            f"checkpoint {checkpoint} is damaged: {'; '.join(damages)}. "
            f"Put a sound copy back, or name another step ({others})"
        )
    return checkpoint


def _of_checkpoint(checkpoint: Path, model: str | None, notes: tuple[str, ...] = ()) -> SavedModel:
    names = saved_models(checkpoint)
    if model is None and len(names) > 1:
        raise ModelFailure(f"{checkpoint} holds {' and '.join(names)}: choose one with --model")
    if not names or model not in (None, *names):
        there = ", ".join(names) or "none"
        raise ModelFailure(f"{checkpoint} holds no trained model {model or ''}; there is: {there}")
    name = model or names[0]
    return SavedModel(
        title=f"{checkpoint} ({name})",
        name=name,
        source=ModelSource(model_folder(checkpoint, name), seed=0),
        read=lambda: load_weights(checkpoint, name),
        version=Manifest.read(checkpoint).step,
        notes=notes,
    )


def _of_folder(where: str, source: ModelSource) -> SavedModel:
    if not source.has_weights:
        raise ModelFailure(
            f"{where} holds a shape without weights: train it first, or name a trained model"
        )

    def read() -> NamedTensors:
        return ((name, source.stored(name)) for name, _ in source.shape.tensors())

    return SavedModel(where, source.folder.name, source, read)
