"""A rule of declarations: the form of their sources, `"scheme:rest"` or a path."""

from __future__ import annotations

import re

from rpeg.ir.rules.violations import hint
from rpeg.ir.vocabulary.records import RULES, SCHEMES, SOURCES

PYTHON = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
RUN = re.compile(r"\w+/\w+")


def source_problem(kind: str, uri: str) -> str | None:
    """What is wrong with the form of a source of this kind of declaration; None if nothing is."""
    scheme, colon, rest = uri.partition(":")
    if not uri.strip():
        return 'a source is "scheme:rest" or a path; this one is empty'
    if colon and scheme not in SCHEMES:
        return (
            f"`{scheme}:` is not a known source{hint(scheme, SCHEMES)}; known: "
            f"{', '.join(SCHEMES)}; a path has no scheme"
        )
    rules = RULES.get(kind, ())
    fitting = SOURCES.get(kind)
    if fitting is not None and (scheme if colon else "") not in fitting:
        *forms, last = fitting.values()
        given = f"`{scheme}:`" if colon else "a path"
        near = "" if colon else hint(f"rule:{uri}", [f"rule:{rule}" for rule in rules])
        noun = kind if kind == "data" else f"a {kind}"
        return f"{noun} comes from {', '.join(forms)} or {last}, not from {given}{near}"
    if not colon:
        return None
    if scheme == "rule" and rest not in rules:
        near = hint(rest, rules) or f"; known: {', '.join(rules)}"
        return f"there is no rule `{rest}`{near}"
    if scheme == "python" and not PYTHON.fullmatch(rest):
        return "user code is named by its module and function: write python:module:function"
    if scheme == "run" and not RUN.fullmatch(rest):
        return "another run's export is named by pipeline and model: write run:PIPELINE/MODEL"
    if not rest.strip():
        return f"`{scheme}:` names nothing: write {SCHEMES[scheme]} behind the colon"
    return None
