"""What a hardened pipeline reads: where models and data are, and copies of models with other
weights.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rpeg.rundir.exports import newest_export
from rpeg.runtime.models.model_source import ModelSource, open_source
from rpeg.tools.console import Source
from rpeg.tools.sources import path_of

SPREAD = 0.1
"""Standard deviation of the noise on a tensor, as a part of the root mean square of its values."""
_SHIPPED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


@dataclass(frozen=True)
class ModelFolders:
    """Finds the models and data of one pipeline, and makes copies of models in `out`."""

    source: Source
    out: Path
    seed: int
    instead: Path | None = None
    """A model that stands for every one of the pipeline."""

    def of_source(self, uri: str) -> Path:
        """The folder that a source means, downloaded if it must be. Raises RuntimeFailure."""
        if self.instead is not None:
            return self.instead.resolve()
        if uri.startswith("run:"):
            return newest_export([Path("runs").resolve()], uri)
        return open_source(path_of(self.source, uri), uri, self.seed).folder.resolve()

    def of_data(self, uri: str) -> str:
        """The source of a data set, under its whole path if it is a file."""
        return uri if ":" in uri else str(path_of(self.source, uri).resolve())

    def perturbed(self, folder: Path, *, scores: bool = False) -> Path:
        """A copy whose weights differ everywhere by some noise; one that scores has a head for it,
        a new one if it must. Raises RuntimeFailure.
        """
        from safetensors.torch import save_file

        copy = self.out / f"{folder.name}-{'scoring' if scores else 'perturbed'}"
        if not copy.is_dir():
            source = ModelSource(folder, self.seed, critic=scores)
            copy.mkdir(parents=True)
            (copy / "config.json").write_text(_in_fp32(folder / "config.json"), encoding="utf-8")
            for name in _SHIPPED:
                if (folder / name).is_file():
                    shutil.copy(folder / name, copy)
            draw = torch.Generator().manual_seed(self.seed)
            named = source.shape.tensors()
            std = source.shape.init_std
            tensors = {name: _noisy(source.read(name), draw, std) for name, _ in named}
            save_file(tensors, str(copy / "model.safetensors"), metadata={"format": "pt"})
        return copy


def _in_fp32(config: Path) -> str:
    return json.dumps({**json.loads(config.read_text(encoding="utf-8")), "dtype": "float32"})


def _noisy(tensor: Tensor, draw: torch.Generator, std: float) -> Tensor:
    """The tensor with noise; that of a tensor of zeros has the deviation of fresh weights."""
    scale = float(tensor.square().mean().sqrt())
    return tensor + (SPREAD * scale or std) * torch.randn(tensor.shape, generator=draw)
