"""TRL's own environment: a virtual environment with pinned versions, made once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PINS = (
    "accelerate==1.15.0",
    "datasets==5.2.0",
    "torch==2.13.0",
    "transformers==5.19.0",
    "trl==1.16.0",
)


def trl_python(folder: Path) -> Path:
    """The interpreter of the environment in `folder`, which is made if its pins aren't these.

    Raises CalledProcessError if pip can't install them.
    """
    python, made = folder / "bin" / "python", folder / "pins.txt"
    wanted = "\n".join(PINS) + "\n"
    if not made.is_file() or made.read_text(encoding="utf-8") != wanted:
        print(f"making TRL's environment in {folder}, once; this takes minutes", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PINS], check=True)
        made.write_text(wanted, encoding="utf-8")
    return python
