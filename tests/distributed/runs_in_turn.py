"""Runs of pools_training.py in one launch, one after the other, so that torch is imported once.

RUNS is a JSON list of what each has in its environment. A run is a child of its own in every
process of the launch, and to the launcher's store another attempt: it shares no key with others.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import megatron.core.dist_checkpointing
import pools_training
import transformers

from rpeg.lifetime import AGENT, die_with_parent
from rpeg.runtime.megatron import optimizer, replica

ALL_LOADED = (megatron.core.dist_checkpointing, transformers, optimizer, replica)
"""What a run imports when it makes its models."""


def main() -> None:
    die_with_parent(int(os.environ[AGENT]))
    os.environ[AGENT] = str(os.getpid())  # a run ends with the process that started it
    for number, settings in enumerate(json.loads(os.environ["RUNS"])):
        sys.stdout.flush()
        child = os.fork()
        if not child:
            os.environ.update(settings, TORCHELASTIC_RESTART_COUNT=f"0/{number}")
            runpy.run_path(str(Path(pools_training.__file__)), run_name="__main__")
            sys.exit()
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
