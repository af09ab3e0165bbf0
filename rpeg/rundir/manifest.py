"""What a checkpoint says of itself in `manifest.json`: the layouts that wrote it, the size and
checksum of every file, and a checksum of the manifest.

A file that was cut short, lost or changed is found by reading everything once. Several processes
share that work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rpeg.rundir.files import write_atomic

FORMAT = 2
"""1 held one file for each process, which only the same layout could read."""

NAME = "manifest.json"


@dataclass(frozen=True)
class FileRecord:
    """What a file was when the checkpoint was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Written:
    """What one pool wrote of a checkpoint."""

    layouts: Mapping[str, Mapping[str, Any]]
    """Model -> settings of its layout."""
    files: Mapping[str, FileRecord]
    """Path within the checkpoint -> what it holds."""


@dataclass(frozen=True)
class Manifest:
    """The content of `manifest.json`."""

    step: int
    processes: int
    layouts: Mapping[str, Mapping[str, Any]]
    """Model -> settings of its layout."""
    files: Mapping[str, FileRecord]
    """Path within the checkpoint -> what it holds."""
    format: int = FORMAT

    def write(self, checkpoint: Path) -> None:
        """Adds the manifest to a checkpoint's folder."""
        write_atomic(checkpoint / NAME, self._text())

    def _text(self) -> str:
        content = asdict(self)
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        return json.dumps(content | {"sha256": digest}, indent=2) + "\n"

    @staticmethod
    def read(checkpoint: Path) -> Manifest:
        """The manifest of a checkpoint. Raises ValueError, which says why, if it can't be used."""
        path = checkpoint / NAME
        if not path.is_file():
            raise ValueError("missing")
        text = path.read_bytes().decode(errors="replace")
        try:
            content = json.loads(text)
        except ValueError:
            raise ValueError("its checksum differs") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("written by another version of rpeg, in a format unknown here")
        return _parsed(content, text)


def _parsed(content: dict[str, Any], text: str) -> Manifest:
    content.pop("sha256", None)
    try:
        files = {name: FileRecord(**record) for name, record in content.pop("files").items()}
        manifest = Manifest(files=files, **content)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("its checksum differs") from None
    if manifest._text() != text:
        raise ValueError("its checksum differs")
    return manifest


def record_files(checkpoint: Path, names: Iterable[str]) -> dict[str, FileRecord]:
    """Size and checksum of files, by their paths within the checkpoint."""
    return {name: _record(checkpoint / name) for name in names}


def _record(path: Path) -> FileRecord:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(file.tell(), digest)


def damages(checkpoint: Path, share: tuple[int, int] = (0, 1)) -> list[str]:
    """What is wrong with a checkpoint, one text per file; empty if it is sound.

    Of `share` (index, count) processes, each looks at every `count`-th file.
    """
    try:
        manifest = Manifest.read(checkpoint)
    except ValueError as error:
        return [f"{NAME}: {error}"]
    index, count = share
    mine = list(manifest.files.items())[index::count]
    found = ((name, _damage(checkpoint / name, record)) for name, record in mine)
    return [f"{name}: {damage}" for name, damage in found if damage]


def _damage(path: Path, expected: FileRecord) -> str | None:
    if not path.is_file():
        return "missing"
    size = path.stat().st_size
    if size != expected.bytes:
        return f"{size} bytes instead of {expected.bytes}"
    return None if _record(path) == expected else "its checksum differs"
