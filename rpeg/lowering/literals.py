"""Attributes as Python literals. Strings of a `.rpeg` file reach a program only through `quoted`."""

from __future__ import annotations

import json

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute

from rpeg.ir.attributes import RecordAttr
from rpeg.ir.settings import python_value


def quoted(text: str) -> str:
    """A string literal in double quotes; JSON's escapes are Python's too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\x7f")


def literal(value: Attribute, name: str = "") -> str:
    """The Python text of a setting's value."""
    match value:
        case StringAttr():
            return quoted(value.data)
        case RecordAttr(kind="constant"):
            return f'("constant", {literal(value.settings["tokens"])})'
        case ArrayAttr():
            items = [literal(v) for v in value]
            if name == "stop":
                return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
            return f"[{', '.join(items)}]"
        case _:
            return repr(python_value(value))
