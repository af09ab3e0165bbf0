"""The last line of a run: what it came to, and what to do with it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from rpeg.rundir.folder import RunFolder, RunRecord
from rpeg.runtime.state.checkpoint import saved_steps, step_name


def ending(folder: RunFolder, record: RunRecord, models: Sequence[str]) -> str:
    """Steps, folder, newest checkpoint, and the commands that use it, as far as they exist."""
    where = _shown(folder.path)
    early = f" of {record.steps}, at its stop condition" if record.stopped else ""
    parts = [f"done: {record.pipeline} trained {record.finished_step} steps{early}, in {where}"]
    saved = saved_steps(folder.checkpoints)
    if saved:
        parts.append(f"checkpoint: {_shown(folder.checkpoints / step_name(saved[-1]))}")
    if saved and models:
        typed = shlex.quote(where)
        which = f" --model {models[0]}" if len(models) > 1 else ""
        evaluate = f"rpeg eval {typed}{which} --data SOURCE --verifier SOURCE"
        parts.append(f"next: {evaluate}, or rpeg export {typed}{which} -o DIR")
    return "; ".join(parts)


def _shown(path: Path) -> str:
    """As a path to type here."""
    here = Path.cwd()
    return os.path.relpath(path, here) if path.is_relative_to(here) else str(path)
