"""Settings: from what is written to attributes, by the kinds that the vocabulary gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr, f64
from xdsl.ir import Attribute

from rpeg.frontend import ast
from rpeg.frontend.literals import decode, number, quantity, whole
from rpeg.frontend.names import Messages, hint
from rpeg.frontend.overrides import parse_literal
from rpeg.ir.rules.settings import misfit, missing_setting, unknown_setting
from rpeg.ir.rules.violations import Anchor, setting
from rpeg.ir.text.diagnostics import Position
from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr, plain
from rpeg.ir.vocabulary.records import RECORDS
from rpeg.ir.vocabulary.settings import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    SIZE,
    TEXT,
    AnyOf,
    Kind,
    ListOf,
    OrState,
    Setting,
    Word,
)
from rpeg.ir.vocabulary.signature import Signature


@dataclass
class Given:
    """The settings of one call: attributes, and where each value stands."""

    values: dict[str, Attribute] = field(default_factory=dict[str, Attribute])
    anchors: dict[Anchor, Position] = field(default_factory=dict[Anchor, Position])
    states: dict[str, ast.Ref] = field(default_factory=dict[str, ast.Ref])
    """Settings whose value is a state such as kl@i."""
    sound: bool = True


class Settings:
    """Turns the settings of calls into attributes; knows the params."""

    def __init__(
        self, messages: Messages, params: Mapping[str, ast.Literal | None], used: set[str]
    ) -> None:
        self.messages = messages
        self.params = params
        self.used = used

    # ---- params

    def resolve(self, literal: ast.Literal) -> ast.Literal | None:
        """The literal itself, or what its param holds; None, with a message, if there is none."""
        if literal.kind != "param":
            return literal
        name = literal.text[1:]
        if name in self.params:
            self.used.add(name)
            return self.params[name]
        self.messages.once(
            literal.text,
            literal.at,
            f"${name} is not declared"
            + (
                hint(name, self.params).replace("`", "`$", 1)
                or f"; write `param {name} = ...` at the top of the pipeline"
            ),
        )
        return None

    def whole(self, literal: ast.Literal) -> int | None:
        """A whole number, through a param or not."""
        found = self.resolve(literal)
        if found is not None and found.kind != "int":
            self.messages.error(literal.at, "expected a whole number")
        return whole(found.text) if found is not None and found.kind == "int" else None

    # ---- settings of a call

    def read(
        self, call: ast.Call, signature: Signature, missing: list[str], path: str = ""
    ) -> Given:
        """The settings of a call, with defaults; `missing` loses names that a message offers."""
        given = Given()
        for arg in call.settings:
            assert arg.name is not None
            if arg.name not in signature.settings:
                text = unknown_setting(signature.name, arg.name, signature.settings)
                self.messages.error(arg.at, text, rule="unknown-setting")
                missing[:] = [n for n in missing if f"`{n}`" not in text]
                given.sound = False
            elif arg.name in given.values or arg.name in given.states:
                self.messages.error(arg.at, f"the setting `{arg.name}` is given twice")
            else:
                self._one(arg, signature.settings[arg.name], given, path)
        for name in missing:
            text = missing_setting(signature.name, signature.settings[name])
            self.messages.error(call.at, text, rule="missing-setting")
            given.sound = False
        self._defaults(signature, given)
        return given

    def _one(self, arg: ast.Arg, spec: Setting, given: Given, path: str) -> None:
        given.anchors[setting(path + spec.name)] = arg.value.at
        if isinstance(spec.kind, OrState) and isinstance(arg.value, ast.Ref):
            given.states[spec.name] = arg.value
            return
        value = self.attribute(spec.name, arg.value, spec.kind, given, path)
        if value is None:
            given.sound = False
        else:
            given.values[spec.name] = value

    def _defaults(self, signature: Signature, given: Given) -> None:
        """Fills in defaults, and puts the settings in the order of the signature."""
        written, given.values = given.values, {}
        for name, spec in signature.settings.items():
            held = written.get(name, spec.default)
            if held is not None:
                given.values[name] = held
            given.sound = given.sound and not (spec.required and held is None)

    def attribute(
        self, name: str, value: ast.Value, kind: Kind, given: Given, path: str = ""
    ) -> Attribute | None:
        """The attribute of one value; None, with a message, if it is of another kind."""
        written = value
        if isinstance(value, ast.Literal):
            resolved = self.resolve(value)
            if resolved is None:
                return None
            value = resolved
        held = self._held(value, kind, given, f"{path}{name}.")
        if held is None:
            text = self._misfit(name, value, kind) + _unquoted(name, written, value, kind)
            self.messages.error(written.at, text, rule="setting-kind")
        return held

    def _held(self, value: ast.Value, kind: Kind, given: Given, path: str) -> Attribute | None:
        match kind, value:
            case AnyOf(), _:
                fitting = (self._held(value, k, given, path) for k in kind.kinds)
                return next((a for a in fitting if a is not None), None)
            case ListOf(), ast.ListOf():
                return self._list(value, kind, given, path)
            case Word(), ast.Ref(version=None) if value.name not in (*kind.records, *self.params):
                return StringAttr(value.name)
            case Word(), ast.Call() if value.name in kind.records:
                signature = RECORDS[value.name]
                missing = absent(value, signature)
                for arg in value.things:
                    self.messages.error(arg.at, surplus(arg, signature, missing))
                inner = self.read(value, signature, missing, path)
                inner.sound = inner.sound and not value.things
                given.anchors |= inner.anchors
                given.sound = given.sound and inner.sound
                return RecordAttr.make(value.name, inner.values)
            case _, ast.Literal():
                return literal_attribute(value, kind)
            case _:
                return None

    def _list(self, value: ast.ListOf, kind: ListOf, given: Given, path: str) -> Attribute | None:
        items: list[Attribute] = []
        for item in value.items:
            found = self.resolve(item) if isinstance(item, ast.Literal) else item
            held = self._held(found, kind.item, given, path) if found is not None else None
            if held is None:
                return None
            items.append(held)
        return ArrayAttr(items)

    def _misfit(self, name: str, value: ast.Value, kind: Kind) -> str:
        words = kind.words
        if isinstance(value, ast.Literal) and value.kind == "str" and decode(value.text) in words:
            return f"`{name}` is a choice, not text: write {name}={decode(value.text)}"
        if isinstance(value, ast.Ref) and value.name in self.params:
            self.used.add(value.name)
            return f"`{value.name}` is a param: write {name}=${value.name}"
        if isinstance(value, ast.Ref) and value.name in RECORDS and value.name in words:
            first = next(iter(RECORDS[value.name].settings))
            return f"`{value.name}` has settings of its own: write {name}={value.name}({first}=...)"
        return misfit(name, kind, _shown(value))


def _unquoted(name: str, written: ast.Value, value: ast.Value, kind: Kind) -> str:
    """What to write in place of a text that fits without its quotes."""
    if isinstance(value, ast.ListOf) and isinstance(kind, ListOf):
        quoted = [v for v in value.items if isinstance(v, ast.Literal) and v.kind == "str"]
        fits = bool(quoted) and all(_fitting(v, kind.item) is not None for v in quoted)
        return ": write its items without quotes" if fits else ""
    plain_text = _fitting(value, kind) if isinstance(value, ast.Literal) else None
    if plain_text is None:
        return ""
    param = isinstance(written, ast.Literal) and written.kind == "param"
    given = f"param {written} = " if param else f"{name}="
    return f": write it without quotes, {given.replace('$', '')}{plain_text}"


def _fitting(value: ast.Literal, kind: Kind) -> str | None:
    """What a text literal says, if that is a literal of this kind."""
    found = parse_literal(decode(value.text)) if value.kind == "str" else None
    kinds = kind.kinds if isinstance(kind, AnyOf) else (kind,)
    fits = found is not None and any(literal_attribute(found, k) is not None for k in kinds)
    return found.text if found is not None and fits else None


def _shown(value: ast.Value) -> str:
    match value:
        case ast.Ref() | ast.Call():
            return value.name
        case ast.Literal():
            return value.text
        case _:
            return "this"


def literal_attribute(value: ast.Literal, kind: Kind) -> Attribute | None:
    """The attribute of a literal of this kind; None if it is of another."""
    if kind == INT and value.kind == "int":
        return plain(whole(value.text))
    if kind == BOOL and value.kind == "bool":
        return plain(value.text == "true")
    if kind == TEXT and value.kind == "str":
        return StringAttr(decode(value.text))
    if kind in (DURATION, SIZE) and value.kind == "quantity":
        return _quantity(value, kind)
    if kind.form is FLOAT.form and value.kind in ("int", "float"):
        return FloatAttr(number(value.text), f64)
    return None


def _quantity(value: ast.Literal, kind: Kind) -> Attribute | None:
    amount = quantity(value.text)
    if amount.dimension == "time":
        return SecondsAttr.of(float(amount.amount)) if kind == DURATION else None
    return BytesAttr.of(int(amount.amount)) if kind == SIZE else None


def surplus(arg: ast.Arg, signature: Signature, missing: list[str]) -> str:
    """The message for a thing that a call has no operand for; `missing` loses what it offers."""
    value, count = arg.value, len(signature.operands)
    if isinstance(value, ast.Literal) and value.kind != "str":
        if missing:
            return f"a setting is written with its name: {missing.pop(0)}={value.text}"
        known = ", ".join(sorted(signature.settings))
        return (
            f"a setting is written with its name: name={value.text}; {signature.name} has {known}"
        )
    if isinstance(value, ast.Ref) and (meant := meant_setting(value, signature)) is not None:
        missing[:] = [name for name in missing if not meant.startswith(f"{name}=")]
        return f"a setting is written name=value: {meant}"
    word = signature.setting_with_word(value.name) if isinstance(value, ast.Ref) else None
    if word is not None and isinstance(value, ast.Ref):
        missing[:] = [name for name in missing if name != word]
        return f"`{value.name}` is a choice: write {word}={value.name}"
    if not count:
        return f"{signature.name} takes settings only: write name=value"
    return (
        f"{signature.name} takes {count} operand{'s' if count != 1 else ''}, this one is too many"
    )


def meant_setting(ref: ast.Ref, signature: Signature) -> str | None:
    """What to write for the name of a setting without a value, or with one and no `=` between."""
    for name, spec in signature.settings.items():
        rest = ref.name.removeprefix(name)
        if ref.name == name:
            return f"{name}={spec.example}"
        if rest != ref.name and (rest in spec.kind.words or parse_literal(rest) is not None):
            return f"{name}={rest}"
    return None


def absent(call: ast.Call, signature: Signature) -> list[str]:
    """Required settings that a call does not give."""
    given = {a.name for a in call.settings}
    return [n for n, s in signature.settings.items() if s.required and n not in given]
