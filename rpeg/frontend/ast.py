"""The syntax tree of a `.rpeg` text: one class per construct, a position on every node.

Equality is that of content: positions don't take part, so trees of two layouts of one program are
equal (and two equal statements of one program are too: tell them apart by their positions).
`str` of a reference, a value or an argument is how it is written on one line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal as OneOf
from typing import TypeAlias

from rpeg.ir.text.diagnostics import Position

NOWHERE = Position(0, 0)
"""The position of what was not read from a text."""

LiteralKind = OneOf["int", "float", "bool", "str", "param", "quantity"]
Sign = OneOf["", "+", "-"]
SymbolKind = OneOf["model", "data", "verifier", "tool", "state"]


@dataclass(frozen=True)
class Node:
    """Anything with a place in the text: `at` is the first character of what names it."""

    at: Position = field(default=NOWHERE, compare=False, kw_only=True)


@dataclass(frozen=True)
class Literal(Node):
    """A value as it is written: `16_384`, `3e-4`, `true`, `"text"`, `$param`, `512MiB`.

    `rpeg.frontend.literals` turns the text into the value.
    """

    kind: LiteralKind
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Index(Node):
    """A version: `i`, `i+1`, `i-$k`; without a base an absolute one, `0`."""

    base: str = ""
    sign: Sign = ""
    offset: Literal | None = None

    def __str__(self) -> str:
        return f"{self.base}{self.sign}{self.offset or ''}"


@dataclass(frozen=True)
class Window(Node):
    """Any version from `low` to `high`, both included: `[i-2..i]`."""

    low: Index
    high: Index

    def __str__(self) -> str:
        return f"[{self.low}..{self.high}]"


@dataclass(frozen=True)
class Ref(Node):
    """A name, with a version if it changes from step to step."""

    name: str
    version: Index | Window | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


@dataclass(frozen=True)
class ListOf(Node):
    """`[a, b]`; `end` is the place after the bracket."""

    items: tuple[Value, ...]
    end: Position = field(default=NOWHERE, compare=False, kw_only=True)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"


@dataclass(frozen=True)
class Range(Node):
    """`0..39`: whole numbers, both ends included."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"


@dataclass(frozen=True)
class Arg(Node):
    """A setting `name=value`, or a thing (no name); `at` is the place of the whole."""

    name: str | None
    value: Value

    def __str__(self) -> str:
        return str(self.value) if self.name is None else f"{self.name}={self.value}"


@dataclass(frozen=True)
class Call(Node):
    """`name(things..., setting=value...)`; `end` is the place after the bracket."""

    name: str
    args: tuple[Arg, ...] = ()
    end: Position = field(default=NOWHERE, compare=False, kw_only=True)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"

    @property
    def things(self) -> tuple[Arg, ...]:
        """The arguments without names, in order."""
        return tuple(a for a in self.args if a.name is None)

    @property
    def settings(self) -> tuple[Arg, ...]:
        """The arguments with names, in order; a name may wrongly stand twice."""
        return tuple(a for a in self.args if a.name is not None)


Value: TypeAlias = Literal | Ref | ListOf | Range | Call


@dataclass(frozen=True)
class Param(Node):
    """`param name = literal`."""

    name: str
    value: Literal


@dataclass(frozen=True)
class Symbol(Node):
    """`model name = call`, and so for data, verifiers, tools and states."""

    kind: SymbolKind
    name: str
    call: Call


@dataclass(frozen=True)
class Allow(Node):
    """`allow call`: a structural pass that the user permits."""

    call: Call


Declaration: TypeAlias = Param | Symbol | Allow


@dataclass(frozen=True)
class Statement(Node):
    """`targets = call`: one operation. With a region it has a `body`; the brace stands at `end`."""

    targets: tuple[Ref, ...]
    call: Call
    body: tuple[Statement, ...] | None = None
    end: Position = field(default=NOWHERE, compare=False, kw_only=True)


@dataclass(frozen=True)
class Step(Node):
    """`step index < count { body }`; `count` is a whole number or a param."""

    index: str
    count: Literal
    body: tuple[Statement, ...]
    end: Position = field(default=NOWHERE, compare=False, kw_only=True)


@dataclass(frozen=True)
class Expect(Node):
    """`expect name = call`: a distribution, for planning only."""

    name: str
    call: Call


@dataclass(frozen=True)
class Pool(Node):
    """`pool name = call`: a part of the cluster."""

    name: str
    call: Call


@dataclass(frozen=True)
class Place(Node):
    """`stage on pool, clause, ...`: where a stage runs, and how."""

    stage: str
    pool: str
    clauses: tuple[Call, ...] = ()
    pool_at: Position = field(default=NOWHERE, compare=False, kw_only=True)


@dataclass(frozen=True)
class Plan(Node):
    """`plan name on "cluster" { pools, places }`; `cluster` is the text without its quotes."""

    name: str
    cluster: str
    pools: tuple[Pool, ...] = ()
    places: tuple[Place, ...] = ()
    cluster_at: Position = field(default=NOWHERE, compare=False, kw_only=True)
    end: Position = field(default=NOWHERE, compare=False, kw_only=True)


@dataclass(frozen=True)
class Pipeline(Node):
    """`pipeline name { ... }`: what exists, what a step computes, what to expect, where it runs."""

    name: str
    declarations: tuple[Declaration, ...]
    step: Step
    expects: tuple[Expect, ...] = ()
    plans: tuple[Plan, ...] = ()
    end: Position = field(default=NOWHERE, compare=False, kw_only=True)

    @property
    def params(self) -> tuple[Param, ...]:
        """The declared params, in order."""
        return tuple(d for d in self.declarations if isinstance(d, Param))


@dataclass(frozen=True)
class File(Node):
    """A whole text: the language's version and its pipelines."""

    version: str
    pipelines: tuple[Pipeline, ...]
