"""Models that read each other's tokens."""

from __future__ import annotations

from typing import Protocol

from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.models.tokenizer import Tokenizer


class Tokenizing(Protocol):
    """A model, as far as its tokens go."""

    @property
    def name(self) -> str:
        """What the pipeline calls it."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        ...


def share_tokenizer(policy: Tokenizing, /, *readers: Tokenizing) -> None:
    """Raises ModelFailure for a model that reads the policy's trajectories and takes their ids for
    other tokens: its log-probs and values would mean nothing.
    """
    for reader in readers:
        if not reader.tokenizer.same_ids(policy.tokenizer):
            raise ModelFailure(
                f"`{reader.name}` reads the tokens of `{policy.name}`, but has another tokenizer: "
                "take a model of the same family, whose tokenizer.json has the same tokens"
            )
