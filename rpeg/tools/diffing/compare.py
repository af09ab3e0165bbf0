"""What changed between two modules: items that came, went, were renamed, or have other fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rpeg.tools.diffing.items import ABOUT, Facts, Item, Ref, Section, shown

Kind = Literal["added", "removed", "renamed", "changed"]
ABSENT = "not given"
"""What stands for a field that one side lacks; `none` is a word."""


@dataclass(frozen=True)
class Change:
    """One difference. `field` is empty where it is about the whole item."""

    section: str
    """`pipeline NAME` or `program NAME`."""
    item: str
    """`model actor`."""
    kind: Kind
    field: str = ""
    old: str = ""
    new: str = ""


def compare(old: Facts, new: Facts) -> list[Change]:
    """Every difference, in the order of the new module; what is gone comes after what stayed."""
    return [change for pair in _sections(old, new) for change in _section(*pair)]


def _sections(old: Facts, new: Facts) -> Iterator[tuple[Section | None, Section | None]]:
    """Sections of one name; the only one of each side is the same, whatever its name."""
    if len(old.sections) == len(new.sections) == 1:
        yield old.sections[0], new.sections[0]
        return
    before = {(s.kind, s.name): s for s in old.sections}
    after = {(s.kind, s.name): s for s in new.sections}
    yield from ((before.get(key), section) for key, section in after.items())
    yield from ((section, None) for key, section in before.items() if key not in after)


def _section(old: Section | None, new: Section | None) -> Iterator[Change]:
    if old is None or new is None:
        section = new or old
        assert section is not None
        kind: Kind = "added" if old is None else "removed"
        yield Change(_title(section), _title(section), kind)
        return
    title = _title(new)
    if _title(old) != title:
        yield Change(title, title, "renamed", old=_title(old), new=title)
    yield from Matching(old.items, new.items).changes(title)


def _title(section: Section) -> str:
    return f"{section.kind} {section.name}"


class Matching:
    """Pairs the items of two sections: by name, then what is left by being equal in all but name.

    A renamed value changes the fields of its readers, so pairing goes on as long as it finds more.
    """

    def __init__(self, old: Sequence[Item], new: Sequence[Item]) -> None:
        self.old, self.new = old, new
        self.pairs: dict[int, Item] = {}
        """Place of a new item -> its old one."""
        self.names: dict[str, str] = {}
        """Old name of a value -> its new name."""
        self.made = {name for item in new for name in item.results}
        """Names of values in the new section."""
        before = {item.key: item for item in old}
        for place, item in enumerate(new):
            if item.key in before:
                self._pair(place, before[item.key])
        while self._pair_renamed():
            pass

    def changes(self, section: str) -> Iterator[Change]:
        """What the pairs differ in, and what has no pair."""
        for place, item in enumerate(self.new):
            before = self.pairs.get(place)
            title = f"{item.kind} {item.name}".strip()
            if before is None:
                yield Change(section, title, "added", new=item.text)
                continue
            if before.name != item.name and item.results:
                yield Change(section, title, "renamed", old=before.name, new=item.name)
            for name, was, now in self._differences(before, item):
                yield Change(section, title, "changed", name, was, now)
        for item in self._left():
            title = f"{item.kind} {item.name}".strip()
            yield Change(section, title, "removed", old=item.text)

    def _pair(self, place: int, before: Item) -> None:
        self.pairs[place] = before
        for was, now in zip(before.results, self.new[place].results, strict=False):
            self.names[was] = now

    def _pair_renamed(self) -> bool:
        for place, item in enumerate(self.new):
            if place in self.pairs or not item.renamable:
                continue
            for before in self._left():
                if before.kind == item.kind and not any(self._differences(before, item)):
                    self._pair(place, before)
                    return True
        return False

    def _left(self) -> Iterator[Item]:
        taken = {id(item) for item in self.pairs.values()}
        yield from (item for item in self.old if id(item) not in taken)

    def _differences(self, old: Item, new: Item) -> Iterator[tuple[str, str, str]]:
        names = self.names | dict(zip(old.results, new.results, strict=False))
        before = {name: _renamed(value, names) for name, value in old.fields.items()}
        if self._lost(new) and old.key == new.key:
            before[ABOUT] = new.fields[ABOUT]
        yield from differences(before, new.fields)

    def _lost(self, new: Item) -> bool:
        """Whether it is about a value that no longer has that name: MLIR's tools drop names."""
        about = new.fields.get(ABOUT)
        return isinstance(about, Ref) and about.name not in self.made


def _renamed(value: object, names: Mapping[str, str]) -> object:
    match value:
        case Ref():
            return replace(value, name=names.get(value.name, value.name))
        case tuple():
            return tuple(_renamed(part, names) for part in value)
        case frozenset():
            return frozenset(_renamed(part, names) for part in value)
        case _:
            return value


def differences(
    old: Mapping[str, object], new: Mapping[str, object], inside: str = ""
) -> Iterator[tuple[str, str, str]]:
    """(field, old, new) of each field that differs; fields of one record by their dotted names."""
    for name in dict.fromkeys((*new, *old)):
        was, now = old.get(name, ABSENT), new.get(name, ABSENT)
        if was == now:
            continue
        title = f"{inside}{name}"
        if isinstance(was, Mapping) and isinstance(now, Mapping) and _kind(was) == _kind(now):
            yield from differences(was, now, f"{title}.")
        else:
            yield title, _text(was), _text(now)


def _kind(record: Mapping[str, object]) -> object:
    return record.get("kind")


def _text(value: object) -> str:
    return ", ".join(sorted(map(str, value))) if isinstance(value, frozenset) else shown(value)
