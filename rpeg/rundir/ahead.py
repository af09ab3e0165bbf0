"""What a checkpoint holds of batches before their step: whole ones, sampled ahead, in a buffer; or
the prompts of groups that are in flight.

The data cursors of the checkpoint are past them, so only a program that keeps such batches itself
may resume from it: another one would skip their prompts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from rpeg.rundir.failures import CheckpointFailure
from rpeg.rundir.manifest import Manifest

_ELSEWHERE = "or set RPEG_RUN_DIR (--run-dir) to a new folder"


def buffer_part(name: str) -> str:
    """The part of a checkpoint that holds a buffer's batches."""
    return f"{name}.buffer"


def flight_part(name: str) -> str:
    """The part of a checkpoint that holds the prompts of trajectories in flight."""
    return f"{name}.flight"


def refuse_buffers(checkpoint: Path, kept: Collection[str]) -> None:
    """Raises CheckpointFailure if batches were sampled ahead that are not among the parts `kept`
    by a program.
    """
    files = _plain_files(checkpoint)
    for name in sorted({f.partition(".0-of-")[0] for f in files if ".0-of-" in f}.difference(kept)):
        raise CheckpointFailure(
            f"{checkpoint} holds batches that were sampled ahead ({name}), and this program has no "
            f"such buffer: resume with the plan that wrote it, {_ELSEWHERE}"
        )


def refuse_order(checkpoint: Path, kept: Collection[str]) -> None:
    """Raises CheckpointFailure unless what is in flight is what the parts `kept` by a program are.

    A run's batches come in index order, or in completion order, from its beginning to its end: the
    two count differently which prompts were used.
    """
    there = set(_flights(file.removesuffix(".pt") for file in _plain_files(checkpoint)))
    wanted = set(_flights(kept))
    for name in sorted(there - wanted):
        raise CheckpointFailure(
            f"{checkpoint} holds prompts whose samples are in flight ({name}), and this program "
            f"samples in index order: resume with --order completion, {_ELSEWHERE}"
        )
    for name in sorted(wanted - there):
        raise CheckpointFailure(
            f"{checkpoint} was written in index order, and this program keeps samples in flight "
            f"({name}): resume with --order index, {_ELSEWHERE}"
        )


def _flights(names: Iterable[str]) -> Iterable[str]:
    return (name for name in names if name.endswith(flight_part("")))


def _plain_files(checkpoint: Path) -> list[str]:
    """Files of plain parts; nothing of a damaged checkpoint, which is not gone on from."""
    try:
        return [name for name in Manifest.read(checkpoint).files if "/" not in name]
    except ValueError:
        return []
