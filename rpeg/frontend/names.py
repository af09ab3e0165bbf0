"""Names of a pipeline: each is given once; regions read outer names, their own end with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from xdsl.ir import SSAValue

from rpeg.frontend import ast
from rpeg.ir.rules.codes import Code
from rpeg.ir.rules.violations import hint
from rpeg.ir.text.diagnostics import Diagnostic, Position, Severity

__all__ = ["Declared", "Messages", "Names", "Scope", "State", "hint"]


@dataclass
class Messages:
    """The problems found so far; each root cause is reported once."""

    file: str
    found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    silent: set[str] = field(default_factory=set[str])
    """Names and indexes that already have a message."""

    def error(
        self,
        at: Position,
        message: str,
        severity: Severity = "error",
        *,
        rule: Code | Literal[""] = "",
    ) -> None:
        """Reports a problem; `rule` is the one of the IR that speaks of it in MLIR."""
        self.found.append(Diagnostic(at, message, severity, self.file, rule))

    def once(self, key: str, at: Position, message: str) -> None:
        """Reports a problem unless one about `key` was."""
        if key not in self.silent:
            self.silent.add(key)
            self.error(at, message)


@dataclass
class State:
    """Something that carries a version: its value as the step starts, and the newest one made."""

    start: SSAValue
    after: SSAValue | None = None
    """`@i+1`, once a statement has made it."""
    optimizer: SSAValue | None = None
    optimizer_after: SSAValue | None = None


@dataclass(frozen=True)
class Declared:
    """A declared thing that never changes: read with rpeg.get."""

    kind: str
    form: str


Binding = SSAValue | State | Declared


@dataclass
class Scope:
    """The names of a step or region, and what they stand for; None where the line has an error."""

    names: dict[str, Binding | None] = field(default_factory=dict[str, Binding | None])
    outer: Scope | None = None

    def holds(self, name: str) -> bool:
        """Whether the name is visible here."""
        return name in self.names or (self.outer is not None and self.outer.holds(name))

    def find(self, name: str) -> Binding | None:
        """What a visible name stands for."""
        if name in self.names or self.outer is None:
            return self.names.get(name)
        return self.outer.find(name)

    def visible(self) -> set[str]:
        """Every name that is visible here."""
        return set(self.names) | (self.outer.visible() if self.outer else set())


@dataclass
class Names:
    """Every name of a pipeline, where it is given, and what kinds of names there are."""

    messages: Messages
    index: str
    given: dict[str, Position] = field(default_factory=dict[str, Position])
    later: dict[str, Position] = field(default_factory=dict[str, Position])
    """Where the step will give a name, for messages about uses above it."""
    symbols: dict[str, ast.Symbol] = field(default_factory=dict[str, ast.Symbol])
    moving: set[str] = field(default_factory=set[str])
    """Declared names that the step assigns."""
    vague: set[str] = field(default_factory=set[str])
    """Names that erroneous statements give: uses of them are not reported."""

    def give(self, name: str, at: Position) -> bool:
        """Gives a name; False, with a message, if it is taken."""
        if name in self.given:
            self.messages.error(
                at,
                f"`{name}` is already defined at {self.given[name]}: a name is given once in a "
                "pipeline",
            )
            return False
        self.given[name] = at
        return True

    def doubt(self, statement: ast.Statement) -> None:
        """Notes that a statement has an error: every name that it gives, in its region too."""
        for each in statements([statement]):
            self.vague |= {target.name for target in each.targets}

    def expect_later(self, body: Iterable[ast.Statement]) -> None:
        """Notes where the statements of a body give names."""
        for statement in body:
            for target in statement.targets:
                self.later.setdefault(target.name, target.at)


OWN = ("update", "ema", "kl_controller")
"""Operations that make the next version of what they are given first."""


def assigned_states(body: Iterable[ast.Statement], declared: set[str]) -> set[str]:
    """Names that a step assigns a version of, or should: declared names among its targets, and
    what an update starts from, whatever its target is called.
    """
    found: set[str] = set()
    for statement in body:
        found |= {t.name for t in statement.targets if t.version is not None or t.name in declared}
        own = first_name(statement.call) if statement.call.name in OWN else None
        found |= {own} if own is not None else set()
        found |= assigned_states(statement.body or (), declared)
    return found


def statements(body: Iterable[ast.Statement]) -> Iterable[ast.Statement]:
    """Every statement of a body, regions included."""
    for statement in body:
        yield statement
        yield from statements(statement.body or ())


def first_name(call: ast.Call) -> str | None:
    """The name of a call's first thing."""
    thing = call.things[0].value if call.things else None
    return thing.name if isinstance(thing, ast.Ref) else None
