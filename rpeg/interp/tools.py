"""Tools that a policy calls while it generates.

A turn that ends in `<call>NAME(TEXT)</call>` calls the tool NAME with TEXT; its answer goes on the
trajectory as `<result>ANSWER</result>`, and the policy goes on behind it. A call that fails, or of
a tool that there is not, is answered with what is wrong.
"""

from __future__ import annotations

import ast
import importlib
import operator
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rpeg.interp.errors import InterpreterError
from rpeg.ir.rules.violations import hint

Tool = Callable[[str], str]
CALL = re.compile(r"<call>(\w+)\((.*)\)</call>\s*$", re.DOTALL)

_OPERATORS: Mapping[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def answer(turn: str, tools: Mapping[str, Tool]) -> str | None:
    """What is said after a turn; None if it calls no tool."""
    called = CALL.search(turn)
    if called is None:
        return None
    name, text = called.groups()
    if name not in tools:
        return f"<result>no tool {name}; there is {', '.join(tools)}</result>"
    try:
        return f"<result>{tools[name](text)}</result>"
    except Exception as error:  # user code raises anything; the policy reads what
        return f"<result>error: {error}</result>"


def find_tool(source: str, root: Path) -> Tool:
    """The function that `rule:calculator` or `python:module:function` names.

    Raises InterpreterError if there is none, or user code is not allowed (RPEG_ALLOW_PYTHON=1).
    """
    if source == "rule:calculator":
        return calculator
    found: Tool = user_code(source, root)
    return found


def user_code(source: str, root: Path) -> Any:
    """What `python:module:name` names: a function or a class. Raises InterpreterError."""
    if os.environ.get("RPEG_ALLOW_PYTHON") != "1":
        raise InterpreterError(f"`{source}` runs code of yours: allow it with RPEG_ALLOW_PYTHON=1")
    module, _, name = source.removeprefix("python:").partition(":")
    sys.path.insert(0, str(root))
    try:
        code = importlib.import_module(module)
    except Exception as error:  # user code raises anything
        lacks = isinstance(error, ModuleNotFoundError) and error.name in _parents(module)
        why = f"there is none in {root}, nor an installed one" if lacks else repr(error)
        raise InterpreterError(f"`{source}`: {module} can't be imported: {why}") from error
    finally:
        sys.path.remove(str(root))
    if not callable(found := getattr(code, name, None)):
        kind = "is a value" if hasattr(code, name) else "is not there"
        near = hint(name, [n for n, held in vars(code).items() if callable(held)])
        text = f"`{name}` {kind} in {code.__file__}: name a function or a class of it{near}"
        raise InterpreterError(f"`{source}`: {text}")
    return found


def _parents(module: str) -> set[str]:
    """A dotted name and those of the packages around it."""
    parts = module.split(".")
    return {".".join(parts[: k + 1]) for k in range(len(parts))}


def calculator(text: str) -> str:
    """The value of an expression of numbers, + - * / and brackets. Raises ValueError for others."""
    try:
        return f"{_value(ast.parse(text.strip(), mode='eval').body):g}"
    except (SyntaxError, ZeroDivisionError) as error:
        raise ValueError(f"{text.strip()!r}: {error}") from error


def _value(node: ast.AST) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left), _value(right))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
        case _:
            raise ValueError("numbers, + - * / and brackets only")
