"""Where a run's models went: `exports.jsonl`, by which `run:PIPELINE/MODEL` finds them again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rpeg.rundir import jsonl
from rpeg.rundir.failures import ModelFailure
from rpeg.rundir.files import sync


def record_export(exports: Path, model: str, target: Path, step: int) -> None:
    """Adds a line to a run's `exports.jsonl`; the path is kept relative to the run's folder."""
    line = {"model": model, "step": step, "path": os.path.relpath(target, exports.parent)}
    jsonl.append(exports, [line])
    sync(exports)


def drop_exports_after(exports: Path, step: int) -> None:
    """Forgets the exports past `step`: a resumed run writes them again."""
    jsonl.keep(exports, lambda line: bool(line["step"] <= step))


def newest_export(runs: Sequence[Path], source: str) -> Path:
    """The folder that `run:PIPELINE/MODEL` means: what the run of that name exported last.

    The run is looked for in each of the folders `runs`. Raises ModelFailure if there is none.
    """
    pipeline, _, model = source.removeprefix("run:").partition("/")
    candidates = [folder / pipeline / "exports.jsonl" for folder in runs]
    exports = next((path for path in candidates if path.exists()), candidates[0])
    if not exports.exists():
        raise ModelFailure(
            f"`{source}`: no exports in {exports.parent}; run the pipeline `{pipeline}` first "
            "(it must hold an `export`)"
        )
    lines = jsonl.read(exports)
    paths = [line["path"] for line in lines if line["model"] == model]
    if not paths:
        known = ", ".join(sorted({line["model"] for line in lines}))
        raise ModelFailure(f"`{source}`: that run exported {known or 'nothing'}, not `{model}`")
    folder: Path = (exports.parent / paths[-1]).resolve()
    if not folder.is_dir():
        raise ModelFailure(
            f"`{source}`: its export {folder} is gone; run the pipeline `{pipeline}` again"
        )
    return folder
