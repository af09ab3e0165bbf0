"""The speed benchmarks run; what they measure is nobody's promise here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_one_tiny_round_of_one_side() -> None:
    sizes = ["--prompts", "2", "--completions", "2", "--tokens", "4"]
    command = [
        sys.executable,
        str(BENCHMARKS / "step.py"),
        "--only",
        "rpeg",
        "--rounds",
        "1",
        "--dtypes",
        "fp32",
    ]
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


def test_both_opt_tools_print_the_same() -> None:
    command = [sys.executable, str(BENCHMARKS / "opt.py"), "--operations", "15", "--rounds", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    sides = [line.split()[0] for line in result.stdout.splitlines()]
    assert sides == ["rpeg-opt", "xdsl-opt", "ratio"] * 2


@pytest.mark.slow
def test_a_publish_and_a_broadcast() -> None:
    sizes = ["--layers", "1", "--hidden", "64", "--rounds", "2", "--dtype", "bf16"]
    result = subprocess.run(
        [sys.executable, str(BENCHMARKS / "publish.py"), *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [
        "publish",
        "broadcast",
        "ratio",
    ]
