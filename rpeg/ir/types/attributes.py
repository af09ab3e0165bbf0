"""Attributes of the `rpeg` dialect: times, sizes, and records (a word with settings of its own)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import (
    BoolAttr,
    DictionaryAttr,
    FloatAttr,
    FloatData,
    IntAttr,
    IntegerAttr,
    StringAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import base, irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

SOURCE_HASH = "rpeg.source_sha256"
"""Attribute of a module that was read from a text: the SHA-256 of its canonical form."""


@irdl_attr_definition
class SecondsAttr(ParametrizedAttribute):
    """A time in seconds: `#rpeg.seconds<10.0>`."""

    name = "rpeg.seconds"
    seconds: FloatData = param_def(base(FloatData))

    @staticmethod
    def of(seconds: float) -> SecondsAttr:
        """A time of so many seconds."""
        return SecondsAttr(FloatData(seconds))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (FloatData(float(parser.parse_number())),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(_decimal(self.seconds.data))

    def verify(self) -> None:
        if self.seconds.data < 0:
            raise VerifyException("a time can't be negative")


def _decimal(number: float) -> str:
    """The shortest text that MLIR reads as this number: `1e-05` needs a point, `1.0e-05`."""
    text = repr(number)
    return text if "." in text else text.replace("e", ".0e")


@irdl_attr_definition
class BytesAttr(ParametrizedAttribute):
    """A size in bytes: `#rpeg.bytes<536870912>`."""

    name = "rpeg.bytes"
    count: IntAttr = param_def(base(IntAttr))

    @staticmethod
    def of(count: int) -> BytesAttr:
        """A size of so many bytes."""
        return BytesAttr(IntAttr(count))

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (IntAttr(parser.parse_integer(allow_boolean=False, allow_negative=False)),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(str(self.count.data))


@irdl_attr_definition
class RecordAttr(ParametrizedAttribute):
    """A word with settings: `#rpeg.record<adamw, {lr = 1.0e-06 : f64, ...}>`."""

    name = "rpeg.record"
    word: StringAttr = param_def(base(StringAttr))
    entries: DictionaryAttr = param_def(base(DictionaryAttr))

    @staticmethod
    def make(kind: str, settings: Mapping[str, Attribute]) -> RecordAttr:
        """A record from its word and settings."""
        return RecordAttr(StringAttr(kind), DictionaryAttr(dict(settings)))

    @property
    def kind(self) -> str:
        """The word: adamw, lora, par, ..."""
        return self.word.data

    @property
    def settings(self) -> Mapping[str, Attribute]:
        """Its settings by name."""
        return self.entries.data

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            word = StringAttr(parser.parse_identifier())
            entries: Mapping[str, Attribute] = {}
            if parser.parse_optional_punctuation(",") is not None:
                entries = parser.parse_optional_dictionary_attr_dict()
            return (word, DictionaryAttr(dict(entries)))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.kind)
            if self.settings:
                printer.print_string(", ")
                printer.print_attribute(self.entries)


def plain(value: bool | int | float | str) -> Attribute:
    """The attribute that holds a plain value."""
    match value:
        case bool():
            return BoolAttr.from_bool(value)
        case int():
            return IntegerAttr(value, i64)
        case float():
            return FloatAttr(value, f64)
        case str():
            return StringAttr(value)
