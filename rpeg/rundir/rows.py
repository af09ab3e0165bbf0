"""Data sets as JSONL files: which file, its lines, and what a row must hold. Needs no torch.

A row is a JSON object per line: `prompt` (or `question`, `problem`), `answer`, `completion` (or
`response`); what else it holds is handed to reward functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rpeg.rundir.failures import DataFailure

Kind = Literal["prompts", "demos", "pairs"]
PAIR = ("chosen", "rejected")
"""The responses of a row of pairs."""
_PROMPT_NAMES = ("prompt", "question", "problem")
_COMPLETION_NAMES = ("completion", "response")


@dataclass(frozen=True)
class Fields:
    """What a row holds."""

    prompt: str
    answer: str | None
    completion: str | None
    rest: Mapping[str, Any]
    place: str
    """Where it is written."""


def file_of(path: Path, split: str | None) -> Path:
    """The file that a path means: itself, or of a folder the one that `split` names, without
    `.jsonl`. Raises DataFailure for a folder without a split.
    """
    if not path.is_dir():
        return path
    if split is None:
        found = ", ".join(sorted(p.stem for p in path.glob("*.jsonl"))) or "no .jsonl files"
        raise DataFailure(f"{path} is a folder: name a `split` of it (found: {found})")
    return path / f"{split}.jsonl"


def content_of(path: Path, most: int = -1) -> bytes:
    """The bytes of a file, or the first `most` of them. Raises DataFailure."""
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise DataFailure(f"cannot read {path}: {error.strerror}") from error


def rows_of(content: bytes, path: Path, limit: int | None = None) -> Iterator[Fields]:
    """The first `limit` rows of a file, blank lines aside. Raises DataFailure, with the line and
    its column, for the first that is not a row, and if there is none at all.
    """
    lines = [(k, line) for k, line in enumerate(content.split(b"\n"), start=1) if line.strip()]
    if not lines:
        raise DataFailure(f"{path} holds no rows: write a JSON object per line")
    for number, line in lines[:limit]:
        yield fields_of(_parsed(line, f"{path}:{number}"), f"{path}:{number}")


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(line[: error.start].decode("utf-8")) + 1
        byte = f"0x{line[error.start]:02x}"
        raise DataFailure(
            f"{where}:{column}: no UTF-8 (byte {byte}): write the file in UTF-8"
        ) from error
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataFailure(f"{where}:{error.colno}: no valid JSON ({error.msg})") from error
    if not isinstance(found, dict):
        raise DataFailure(f"{where}: a row must be a JSON object, not {type(found).__name__}")
    return found


def fields_of(found: Mapping[str, Any], where: str) -> Fields:
    """A row from named fields. Raises DataFailure if it has no prompt, or one that isn't text."""
    rest = dict(found)
    prompt = _take(rest, _PROMPT_NAMES, where)
    if prompt is None:
        raise DataFailure(f"{where}: no field `prompt` (found: {', '.join(found) or 'none'})")
    answer = rest.pop("answer", None)
    completion = _take(rest, _COMPLETION_NAMES, where)
    return Fields(prompt, None if answer is None else str(answer), completion, rest, where)


def _take(fields: dict[str, Any], names: tuple[str, ...], where: str) -> str | None:
    for name in names:
        if name in fields:
            value = fields.pop(name)
            if value is not None and not isinstance(value, str):
                raise DataFailure(f"{where}: `{name}` must be a text, not {type(value).__name__}")
            return value
    return None


def check(
    kind: Kind, data: str, *, completion: str | None, rest: Mapping[str, Any], place: str
) -> None:
    """Raises DataFailure if a row of the data set `data` lacks what its kind has."""
    if kind == "demos" and completion is None:
        raise DataFailure(f"{place}: no `completion`, but `{data}` holds demonstrations")
    for name in PAIR if kind == "pairs" else ():
        if name not in rest:
            raise DataFailure(f"{place}: no field `{name}`, but `{data}` holds pairs")
        if not isinstance(rest[name], str):
            found = type(rest[name]).__name__
            raise DataFailure(f"{place}: `{name}` must be a text, not {found}")
