"""`rpeg calibrate` measures with two processes on this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from rpeg.cost.hardware import load_machine
from rpeg.ir.clusters import load_cluster


def test_two_processes(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    command = [sys.executable, "-m", "rpeg.tools.rpeg", "calibrate", "-o", str(path), "--json"]
    done = subprocess.run(
        [*command, "--processes", "2", "--rounds", "1"],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["backend"], found["processes"], found["gpus"]) == ("gloo", 2, 0)
    assert {one["operation"] for one in found["collectives"]} == {
        *("all_reduce", "all_gather", "reduce_scatter", "broadcast")
    }
    machine = load_machine(str(path))
    assert machine.flops["fp32"] > machine.link.reached > 0
    assert machine.memory_rate > 0 and machine.kernel_s > 0
    assert load_cluster(str(path)).cores == found["cores"]
