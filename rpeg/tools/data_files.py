"""Data sets of a pipeline that are files here, read before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from rpeg.ir.ops.declare import DataOp, PipelineOp
from rpeg.ir.ops.sampling import BatchOp
from rpeg.ir.types.values import CursorType
from rpeg.rundir.failures import DataFailure
from rpeg.rundir.rows import Kind, check, content_of, file_of, rows_of

MOST = 64 << 20
"""Bytes of a file that are read; the program reads the rest of a longer one."""


def unusable(pipeline: PipelineOp, op: DataOp, path: Path) -> str | None:
    """Why a data set can't be used: a folder without a split, a line that is not a row, fewer rows
    than a batch; None if nothing is wrong.
    """
    split, limit = op.text_of("split") if op.split is not None else None, op.limit
    try:
        file = file_of(path, split)
        content = content_of(file, MOST)
        whole = len(content) < MOST
        lines = content if whole else content[: content.rfind(b"\n") + 1]
        rows = 0
        for row in rows_of(lines, file, op.int_of("limit") if limit is not None else None):
            kind = cast("Kind", op.form_name)
            check(kind, op.title, completion=row.completion, rest=row.rest, place=row.place)
            rows += 1
    except DataFailure as failure:
        return str(failure)
    size = max((b.int_of("size") for b in _batches(pipeline, op)), default=0)
    if whole and rows < size:
        held = f"{rows} row{'s' * (rows != 1)}"
        return f"{file} has {held}, fewer than a batch of {size}: lower its size, or add rows"
    return None


def _batches(pipeline: PipelineOp, op: DataOp) -> list[BatchOp]:
    """Those of a data set."""
    return [
        batch
        for batch in pipeline.walk()
        if isinstance(batch, BatchOp)
        and isinstance(batch.source.type, CursorType)
        and batch.source.type.symbol == op.title
    ]
