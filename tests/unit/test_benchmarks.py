"""The speed benchmark runs; what it measures is nobody's promise here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "step.py"


def test_one_tiny_round_of_one_side() -> None:
    sizes = ["--prompts", "2", "--completions", "2", "--tokens", "4"]
    command = [sys.executable, str(SCRIPT), "--only", "rpeg", "--rounds", "1", "--dtypes", "fp32"]
    result = subprocess.run(
        [*command, *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    header, line = result.stdout.splitlines()[-2:]
    stages = dict(zip(header.split(), map(float, line.split()[2:]), strict=True))
    assert line.startswith("rpeg  fp32")
    assert stages["total"] > 0
    assert stages["decode"] > 0 and stages["backward"] > 0
