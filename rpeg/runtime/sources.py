"""Where rows come from: JSONL files, reasoning-gym tasks, Hugging Face data sets.

`open_rows` turns a source text into a `RowSource`: a fixed sequence of rows with a fingerprint, so
that a resumed run notices that its data changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rpeg.rundir.rows import Fields, content_of, fields_of, file_of, rows_of
from rpeg.runtime.errors import DataFailure
from rpeg.runtime.trajectories import Row

if TYPE_CHECKING:
    from rpeg.runtime.interfaces import Host

GYM_ROWS = 10_000
"""Rows of a `gym:` data set without a limit. They are made when they are asked for."""


class RowSource(Protocol):
    """A fixed sequence of rows."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the rows do."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Row: ...


@dataclass(frozen=True)
class RowList:
    """Rows in memory."""

    rows: tuple[Row, ...]
    fingerprint: str

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]


def open_rows(
    run: Host, source: str, *, split: str | None, limit: int | None, seed: int
) -> RowSource:
    """The rows of `source`: a JSONL path, `gym:TASK` or `hf:NAME`; the first `limit` of them.

    A path may name a folder: then `split` names the file in it, without `.jsonl`. Raises
    DataFailure, for a row with its file and line.
    """
    if source.startswith("gym:"):
        return GymRows(source.removeprefix("gym:"), seed, limit or GYM_ROWS)
    if source.startswith("hf:"):
        return _hf_rows(run, source.removeprefix("hf:"), split, limit)
    return read_jsonl(file_of(run.root / source, split), limit)


def read_jsonl(path: Path, limit: int | None = None) -> RowList:
    """Reads one JSON object per line: `prompt`, `answer`, `completion`; the rest is metadata."""
    content = content_of(path)
    rows = tuple(map(_row, rows_of(content, path, limit)))
    return RowList(rows, hashlib.sha256(content).hexdigest()[:16])


def _row(held: Fields) -> Row:
    """A row; what else its fields are becomes metadata."""
    return Row(held.prompt, held.answer, held.completion, dict(held.rest) or None, held.place)


def make_row(fields: Mapping[str, Any], where: str) -> Row:
    """A row from named fields; what it does not know becomes metadata."""
    return _row(fields_of(fields, where))


class GymRows:
    """Rows of a reasoning-gym task (question -> prompt), each a function of (seed, index)."""

    def __init__(self, task: str, seed: int, size: int) -> None:
        self._dataset = gym_dataset(task, seed=seed, size=size)
        self._task, self._size = task, size
        self.fingerprint = f"gym:{task}:{seed}:{size}"

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Row:
        entry = self._dataset[index]
        place = f"gym:{self._task}[{index}]"
        return Row(entry["question"], entry["answer"], None, entry["metadata"], place)


def gym_dataset(task: str, *, seed: int, size: int) -> Any:
    """A reasoning-gym data set. Raises DataFailure without that task, or without reasoning-gym."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError as error:
        raise DataFailure(
            f"`gym:{task}` needs reasoning-gym: pip install 'reasoning-gym'"
        ) from error
    if task not in DATASETS:
        raise DataFailure(f"reasoning-gym has no task `{task}`{_closest(task, list(DATASETS))}")
    return reasoning_gym.create_dataset(task, seed=seed, size=size)


def _closest(name: str, known: list[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=3)
    return f"; did you mean {', '.join(f'`{c}`' for c in close)}?" if close else ""


def _hf_rows(run: Host, name: str, split: str | None, limit: int | None) -> RowSource:
    folder = run.root / name
    if folder.is_dir() and any(folder.glob("*.jsonl")):
        return read_jsonl(file_of(folder, split), limit)
    return _hub_rows(name, split or "train", limit)


def _hub_rows(name: str, split: str, limit: int | None) -> RowList:
    try:
        import datasets
    except ImportError as error:
        raise DataFailure(
            f"`hf:{name}` is not a local folder of .jsonl files, and the hub needs `datasets`: "
            "pip install datasets, or give a path to a .jsonl file"
        ) from error
    try:
        table = datasets.load_dataset(name, split=split)
    except (
        Exception
    ) as error:  # the library raises many kinds: offline, unknown name, unknown split
        raise DataFailure(
            f"cannot load `hf:{name}`, split `{split}`: {error}; "
            "without a network, download it first or give a path to a .jsonl file"
        ) from error
    size = len(table) if limit is None else min(limit, len(table))
    rows = tuple(make_row(table[k], f"hf:{name}[{k}]") for k in range(size))
    return RowList(rows, str(table._fingerprint))
