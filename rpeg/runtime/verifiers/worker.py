"""A verifier's worker process: `python -P worker.py FD SOURCE MEMORY`. Imports nothing of rpeg, so
no torch.

It reads pickled `(prompt, completion, answer, metadata, seconds)` from the inherited connection FD
and answers each with one JSON object: `{"score": float}` or `{"error": text}`. Its first message
says whether the source was loaded.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

Reward = Callable[[str, str, "str | None", "dict[str, Any]"], float]

_GRACE_SECONDS = 5.0
"""How long past its limit a call may hang if the parent is gone and cannot kill it."""


def main() -> None:
    """Loads the source, then answers calls until the parent goes away."""
    descriptor, source, memory = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    connection = Connection(descriptor)
    try:
        reward = load(source)
    except BaseException as error:
        _reply(connection, error=f"{type(error).__name__}: {error}")
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _reply(connection)
    while _answer_one(connection, reward):
        pass


def load(source: str) -> Reward:
    """The reward function of `gym:TASK` or `python:module:function`."""
    scheme, _, rest = source.partition(":")
    if scheme == "gym":
        return gym_reward(rest)
    sys.path.append(os.getcwd())
    module, _, function = rest.partition(":")
    reward: Reward = getattr(importlib.import_module(module), function)
    return reward


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


def _answer_one(connection: Connection, reward: Reward) -> bool:
    try:
        prompt, completion, answer, metadata, seconds = connection.recv()
    except EOFError:
        return False
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_SECONDS)
    try:
        score = float(reward(prompt, completion, answer, metadata))
        if not math.isfinite(score):
            raise ValueError(f"the reward must be a finite number, not {score}")
        _reply(connection, score=score)
    except Exception as error:
        _reply(connection, error=f"{type(error).__name__}: {error}")
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


def _reply(connection: Connection, **content: object) -> None:
    connection.send_bytes(json.dumps(content).encode())


if __name__ == "__main__":
    main()
