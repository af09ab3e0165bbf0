"""`--set name=value`: other literals for the params of a pipeline, for one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

from lark.exceptions import UnexpectedInput

from rpeg.frontend import ast
from rpeg.frontend.grammar import parser
from rpeg.frontend.tokens import literal_faults, tokenize
from rpeg.ir.rules.violations import hint
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError, Position

SOURCE = "--set"
"""What messages call the text that the overrides form, one per line in the order given."""

_NOUNS: Mapping[ast.LiteralKind, str] = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": 'text in "..."',
    "quantity": "a number with a unit",
}
_PREFIX = "param "
_EXPECTED = (
    'expected name=value with a literal such as 8, 3e-4, true or "text" '
    "(a shell needs quotes around it: --set 'name=\"text\"')"
)


def parse_overrides(settings: Sequence[str]) -> dict[str, ast.Literal]:
    """Name -> literal of each `name=value`.

    Raises:
        DiagnosticsError: some are no `name=value` with a literal, or set a name again.
    """
    overrides: dict[str, ast.Literal] = {}
    problems: list[Diagnostic] = []
    for number, setting in enumerate(settings, 1):
        param = _parsed(setting)
        if isinstance(param, Diagnostic):
            place = Position(number, max(1, param.at.column - len(_PREFIX)))
            problems.append(replace(param, at=place, file=SOURCE))
        elif param.name in overrides:
            both = f"{param.name}={overrides[param.name]} and {param.name}={param.value}"
            text = f"`{param.name}` is set twice: {both}; keep one"
            problems.append(Diagnostic(Position(number, 1), text, file=SOURCE))
        else:
            overrides[param.name] = param.value
    if problems:
        raise DiagnosticsError(problems)
    return overrides


def parse_literal(text: str) -> ast.Literal | None:
    """The literal that a whole text is; None if it is not one."""
    found = _parsed(f"x={text}")
    fits = isinstance(found, ast.Param) and found.value.text == text
    return found.value if isinstance(found, ast.Param) and fits else None


def apply_overrides(
    pipeline: ast.Pipeline, overrides: Mapping[str, ast.Literal], filename: str
) -> ast.Pipeline:
    """The pipeline with other literals in its params; they stand where the replaced ones stood.

    Raises:
        DiagnosticsError: the pipeline has no such param, or the param holds another kind.
    """
    problems = [*_unknown(pipeline, overrides), *_misfits(pipeline.params, overrides)]
    if problems:
        raise DiagnosticsError(replace(p, file=filename) for p in problems)
    declarations = tuple(_overridden(d, overrides) for d in pipeline.declarations)
    return replace(pipeline, declarations=declarations)


def dump_params(pipeline: ast.Pipeline) -> str:
    """`name = value` of every param, one per line: what a run was started with."""
    return "".join(f"{param.name} = {param.value}\n" for param in pipeline.params)


def _parsed(setting: str) -> ast.Param | Diagnostic:
    text = f"{_PREFIX}{setting}\n"
    tokens, illegal = tokenize(text)
    if illegal:
        return replace(illegal[0], message=_EXPECTED)
    for fault in literal_faults(tokens):
        return fault
    try:
        param = cast(ast.Param, parser().parse(text, start="param"))
    except UnexpectedInput as error:
        return Diagnostic(Position(1, error.column), _EXPECTED)
    if param.value.kind == "param":
        return Diagnostic(param.value.at, "a param holds a literal, not another param")
    return param


def _unknown(pipeline: ast.Pipeline, overrides: Mapping[str, ast.Literal]) -> Iterator[Diagnostic]:
    names = [param.name for param in pipeline.params]
    for name, value in overrides.items():
        if name not in names:
            known = hint(name, names) or f"; it has: {', '.join(names) or 'none'}"
            message = f"{SOURCE} {name}={value}: `{pipeline.name}` has no param `{name}`{known}"
            yield Diagnostic(pipeline.at, message)


def _misfits(
    params: Iterable[ast.Param], overrides: Mapping[str, ast.Literal]
) -> Iterator[Diagnostic]:
    for param in params:
        held, given = param.value, overrides.get(param.name, param.value)
        widened = given.kind == "int" and held.kind == "float"
        if given.kind != held.kind and not widened:
            takes = f"`{param.name}` takes {_NOUNS[held.kind]}, such as {held} in the file"
            message = f"{SOURCE} {param.name}={given}: {takes}"
            yield Diagnostic(held.at, message)


def _overridden(
    declaration: ast.Declaration, overrides: Mapping[str, ast.Literal]
) -> ast.Declaration:
    if not isinstance(declaration, ast.Param) or declaration.name not in overrides:
        return declaration
    value = replace(overrides[declaration.name], at=declaration.value.at)
    return replace(declaration, value=value)
