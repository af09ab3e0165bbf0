"""Where a model comes from: a Hugging Face folder, or a folder without weights, which are then
drawn.

Fresh weights are a function of the run's seed and the tensor's name, whole: no layout changes them.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rpeg.lifetime import interrupts_end
from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.models.shape import ModelShape, read_shape
from rpeg.runtime.models.tokenizer import Tokenizer

HEAD = "score.weight"
"""The output layer of a model that scores."""


class ModelSource:
    """The weights of a model before the first step of a run."""

    def __init__(
        self, folder: Path, seed: int, *, critic: bool = False, two_heads: bool = False
    ) -> None:
        self.folder = folder
        self.seed = seed
        shape = read_shape(folder)
        self.shape: ModelShape = (
            shape.as_critic() if critic else shape.as_actor_critic() if two_heads else shape
        )
        self._files = _weight_files(folder)
        self._shapes = dict(self.shape.tensors())

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """The folder's tokenizer. Raises ModelFailure if the model lacks some of its tokens."""
        tokenizer = Tokenizer(self.folder)
        if tokenizer.size > self.shape.vocab:
            raise ModelFailure(
                f"{self.folder}: tokenizer.json has {tokenizer.size} tokens, config.json says "
                f"vocab_size {self.shape.vocab}: use the tokenizer that belongs to the model"
            )
        return tokenizer

    @property
    def has_weights(self) -> bool:
        """Whether the folder holds weights, rather than a shape only."""
        return bool(self._files)

    def read(self, name: str) -> Tensor:
        """The whole tensor of a Hugging Face name, float32; a new value head is zero.

        Raises ModelFailure if the folder has weights, but not this one, or one of another shape.
        """
        if not self._files or (name == HEAD and name not in self._files):
            return fresh(name, self._shapes[name], self.shape.init_std, self.seed)
        return self.stored(name).float()

    def stored(self, name: str) -> Tensor:
        """The whole tensor of a Hugging Face name, of the type that the file has.

        Raises ModelFailure without such a weight, or if it has another shape.
        """
        if name not in self._files:
            raise ModelFailure(f"{self.folder} has no weight {name}: it isn't {self.shape.family}")
        tensor = _load(self._files[name], name)
        if tuple(tensor.shape) != self._shapes[name]:
            raise ModelFailure(
                f"{self.folder}: {name} has shape {tuple(tensor.shape)}, "
                f"config.json says {self._shapes[name]}"
            )
        return tensor


def open_source(
    resolved: Path, source: str, seed: int, *, critic: bool = False, two_heads: bool = False
) -> ModelSource:
    """The model that `source` names: `resolved`, or of `hf:NAME` the hub's without that folder."""
    distant = source.startswith("hf:") and not resolved.is_dir()
    folder = _downloaded(source.removeprefix("hf:")) if distant else resolved
    return ModelSource(folder, seed, critic=critic, two_heads=two_heads)


def fresh(name: str, shape: tuple[int, ...], std: float, seed: int) -> Tensor:
    """A fresh weight: ones for norms, zeros for biases and value heads, else normal with
    deviation `std`.
    """
    if name.endswith("norm.weight"):
        return torch.ones(shape)
    if name.endswith(".bias") or name == HEAD:
        return torch.zeros(shape)
    digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.randn(shape, generator=generator) * std


def _weight_files(folder: Path) -> Mapping[str, Path]:
    """Tensor name -> the safetensors file that holds it; empty if the folder has none."""
    files: dict[str, Path] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with _opened(path) as content:
            files.update(dict.fromkeys(content.keys(), path))
    return files


def _load(path: Path, name: str) -> Tensor:
    with _opened(path) as content:
        tensor: Tensor = content.get_tensor(name)
        return tensor


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as content:
            yield content
    except (SafetensorError, OSError) as error:
        raise ModelFailure(
            f"{path} is damaged or no safetensors file ({error}): "
            "download or export the model again, or delete the file to draw fresh weights"
        ) from error


def _downloaded(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        with interrupts_end("interrupted: what is fetched by now stays in the cache"):
            return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))
    except HFValidationError as error:
        raise ModelFailure(
            f"`hf:{name}` names no model of the Hugging Face hub: write hf:NAME or hf:OWNER/NAME, "
            "of letters, digits, `-`, `_` and `.`"
        ) from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelFailure(
            f"hf:{name} is neither in the local cache nor reachable; "
            f"download it first (`hf download {name}`), or name a folder"
        ) from error
