"""Signatures: how a word of the language is called. Derived from the operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rpeg.ir.vocabulary.patterns import Operand
from rpeg.ir.vocabulary.settings import Setting

Scope = Literal["sample", "group", "batch", "step", ""]
SCOPES: tuple[Scope, ...] = ("sample", "group", "batch", "step")
"""From the smallest unit on which an operation is a pure map to the largest."""


@dataclass(frozen=True)
class Signature:
    """One word of the vocabulary: `name(things..., setting=value...)`."""

    name: str
    doc: str
    operands: tuple[Operand, ...] = ()
    results: tuple[str, ...] = ()
    """What each result is, for messages: `trajectories`, `per-token logprob`, `next`."""
    settings: Mapping[str, Setting] = field(default_factory=dict[str, Setting])
    scope: Scope = ""
    """The smallest unit on which it is a pure map."""
    placed: bool = False
    """A plan may give it a line."""
    region: bool = False
    """It is followed by `{ ... }`."""

    @property
    def call(self) -> str:
        """`generate(weights, prompts, tools...)`."""
        return f"{self.name}({', '.join(o.shown for o in self.operands)})"

    def setting_with_word(self, word: str) -> str | None:
        """The setting that takes this word, if one does."""
        return next((n for n, s in self.settings.items() if word in s.kind.words), None)


def signature(
    name: str, doc: str, operands: tuple[Operand, ...] = (), *settings: Setting
) -> Signature:
    """A signature of a record, a clause, a permission, a distribution or a pool."""
    return Signature(name, doc, operands, settings={s.name: s for s in settings})
