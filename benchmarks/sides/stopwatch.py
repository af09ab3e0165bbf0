"""CPU seconds of this process by stage, and the turns that the benchmark gives it."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO


class Stopwatch:
    """Seconds of CPU, all threads of the process together; a stage within a stage counts in its
    own only.
    """

    def __init__(self) -> None:
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._open = ["other"]
        self._last = time.process_time()

    def _settle(self) -> None:
        now = time.process_time()
        self._spent[self._open[-1]] += now - self._last
        self._last = now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the body as `name`."""
        self._settle()
        self._open.append(name)
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Counts every call of a method or function of `owner` as `name`."""
        setattr(owner, attribute, self.counted(getattr(owner, attribute), name))

    def counted(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """`function`, counted as `name`."""

        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self.stage(name):
                return function(*args, **kwargs)

        return timed

    def lap(self) -> dict[str, float]:
        """Seconds by stage since the last lap."""
        self._settle()
        spent, self._spent = dict(self._spent), defaultdict(float)
        return spent


class Turns:
    """Steps when the benchmark asks for them, so that the sides alternate.

    One line of standard input per step, one line of standard output back; what else is printed goes
    to standard error.
    """

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._out: TextIO = os.fdopen(os.dup(sys.stdout.fileno()), "w")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def wait(self) -> None:
        """Until the next step is asked for."""
        if not sys.stdin.readline():
            sys.exit(0)
        self._watch.lap()

    def answer(self) -> None:
        """What the step took."""
        print(json.dumps(self._watch.lap()), file=self._out, flush=True)
