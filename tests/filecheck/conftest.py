"""Each `.rpeg` and `.mlir` file of this folder is one test: pytest collects it and lit runs it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix not in {".rpeg", ".mlir"} or file_path.parent.name == "Inputs":
        return None
    return LitFile.from_parent(parent, path=file_path)


class LitFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        yield LitTest.from_parent(self, name=self.path.name)


class LitFailure(Exception):
    """What lit printed about a test that failed."""


class LitTest(pytest.Item):
    def runtest(self) -> None:
        run = subprocess.run(
            [sys.executable, "-c", "from lit.main import main; main()", "-v", str(self.path)],
            capture_output=True,
            text=True,
        )
        if "Unsupported: " in run.stdout:
            pytest.skip("a feature that this file requires is not here")
        if run.returncode != 0 or "Passed: 1 " not in run.stdout:
            raise LitFailure(run.stdout + run.stderr)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, LitFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.nodeid
