"""The demo's pipelines in a folder of their own, the second one from weights that are warmed up."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WARM = "out/sort_digits/warmup"


def write_pipeline(folder: Path, seed: int = 0) -> Path:
    """The demo's file in `folder`, its second pipeline starting from the warm-up's export there.

    The warm-up is trained the first time.
    """
    shutil.copytree(EXAMPLES / "data", folder / "data", dirs_exist_ok=True)
    text = (EXAMPLES / "sort_digits.rpeg").read_text(encoding="utf-8")
    path = folder / "sort_digits.rpeg"
    path.write_text(text.replace("run:warmup/actor", WARM), encoding="utf-8")
    if not (folder / WARM / "model.safetensors").is_file():
        where = ("--run-dir", str(folder / "warmup"), "--seed", str(seed))
        rpeg("run", f"{path}:warmup", "--processes", "1", *where)
    return path


def rpeg(*arguments: str) -> None:
    """One command of rpeg, silent. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "rpeg.tools.rpeg", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
