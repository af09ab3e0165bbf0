"""Starting a package: its own launch.sh, with what the command line says in the environment."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import IO

from rpeg.lifetime import INTERRUPTED, TERMINATED, die_with_parent, terminations
from rpeg.rundir.folder import RunFolder
from rpeg.rundir.lock import LOCKS, FolderLock
from rpeg.tools.console import Failure

_LOOK_SECONDS = 0.1
_TOLD_SECONDS = 5.0


GPU_DEVICES = ("nvidia*", "nvhost*", "dxg", "kfd")
"""Files in /dev that the drivers of GPUs make on Linux."""


def visible_gpus() -> int:
    """GPUs that torch sees. It is not asked where there can be none: importing it takes seconds."""
    if sys.platform == "linux" and not any(any(Path("/dev").glob(d)) for d in GPU_DEVICES):
        return 0
    import torch

    return torch.cuda.device_count()


def need_torch() -> None:
    """Raises Failure where the runtime's packages are not installed."""
    missing = [m for m in ("torch", "megatron.core") if not _installed(m)]
    if missing:
        raise Failure(f"running needs {' and '.join(missing)}: pip install 'rpeg[run]'")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def environment(
    run_dir: Path | None, seed: int | None, root: Path | None, allow_python: bool
) -> dict[str, str]:
    """The variables that a program reads, where the command line says something."""
    given = {
        "RPEG_RUN_DIR": run_dir,
        "RPEG_SEED": seed,
        "RPEG_ROOT": root,
        "RPEG_ALLOW_PYTHON": 1 if allow_python else None,
    }
    return {k: str(v) for k, v in given.items() if v is not None}


def script(package: Path) -> Path:
    """What launches a package. Raises Failure."""
    found = package / "launch.sh"
    if not package.exists():
        raise Failure(f"{package}: there is no such folder; give one that rpeg compile wrote")
    if not found.is_file():
        raise Failure(f"{package} has no launch.sh: it is not what rpeg compile writes")
    return found


def refuse_taken(folder: RunFolder) -> None:
    """Raises RunFolderFailure if a run can't have the folder: others' files are there, or a process
    is at work. Writes nothing.
    """
    folder.refuse_foreign()
    for name in LOCKS:
        FolderLock(folder.path, name).look()


def launch(package: Path, variables: Mapping[str, str], output: IO[str] | None = None) -> int:
    """Runs the package's launch.sh with this interpreter; its exit code. What it prints goes to
    `output`, or where this process prints.

    What it starts ends with this process, even if that is killed; SIGTERM is passed on.
    """
    command = ["bash", str(script(package))]
    need_torch()
    child = {**os.environ, "PYTHON": sys.executable, **variables}
    with terminations() as told:
        process = subprocess.Popen(
            command,
            env=child,
            preexec_fn=die_with_parent,
            stdout=output,
            stderr=output,
        )
        try:
            status = _wait(process, told)
        except KeyboardInterrupt:
            _interrupt(process)
            return 130
    if not told.is_set():
        return status if status >= 0 else 128 - status
    if status < 0:  # it was too young to say so itself
        print(INTERRUPTED, file=sys.stderr)
    return TERMINATED


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Waits for it to end. A terminal interrupts it as well. A signal to this process alone is not
    passed on, since an agent that is interrupted twice shows a traceback.
    """
    try:
        process.wait(_TOLD_SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        process.wait()


def _wait(process: subprocess.Popen[bytes], told: Event) -> int:
    """Its exit status, negative where a signal ended it; passes SIGTERM on, once.

    It looks now and then: a wait that blocks would miss a signal that came right before it.
    """
    passed_on = False
    while process.poll() is None:
        if told.is_set() and not passed_on:
            process.terminate()
            passed_on = True
        time.sleep(_LOOK_SECONDS)
    return process.returncode
