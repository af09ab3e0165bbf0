"""What `make` says while pip installs: what is large, and why it failed."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

INSTALL = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "install.py"))
PIP = """\
Collecting torch==2.13.0 (from rpeg==0.1)
  Downloading torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (30 kB)
  Downloading {place}torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl (184.2 MB)
  Using cached transformers-5.16.1-py3-none-any.whl (20.0 MB)
Downloading numpy-2.3.5-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)
Downloading nvidia_cudnn-9.1-py3-none-manylinux_2_27_x86_64.whl (1.1 GB)
Installing collected packages: mpmath, torch, rpeg
Successfully installed mpmath-1.3.0 rpeg-0.1 torch-2.13.0
"""
SAID = [
    "set-up: fetching torch-2.13.0%2Bcpu (184.2 MB)",
    "set-up: fetching transformers-5.16.1 (20.0 MB), which is in pip's cache",
    "set-up: fetching nvidia_cudnn-9.1 (1.1 GB)",
    "set-up: unpacking 3 packages",
]


@pytest.mark.parametrize("place", ["", "https://example.org/whl/cpu/"])
def test_what_is_large_is_told(place: str, capfd: pytest.CaptureFixture[str]) -> None:
    text = PIP.format(place=place)
    assert INSTALL["main"]([sys.executable, "-c", f"print({text!r})"]) == 0
    *said, seconds = capfd.readouterr().out.splitlines()
    assert said == SAID
    assert seconds.startswith("set-up: ") and seconds.endswith(" s")


def test_a_failure_shows_the_end_of_its_account(capfd: pytest.CaptureFixture[str]) -> None:
    failing = "print('line\\n' * 99, flush=True); raise SystemExit('ERROR: disk full')"
    assert INSTALL["main"]([sys.executable, "-c", failing]) == 1
    said = capfd.readouterr().err.splitlines()
    assert len(said) == INSTALL["END"]
    assert said[-1] == "ERROR: disk full"
