"""Messages as JSON: every command with `--json` reports problems in the same form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.tools.console import Failure


def record(diagnostic: Diagnostic) -> dict[str, Any]:
    """One message about a text."""
    return {
        "file": diagnostic.file,
        "line": diagnostic.at.line,
        "column": diagnostic.at.column,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "rule": diagnostic.rule or None,
    }


def unrepeated(
    remarks: Iterable[Diagnostic], problems: Sequence[Diagnostic]
) -> Iterator[Diagnostic]:
    """The remarks but for warnings of a text that are what stops it as well: no problem twice."""
    said = {(problem.at, problem.message) for problem in problems}
    return (remark for remark in remarks if (remark.at, remark.message) not in said)


def records(failure: Failure, file: str | None = None) -> list[dict[str, Any]]:
    """Why a command can't go on, or can't with a `file`; without a place, unless it is about a
    text.
    """
    if failure.diagnostics:
        return [record(diagnostic) for diagnostic in failure.diagnostics]
    place = {"file": file, "line": None, "column": None}
    return [{**place, "severity": "error", "message": str(failure), "rule": None}]


def failed(failure: Failure) -> str:
    """The line of JSON that a failing command prints in place of its result."""
    return json.dumps({"messages": records(failure)}, ensure_ascii=False)
