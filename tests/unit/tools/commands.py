"""Running `rpeg` in the test's process, and a small pipeline for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from rpeg.tools.rpeg import main
from tests.unit.passes.pipelines import grpo


@dataclass(frozen=True)
class Done:
    """What a command came to."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Shell:
    """Commands in a folder that holds `p.rpeg` and what it needs."""

    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, *words: str) -> Done:
        try:
            code = main(words)
        except SystemExit as end:  # argparse
            code = int(end.code or 0)
        read = self.capture.readouterr()
        assert "Traceback" not in read.err
        return Done(code, read.out, read.err)

    def write(
        self, *changes: tuple[str, str], name: str = "p.rpeg", text: str | None = None
    ) -> str:
        """Writes a pipeline; its text."""
        written = grpo(*changes) if text is None else text
        (self.folder / name).write_text(written, encoding="utf-8")
        return written

    def names(self) -> set[str]:
        """Every path in the folder."""
        return {str(p.relative_to(self.folder)) for p in self.folder.rglob("*")}


PLAN = """  plan wide on "h100-1" {
    pool all = gpus(0..3)
    pool cpu = cores(0..0, per_node=4)
    y on all, par(dp=2, tp=2), engine(name=embedded)
    r on cpu
    lp_old on all, par(dp=2, tp=2)
    lp_ref on all, par(dp=2, tp=2)
    actor on all, par(dp=2, tp=2), publish(all, mode=reshard)
    heldout_acc on all, par(dp=2, tp=2), engine(name=embedded)
  }
"""


def message(err: str) -> str:
    """The first line of what a command says."""
    return err.splitlines()[0]
