"""Worker processes for code that may hang, crash or eat memory: reward functions.

Every call has a wall-time limit, every worker an address-space limit. A worker that hangs or dies
is killed and replaced, and its call counts as failed; the others go on.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Pipe, wait
from pathlib import Path

from rpeg.runtime.errors import VerifierFailure

Call = tuple[str, str, str | None, dict[str, object]]
"""(prompt, completion, answer, metadata)."""

START_SECONDS = 120.0
"""How long a worker may take to load its source."""
_REAP_SECONDS = 5.0
"""How long a killed worker may take to go."""
MEMORY_BYTES = 4 << 30
"""Address space of a worker."""
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
}
"""One thread, no accelerator, and sets in one order."""


@dataclass(frozen=True)
class Failed:
    """A call that gave no reward."""

    reason: str


Outcome = float | Failed


class _Worker:
    """One process, and the call that it works on."""

    def __init__(self, source: str, root: Path, memory: int) -> None:
        self.connection, theirs = Pipe()
        command = [sys.executable, "-P", str(Path(__file__).with_name("worker.py"))]
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), source, str(memory)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            cwd=root,
            env=os.environ | _ENVIRONMENT,
            start_new_session=True,
        )
        theirs.close()
        self.ready = False
        self.job: int | None = None
        self.deadline = time.monotonic() + START_SECONDS

    @property
    def idle(self) -> bool:
        return self.ready and self.job is None

    def give(self, job: int, call: Call, seconds: float) -> None:
        self.job = job
        self.deadline = time.monotonic() + seconds
        with suppress(BrokenPipeError):  # it died while idle: `receive` says so
            self.connection.send((*call, seconds))

    def receive(self) -> dict[str, float | str]:
        """The message that waits; a dead worker's is an error."""
        try:
            message: dict[str, float | str] = json.loads(self.connection.recv_bytes())
        except (EOFError, OSError):
            return {"error": "the worker process died", "died": "yes"}
        return message

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):  # a stuck system call must not hold up the run
            self._process.wait(_REAP_SECONDS)


class WorkerPool:
    """Runs the calls of one verifier on `size` processes, started at once and reused."""

    def __init__(
        self, source: str, *, root: Path, size: int, seconds: float, memory: int = MEMORY_BYTES
    ) -> None:
        self._source, self._root, self._memory = source, root, memory
        self._seconds = seconds
        self._workers = [self._start() for _ in range(size)]
        atexit.register(self.close)

    def wait_ready(self) -> None:
        """Waits until a worker has loaded the source. Raises VerifierFailure if it cannot."""
        while not any(worker.ready for worker in self._workers):
            self._wait({})

    def run(self, calls: Sequence[Call]) -> list[Outcome]:
        """The reward of every call, or why it has none, in order."""
        waiting = deque(enumerate(calls))
        outcomes: dict[int, Outcome] = {}
        while len(outcomes) < len(calls):
            for worker in self._workers:
                if worker.idle and waiting:
                    worker.give(*waiting.popleft(), self._seconds)
            self._wait(outcomes)
        return [outcomes[k] for k in range(len(calls))]

    def close(self) -> None:
        """Ends the workers."""
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def _start(self) -> _Worker:
        return _Worker(self._source, self._root, self._memory)

    def _wait(self, outcomes: dict[int, Outcome]) -> None:
        """Waits for the next message or deadline, and settles what it tells."""
        busy = [worker for worker in self._workers if not worker.idle]
        rest = min(worker.deadline for worker in busy) - time.monotonic()
        speaking = wait([worker.connection for worker in busy], max(0.0, rest))
        now = time.monotonic()
        for worker in busy:
            if worker.connection in speaking:
                self._settle(worker, worker.receive(), outcomes)
            elif worker.deadline <= now:
                message = (
                    f"took longer than {self._seconds:g} s" if worker.ready else "did not start"
                )
                self._settle(worker, {"error": message, "died": "yes"}, outcomes)

    def _settle(
        self, worker: _Worker, message: dict[str, float | str], outcomes: dict[int, Outcome]
    ) -> None:
        if not worker.ready and "error" in message:
            raise VerifierFailure(f"cannot load `{self._source}`: {message['error']}")
        if worker.job is not None:
            score = message.get("score")
            failed = Failed(str(message.get("error")))
            outcomes[worker.job] = score if isinstance(score, float) else failed
        worker.ready, worker.job = True, None
        if "died" in message:
            worker.kill()
            self._workers[self._workers.index(worker)] = self._start()
