"""Checks of settings against their kinds: the same for operations, records and clauses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.records import RECORDS
from rpeg.ir.vocabulary.settings import (
    MOST_WHOLE,
    Kind,
    ListOf,
    Setting,
    python_value,
)
from rpeg.ir.vocabulary.signature import Signature


def setting_violations(
    owner: str, table: Mapping[str, Setting], given: Mapping[str, Attribute], path: str = ""
) -> Iterator[Violation]:
    """Unknown, missing and misfit settings of `owner`, records inside included."""
    offered = ""
    for name, value in given.items():
        if name in table:
            yield from value_violations(table[name], value, path + name)
        else:
            message = unknown_setting(owner, name, table)
            offered += message
            yield Violation("unknown-setting", message, violations.setting(path + name))
    for name, setting in table.items():
        if not setting.optional and name not in given and f"`{name}`" not in offered:
            yield Violation("missing-setting", missing_setting(owner, setting))


def unknown_setting(owner: str, name: str, table: Mapping[str, Setting]) -> str:
    """The message for a setting that does not exist."""
    known = ", ".join(sorted(table)) or "none"
    return f"{owner} has no setting `{name}`{hint(name, table) or f'; it has: {known}'}"


def missing_setting(owner: str, setting: Setting) -> str:
    """The message for a setting that every use gives, or that MLIR leaves out with its default."""
    example = f"{setting.name}={setting.example}"
    return f"{owner} needs the setting `{setting.name}`: write {example}"


def misfit(name: str, kind: Kind, written: str) -> str:
    """The message for a value of the wrong kind."""
    if kind.words:
        return f"{name}={written}: expected {' | '.join(kind.words)}{hint(written, kind.words)}"
    return f"{name}: expected {kind.noun}"


def value_violations(setting: Setting, value: Attribute, path: str) -> Iterator[Violation]:
    """A value of another kind than its setting's, or out of its range."""
    if not setting.kind.accepts(value):
        yield Violation(
            "setting-kind",
            misfit(setting.name, setting.kind, written(value, setting.kind)),
            violations.setting(path),
        )
    elif isinstance(value, RecordAttr):
        yield from record_violations(value, RECORDS[value.kind], path + ".")
    else:
        yield from _range_violations(setting, value, path)


def _range_violations(setting: Setting, value: Attribute, path: str) -> Iterator[Violation]:
    held = python_value(value)
    for item in held if isinstance(held, tuple) else (held,):
        expected = _expected_instead(setting, item)
        if expected is not None:
            shown = '""' if item == "" else item
            text = f"{setting.name}={shown}: expected {expected}"
            yield Violation("setting-range", text, violations.setting(path))


def _expected_instead(setting: Setting, held: object) -> str | None:
    """What a setting expects of its value instead of this; None if it is in range."""
    match held:
        case bool():
            return None
        case str():
            return None if held else "text that is not empty"
        case int() if setting.counts and held > MOST_WHOLE:
            return f"at most {MOST_WHOLE}"
        case int() | float() if held not in setting.range:
            return str(setting.range) or "a finite number"
        case _:
            return None


def record_violations(
    value: RecordAttr, signature: Signature, path: str = ""
) -> Iterator[Violation]:
    """Misfit settings of a record."""
    things = {operand.name for operand in signature.operands}
    settings = {k: v for k, v in value.settings.items() if k not in things}
    yield from setting_violations(value.kind, signature.settings, settings, path)


def known_record_violations(
    value: RecordAttr, known: Mapping[str, Signature], what: str, path: str = ""
) -> Iterator[Violation]:
    """A record that is none of the `known` kinds of `what` ("a clause"), or its misfit settings."""
    if value.kind in known:
        yield from record_violations(value, known[value.kind], path)
        return
    text = f"`{value.kind}` is not {what}{hint(value.kind, known)}"
    yield Violation("unknown-word", text)


def written(value: Attribute, kind: Kind) -> str:
    """How the surface writes a value, as far as a message needs it."""
    match value:
        case StringAttr():
            return value.data
        case RecordAttr():
            return value.kind
        case ArrayAttr() if isinstance(kind, ListOf):
            bad = next((v for v in value if not kind.item.accepts(v)), value)
            return written(bad, kind.item)
        case _:
            return str(value)
