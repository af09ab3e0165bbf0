"""Runs the micro-benchmarks: one process a GPU, or a core."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import rpeg
from rpeg.lifetime import die_with_parent
from rpeg.tools.calibrating.measured import Measured

PROGRAM = "rpeg.tools.calibrating.ranks"
TOLD = 2000
"""Characters of what failing processes print that are shown."""


class CalibrationError(RuntimeError):
    """The processes did not come to an end; the text is what they said."""


def measure(processes: int, rounds: int) -> Measured:
    """What so many processes measure at once, as medians over `rounds`. Raises CalibrationError."""
    with TemporaryDirectory(prefix="rpeg-calibrate-") as folder:
        out = Path(folder) / "measured.json"
        done = subprocess.run(
            [*_launcher(processes), PROGRAM, str(out), str(rounds)],
            env=_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            preexec_fn=die_with_parent,
        )
        if done.returncode:
            raise CalibrationError(f"the micro-benchmarks failed:\n{done.stderr[-TOLD:]}")
        return Measured.of_json(json.loads(out.read_text(encoding="utf-8")))


def _launcher(processes: int) -> list[str]:
    agent = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*agent, f"--nproc-per-node={processes}", "--module"]


def _environment() -> dict[str, str]:
    """One thread per process, gloo on the loopback interface, and this installation of rpeg."""
    root = str(Path(rpeg.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    loopback = {"GLOO_SOCKET_IFNAME": "lo"} if sys.platform == "linux" else {}
    return {"OMP_NUM_THREADS": "1", **loopback, **os.environ, "PYTHONPATH": path}
