"""Runs guess.rpeg in the reference interpreter: python examples/guess/play.py."""

import sys
from pathlib import Path

from rpeg.frontend import load
from rpeg.interp import Interpreter, InterpreterError, World

HERE = Path(__file__).parent


def main():
    file = HERE / "guess.rpeg"
    loaded = load(file.read_text(encoding="utf-8"), str(file))
    if loaded.module is None:
        sys.exit("\n".join(map(str, loaded.diagnostics)))
    try:
        recording = Interpreter(loaded.module, "guess", World(HERE)).run()
    except InterpreterError as error:
        sys.exit(f"error: {error}")
    for number, step in enumerate(recording.steps):
        y, reward = step.trajectories["y"], step.rewards["r"].mean()
        heard = int(((y.versions < 0) & (y.tokens != 0)).sum())
        print(f"step {number}: reward {reward:.2f}, {y.token_count} tokens written, {heard} heard")


if __name__ == "__main__":
    main()
