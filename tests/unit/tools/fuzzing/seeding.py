"""The seed of everything random here: each state of the package has its own, and so its own inputs.

The same package always meets the same inputs, so that what held before it landed holds in
continuous integration too, whatever commit it landed as. RPEG_FUZZ_SEED is another seed; outside
of a git checkout each run draws one.
"""

from __future__ import annotations

import os
import random
import subprocess

from tests.unit.tools.opt import ROOT

FOLDER = "tests/unit/tools/fuzzing"


def seed_here() -> int:
    """The seed that was asked for, else the package's, else any."""
    given = os.environ.get("RPEG_FUZZ_SEED")
    if given is not None:
        return int(given)
    return source_seed() or random.SystemRandom().getrandbits(28)


def source_seed() -> int | None:
    """The first digits of the package's tree; None outside of a git checkout, or without git."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD:rpeg"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(found.stdout[:7], 16)


def again(seed: int, number: int, test: str) -> str:
    """The command that repeats an input and what follows it: `test` is `MODULE.py::TEST`."""
    setting = f"RPEG_FUZZ_SEED={seed} RPEG_FUZZ_FROM={number}"
    return f"{setting} python -m pytest '{FOLDER}/{test}'"


SEED = seed_here()
FROM = int(os.environ.get("RPEG_FUZZ_FROM", "0"))
"""The first input of the quick tests."""
