"""A model from wherever one was saved: a run's checkpoint, a Hugging Face folder, an export.

What the places have in common is a `SavedModel`: a folder with configuration and tokenizer, and
whole weights under Hugging Face names. Opening one needs one process and no launcher.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.export import newest_export
from rpeg.runtime.groups import device
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.model_source import ModelSource, open_source
from rpeg.runtime.shape import ModelShape
from rpeg.runtime.tokenizer import Tokenizer

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
        """(Hugging Face name, whole tensor on this process's device) of each weight."""
        for name, tensor in self.read():
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
    found = "holds no model" if path.exists() else "does not exist"
    raise ModelFailure(f"{where} {found}: name {PLACES}")


def _of_folder(where: str, source: ModelSource) -> SavedModel:
    if not source.has_weights:
        raise ModelFailure(
            f"{where} holds a shape without weights: train it first, or name a trained model"
        )

    def read() -> NamedTensors:
        return ((name, source.stored(name)) for name, _ in source.shape.tensors())

    return SavedModel(where, source.folder.name, source, read)
