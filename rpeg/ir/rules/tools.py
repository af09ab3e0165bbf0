"""Rules of tools: what a source of each kind is, and when what a policy may ask is ever asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.values import ToolType

ENVIRONMENT = "environment"
_SCHEMES = {"function": ("python", "rule"), ENVIRONMENT: ("python",)}
_WAYS = {"function": "rule:calculator or python:module:function", ENVIRONMENT: "python:module:name"}


def tool_source(form: str, uri: str) -> str | None:
    """Why a source that is one can't be a tool of this form; None if it can."""
    scheme, colon, _ = uri.partition(":")
    if form not in _SCHEMES or (colon and scheme in _SCHEMES[form]):
        return None
    text = f"`{uri}` names no {form}: write {_WAYS[form]}"
    if form == ENVIRONMENT and scheme == "gym":
        text += "; a gym: task has one turn, which a verifier scores"
    return text


def tool_violations(op: Operation, tools: Sequence[SSAValue]) -> Iterator[Violation]:
    """An environment answers alone; functions are called at the end of a turn before the last."""
    forms = [tool.type.form.data if isinstance(tool.type, ToolType) else "" for tool in tools]
    if ENVIRONMENT in forms and len(tools) > 1:
        talks = tools[forms.index(ENVIRONMENT)]
        yield Violation(
            "operand-kind",
            f"`{name_of(talks)}` answers every turn: give it without other tools",
            violations.operand(list(op.operands).index(talks)),
        )
    turns = op.properties.get("max_turns")
    if set(forms) == {"function"} and isinstance(turns, IntegerAttr) and turns.value.data == 1:
        yield Violation(
            "setting-range",
            f"max_turns=1: `{name_of(tools[0])}` is never called, for an answer starts another "
            "turn: write max_turns=2 or more",
            violations.setting("max_turns"),
            severity="warning",
        )
