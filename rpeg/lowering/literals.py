"""Attributes as Python literals. Texts of a `.rpeg` file reach a program only through `quoted`."""

from __future__ import annotations

import json
import math

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr
from xdsl.ir import Attribute

from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value


def quoted(text: str) -> str:
    """A string literal on one line, in the quotes that need fewer escapes.

    What does not print is escaped: line separators, and marks that reorder a line on the screen.
    """
    body = json.dumps(text, ensure_ascii=False)[1:-1]
    shown = "".join(c if c.isprintable() else _escape(c) for c in body)
    if text.count('"') <= text.count("'"):
        return f'"{shown}"'
    return "'" + shown.replace('\\"', '"').replace("'", "\\'") + "'"


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def literal(value: Attribute, name: str = "") -> str:
    """The Python text of a setting's value."""
    match value:
        case StringAttr():
            return quoted(value.data)
        case FloatAttr() if not math.isfinite(value.value.data):
            return f'float("{value.value.data}")'
        case RecordAttr(kind="constant"):
            return f'("constant", {literal(value.settings["tokens"])})'
        case ArrayAttr():
            items = [literal(v) for v in value]
            if name == "stop":
                return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            return f"[{', '.join(items)}]"
        case _:
            return repr(python_value(value))
