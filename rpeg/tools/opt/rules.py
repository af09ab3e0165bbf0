"""`--explain` and `--list-rules`: the rules of the verifier, by code."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.ir.rules.explain import LEVELS, Rule, explained, rules
from rpeg.ir.rules.violations import hint
from rpeg.tools.console import USAGE, Failure


def about(code: str | None) -> str:
    """The page of a rule; every rule in a line without a code. Raises Failure for another word."""
    known = rules()
    if code is None:
        return "\n".join(_listing(known)) + "\n"
    if code not in known:
        near = hint(code, known) or "; rpeg-opt --list-rules names all"
        raise Failure(f"`{code}` is not a rule{near}", USAGE)
    return explained(code)


def _listing(known: dict[str, Rule]) -> Iterator[str]:
    width = max(map(len, known))
    for level in LEVELS:
        yield f"{level}:"
        of_level = (rule for rule in known.values() if rule.level == level)
        yield from (f"  {rule.code:{width}}  {rule.title}" for rule in of_level)
