"""Starts the processes of a program: `python -m rpeg.runtime.launch [torchrun's options] PROGRAM`.

The agent is torchrun's own. What differs is the end: a program that fails has said why itself, so
the agent adds one line only where a process could not (it was killed, or all were stopped), and
passes the exit code on.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Sequence
from tempfile import TemporaryDirectory

from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
from torch.distributed.run import get_args_parser
from torch.distributed.run import run as torchrun

from rpeg.lifetime import AGENT, INTERRUPTED

REPORTED = 1
"""Exit code of a process that printed what went wrong."""


def main(arguments: Sequence[str]) -> int:
    """Runs the program; its exit code."""
    options = get_args_parser().parse_args(list(arguments))
    if _alone(options):
        command = [sys.executable, options.training_script, *options.training_script_args]
        os.execv(sys.executable, command)
    logging.disable()  # the agent's loggers set levels of their own
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ[AGENT] = str(os.getpid())
    try:
        # torchrun would leave a folder of its own behind
        with TemporaryDirectory(prefix="rpeg-agent-") as logs:
            options.log_dir = options.log_dir or logs
            torchrun(options)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        return _explain(rank, failure)
    except SignalException as error:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # one came from the group, one from rpeg
        print(INTERRUPTED, file=sys.stderr)
        return 128 + error.sigval
    except KeyboardInterrupt:
        return 130
    return 0


def _alone(options: Namespace) -> bool:
    """One process needs no agent."""
    return options.nproc_per_node == "1" and options.nnodes in ("1", "1:1")


def _explain(rank: int, failure: ProcessFailure) -> int:
    if failure.exitcode != REPORTED:
        killed = f"was ended by {failure.signal_name()}"
        how = killed if failure.exitcode < 0 else f"ended with exit code {failure.exitcode}"
        text = f"error: process {rank} {how}; the same command resumes from the last checkpoint"
        print(text, file=sys.stderr)
    return abs(failure.exitcode) if failure.exitcode > 0 else 128 - failure.exitcode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
