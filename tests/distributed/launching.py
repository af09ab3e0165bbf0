"""Programs of several processes, started as `rpeg run` starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ALWAYS = {"PYTHONPATH": str(HERE.parents[1]), "OMP_NUM_THREADS": "1"}


def torchrun(
    program: str,
    folder: Path,
    processes: int,
    *,
    restarts: int = 0,
    minutes: int = 10,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs a program of this folder in another, in so many processes."""
    launcher = [sys.executable, "-m", "rpeg.runtime.launch", f"--nproc-per-node={processes}"]
    settings = ["--standalone", f"--max-restarts={restarts}", "--monitor-interval=0.1"]
    return subprocess.run(
        [*launcher, *settings, HERE / program],
        cwd=folder,
        env=os.environ | ALWAYS | environment,
        capture_output=True,
        text=True,
        timeout=60 * minutes,
    )


def in_turn(
    folder: Path, runs: Mapping[str, Mapping[str, str]]
) -> subprocess.CompletedProcess[str]:
    """Trains on a process that samples and one that trains: run after run, each in its folder."""
    listed = [{"RPEG_RUN_DIR": str(folder / name)} | settings for name, settings in runs.items()]
    pools = "rollout:1,trainer:1"
    wanted = {"POOLS": pools, "RUNS": json.dumps(listed)}
    return torchrun("runs_in_turn.py", folder, 2, minutes=5 * len(runs), **wanted)


def lines(path: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
