"""Trained models out of a run, as Hugging Face folders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Protocol

import torch

from rpeg.rundir.files import commit_folder, empty_folder
from rpeg.rundir.folder import RunFolder
from rpeg.rundir.manifest import NAME as MANIFEST
from rpeg.runtime import world
from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.models.model_source import HEAD
from rpeg.runtime.models.shape import CLASSIFIER, ModelShape

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".h5", ".msgpack", ".index.json")


class Exportable(Protocol):
    """A model that can leave a run."""

    @property
    def name(self) -> str:
        """Its name in the pipeline."""
        ...

    @property
    def hf_folder(self) -> Path:
        """The Hugging Face folder whose configuration and tokenizer it has."""
        ...

    @property
    def shape(self) -> ModelShape:
        """Its architecture."""
        ...

    def named_tensors(self) -> NamedTensors:
        """Its weights, whole, under Hugging Face names. Collective over the model's groups."""
        ...


def export_model(model: Exportable, target: Path) -> None:
    """Writes weights, configuration and tokenizer to `target`, whole or not at all. Collective.

    Of a trunk with two heads the language model leaves: other programs know no second head.
    """
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in model.named_tensors():
        left_out = model.shape.two_heads and name == HEAD
        if world.rank() == 0 and not left_out:
            weights[name] = tensor.detach().to("cpu", copy=True)  # a view would keep its padding
    world.on_first(lambda: _write(weights, model.hf_folder, target))


def _write(weights: dict[str, torch.Tensor], source: Path, target: Path) -> None:
    from huggingface_hub import save_torch_state_dict

    check_target(target)
    temporary = empty_folder(target.with_name(f".{target.name}.tmp"))
    save_torch_state_dict(weights, temporary)
    dtype = next(iter(weights.values())).dtype
    copy_configuration(source, temporary, dtype, scores=HEAD in weights)
    commit_folder(temporary, target)


def check_target(target: Path) -> None:
    """Raises ModelFailure if an export to `target` would destroy anything but an older model."""
    if not _replaceable(target):
        raise ModelFailure(
            f"export target {target} exists and is not a model folder; choose another folder"
        )
    resolved = target.resolve()
    if any(map(_holds_checkpoints, (resolved, *resolved.parents))):
        raise ModelFailure(
            f"export target {target} lies among the checkpoints of a run; choose another folder"
        )


def copy_configuration(source: Path, target: Path, dtype: torch.dtype, *, scores: bool) -> None:
    """Copies what a model folder holds beside weights; the configuration names `dtype`, and of a
    model that scores the architecture with one label.
    """
    for file in source.iterdir():
        if file.is_file() and not file.name.endswith(_WEIGHTS):
            shutil.copyfile(file, target / file.name)
    _describe(target / "config.json", dtype, scores)


def _describe(config: Path, dtype: torch.dtype, scores: bool) -> None:
    content = json.loads(config.read_text(encoding="utf-8"))
    content.pop("torch_dtype", None)
    content["dtype"] = str(dtype).removeprefix("torch.")
    if scores:
        content["architectures"] = [f"{content['model_type'].capitalize()}{CLASSIFIER}"]
        content |= {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
    config.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _replaceable(target: Path) -> bool:
    """Whether nothing is lost but a model that was there before."""
    if target.is_dir():
        return (target / "config.json").exists() or not any(target.iterdir())
    return not target.exists()


def _holds_checkpoints(folder: Path) -> bool:
    """Whether a folder is a checkpoint, or where a run keeps them."""
    run = RunFolder(folder.parent)
    kept = folder == run.checkpoints and (run.path / "run.json").exists()
    return kept or (folder / MANIFEST).is_file()
