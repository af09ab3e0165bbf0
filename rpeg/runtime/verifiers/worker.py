"""A verifier's worker process: `python -P worker.py FD SOURCE MEMORY`. Imports nothing of rpeg, so
no torch.

It reads pickled `(prompt, completion, answer, metadata, seconds)` from the inherited connection FD
and answers each with one JSON object: `{"score": float}` or `{"error": text}`. Its first message
says whether the source was loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import inspect
import json
import math
import os
import resource
import signal
import sys
import sysconfig
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from numbers import Real
from typing import Any, cast

Reward = Callable[[str, str, "str | None", "dict[str, Any]"], float]

_PR_SET_PDEATHSIG = 1
"""The kernel kills this process when its parent ends."""
_LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
"""Folders whose code is nobody's own."""
_GRACE_SECONDS = 5.0
"""How long past its limit a call may hang if the parent is gone and cannot kill it."""


def main() -> None:
    """Loads the source, then answers calls until the parent goes away."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    descriptor, source, memory = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # there is nobody to tell
        _serve(Connection(descriptor), source, memory)


def _serve(connection: Connection, source: str, memory: int) -> None:
    try:
        reward = load(source)
    except BaseException as error:
        _reply(connection, error=str(error) if isinstance(error, Missing) else described(error))
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _reply(connection)
    while _answer_one(connection, reward):
        pass


class Missing(Exception):
    """A module or a function that is not there."""


def load(source: str) -> Reward:
    """The reward function of `gym:TASK` or `python:module:function`."""
    scheme, _, rest = source.partition(":")
    if scheme == "gym":
        return gym_reward(rest)
    return python_reward(rest)


def python_reward(target: str) -> Reward:
    """The function `module:function`; modules beside the pipeline come before installed ones.

    Raises Missing with what is not there.
    """
    module, _, function = target.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        reward = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0] and error.name != module:
            raise
        raise Missing(f"there is no {module}.py in {os.getcwd()}, and none installed") from error
    if not callable(reward):
        what = "no function" if reward is None else "something else than a function as"
        raise Missing(f"{module}.py has {what} `{function}`")
    return cast("Reward", reward)


def gym_reward(task: str) -> Reward:
    """reasoning-gym's own `score_answer`, on the text in the last `<answer>` tag, else on all."""
    import reasoning_gym
    from reasoning_gym.utils import extract_answer

    dataset = reasoning_gym.create_dataset(task, seed=0, size=1)

    def reward(prompt: str, completion: str, answer: str | None, metadata: dict[str, Any]) -> float:
        entry = {"question": prompt, "answer": answer, "metadata": metadata}
        tagged = extract_answer(completion)
        return float(dataset.score_answer(completion.strip() if tagged is None else tagged, entry))

    return reward


def described(error: BaseException) -> str:
    """An error of other people's code in one line, with the last line of theirs that led to it:
    `rewards.py:3: ValueError: no number`, its path whole.
    """
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = f"{error.filename}:{error.lineno}:{error.offset}"
        return f"{place}: {type(error).__name__}: {error.msg}"
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename != __file__ and not frame.f_code.co_filename.startswith("<")
    ]
    own = [place for place in frames if not place[0].startswith(_LIBRARIES)]
    file, line = own[-1] if own else frames[0] if frames else ("", 0)
    said = f": {error}" if str(error) else ""
    return f"{file}:{line}: " * bool(file) + type(error).__name__ + said


def _defined(reward: Reward) -> str:
    """Where a function is written: `rewards.py:1: `; nothing of what is not in Python."""
    plain = inspect.unwrap(reward)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}: "


def _answer_one(connection: Connection, reward: Reward) -> bool:
    try:
        prompt, completion, answer, metadata, seconds = connection.recv()
    except EOFError:
        return False
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_SECONDS)
    try:
        given = reward(prompt, completion, answer, metadata)
    except Exception as error:
        _reply(connection, error=described(error))
    else:
        _reply_number(connection, reward, given)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def _reply_number(connection: Connection, reward: Reward, given: object) -> None:
    try:
        _reply(connection, score=number(given))
    except (TypeError, ValueError) as error:
        _reply(connection, error=f"{_defined(reward)}{error}")


def number(reward: object) -> float:
    """A reward as a float. Raises TypeError or ValueError if it isn't a finite number.

    numpy registers its numbers as `Real`, but its bools have a class of their own.
    """
    if not isinstance(reward, Real) and type(reward).__name__ not in ("bool", "bool_"):
        raise TypeError(f"the reward must be a finite number, not {reward!r:.60}")
    value = float(cast("float", reward))
    if not math.isfinite(value):
        raise ValueError(f"the reward must be a finite number, not {value}")
    return value


def _reply(connection: Connection, **content: object) -> None:
    connection.send_bytes(json.dumps(content).encode())


if __name__ == "__main__":
    main()
