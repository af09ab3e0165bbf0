"""Operand patterns: which values an operand takes, and how a message names them.

A pattern is text such as `tok.reward | seq.reward`: alternatives of a kind, optionally with a
second word. Kinds of values: model data verifier tool state (declared), prompts demos pairs traj
tok seq loss metric buffer (of a step). Kinds of other arguments: uri (a source), init (a model's
initial weights), range, stage, pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute

from rpeg.ir.types.flow import FlowType

DECLARED = ("model", "data", "verifier", "tool", "state")
WITHOUT_SURFACE = (("cursor", ""), ("buffer", ""))
"""Alternatives that a message leaves out where there are others: no text has them."""


@dataclass(frozen=True)
class Pattern:
    """What one operand takes."""

    alternatives: tuple[tuple[str, str], ...]
    """(kind, second word or empty), any of them."""

    @staticmethod
    def parse(text: str) -> Pattern:
        """From `kind.word | kind`."""
        parts = (part.strip().partition(".") for part in text.split("|"))
        return Pattern(tuple((kind, what) for kind, _, what in parts))

    def takes(self, value_type: Attribute) -> bool:
        """Whether a value of this type fits."""
        return isinstance(value_type, FlowType) and any(
            kind == value_type.KIND and (not what or value_type.what == what)
            for kind, what in self.alternatives
        )

    def includes(self, kind: str) -> bool:
        """Whether one alternative is of this kind."""
        return any(kind == k for k, _ in self.alternatives)

    @property
    def noun(self) -> str:
        """What a message calls it: `per-token reward or per-response reward`."""
        shown = [a for a in self.alternatives if a not in WITHOUT_SURFACE] or self.alternatives
        return " or ".join(dict.fromkeys(_noun(kind, what) for kind, what in shown))


def _noun(kind: str, what: str) -> str:
    match kind:
        case "tok":
            return f"per-token {what or 'field'}"
        case "seq":
            return f"per-response {what or 'field'}"
        case "traj":
            return "trajectories"
        case "model":
            return f"{'an' if what[:1] in 'aeiou' else 'a'} {what} model" if what else "a model"
        case "data" | "cursor":
            return f"{what} data"
        case "tool":
            return f"a tool ({what})" if what else "a tool"
        case "state" | "verifier" | "loss" | "buffer":
            return f"a {kind}"
        case "uri":
            return 'a source "scheme:rest"'
        case "init":
            return "initial weights such as actor@0"
        case _:
            return kind


def describe(value_type: Attribute) -> str:
    """What a message calls a value of this type: `per-response reward`, `a model (value)`."""
    if not isinstance(value_type, FlowType):
        return str(value_type)
    kind, what = value_type.KIND.replace("cursor", "data"), value_type.what
    if kind in DECLARED:
        return f"a {kind} ({what})"
    noun = {"tok": "per-token", "seq": "per-response", "traj": "trajectories"}.get(kind, kind)
    return f"{noun} {what}".strip()


@dataclass(frozen=True)
class Operand:
    """One operand of an operation, as its signature shows it."""

    name: str
    pattern: Pattern
    many: bool = False
    """Takes any number of values; it is the last one."""
    optional: bool = False
    """May be absent: an optional value, or any number that may be none."""

    @property
    def shown(self) -> str:
        """Its name in a signature: `rewards...`."""
        return self.name + ("..." if self.many else "")


def operands(text: str) -> tuple[Operand, ...]:
    """Operands from `name: pattern, name: pattern`, for signatures that are no operation's."""
    pairs: Sequence[list[str]] = [part.split(":", 1) for part in text.split(",") if part]
    return tuple(Operand(name.strip(), Pattern.parse(pattern)) for name, pattern in pairs)
