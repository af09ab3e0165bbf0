"""What a module says, as items: a declaration, a statement, a stage's line in a plan, a call.

An item has a name and fields. A field is a plain value, or refers to values by name, so that an
item that is only called otherwise can be told from another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rpeg.frontend.written import number
from rpeg.ir.vocabulary.records import ALLOW, CLAUSES, EXPECT, POOLS, RECORDS
from rpeg.ir.vocabulary.settings import python_value

ABOUT = "about"
"""The field of an item that has no values of its own: a reference to the one that it is about."""
WORDS = {**RECORDS, **CLAUSES, **POOLS, **EXPECT, **ALLOW}
"""Every word that a record may start with."""


@dataclass(frozen=True)
class Ref:
    """A value that an item reads."""

    name: str
    suffix: str = ""
    """Its version: `@i+1`."""
    prefix: str = ""

    def __str__(self) -> str:
        return self.prefix + self.name + self.suffix


@dataclass(frozen=True)
class Item:
    """One thing that a module says."""

    kind: str
    """What it is to a reader: model, statement, stage, ..."""
    name: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])
    results: tuple[str, ...] = ()
    """Names of the values that it makes, which references use."""
    text: str = ""
    """How it reads as a whole; where there is nothing more to say than its name, empty."""

    @property
    def renamable(self) -> bool:
        """Whether being equal in all but name makes it the same thing: its name is a handle for
        values, or follows that of the value that it is about.
        """
        return bool(self.results) or ABOUT in self.fields

    @property
    def key(self) -> tuple[str, str]:
        """What is equal in two modules for the same thing."""
        return self.kind, self.name


@dataclass(frozen=True)
class Section:
    """The items of a pipeline or of a program."""

    kind: str
    name: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Facts:
    """Everything that a module says."""

    level: str
    """L0, L1, L2 or L3."""
    sections: tuple[Section, ...]


def shown(value: object) -> str:
    """A field as text: records as calls without their defaults."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return number(value)
        case tuple() | list():
            return f"[{', '.join(map(shown, value))}]"
        case Mapping():
            return _record(value)
        case _:
            return str(value)


def _record(value: Mapping[str, object]) -> str:
    kind = str(value.get("kind", ""))
    signature = WORDS.get(kind)
    table = signature.settings if signature is not None else {}
    given = (
        f"{name}={shown(held)}"
        for name, held in value.items()
        if name != "kind" and not (name in table and held == python_value(table[name].default))
    )
    return f"{kind}({', '.join(given)})"
