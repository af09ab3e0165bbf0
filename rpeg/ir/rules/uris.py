"""A rule of declarations: the form of their sources, `"scheme:rest"` or a path."""

from __future__ import annotations

import re

from rpeg.ir.rules.violations import hint
from rpeg.ir.vocabulary.records import RULES, SCHEMES

PYTHON = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
RUN = re.compile(r"\w+/\w+")


def source_problem(kind: str, uri: str) -> str | None:
    """What is wrong with the form of a source of this kind of declaration; None if nothing is."""
    scheme, colon, rest = uri.partition(":")
    if not uri.strip():
        return 'a source is "scheme:rest" or a path; this one is empty'
    if not colon:
        return None
    if scheme not in SCHEMES:
        return (
            f"`{scheme}:` is not a known source{hint(scheme, SCHEMES)}; known: "
            f"{', '.join(SCHEMES)}; a path has no scheme"
        )
    rules = RULES.get(kind, ())
    if scheme == "rule" and rest not in rules:
        known = f"; known: {', '.join(rules)}" if rules else f": a {kind} has none"
        return f"there is no rule `{rest}`{hint(rest, rules) or known}"
    if scheme == "python" and not PYTHON.fullmatch(rest):
        return "user code is named by its module and function: write python:module:function"
    if scheme == "run" and not RUN.fullmatch(rest):
        return "another run's export is named by pipeline and model: write run:PIPELINE/MODEL"
    if not rest.strip():
        return f"`{scheme}:` names nothing: write {SCHEMES[scheme]} behind the colon"
    return None
