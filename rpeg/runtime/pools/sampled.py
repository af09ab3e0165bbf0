"""A model in a pool that samples from it and doesn't train it: no replica, no optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rpeg.runtime.models.model_source import open_source
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.models.tokenizer import Tokenizer

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


class SampledModel:
    """Name, shape and tokenizer of a model; its weights come from the pool that trains it."""

    def __init__(self, run: Run, name: str, *, source: str) -> None:
        self.run = run
        self.name = name
        self.source = open_source(run.resolve(source), source, run.seed)
        """What the run starts from."""
        self.tokenizer: Tokenizer = self.source.tokenizer
        """Its tokenizer."""

    @property
    def shape(self) -> ModelShape:
        """Its architecture."""
        return self.source.shape
