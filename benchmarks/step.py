"""CPU seconds of one GRPO step: RPEG and TRL, alternately, on one thread.

    python benchmarks/step.py [--rounds 5] [--dtypes fp32,bf16] [--only rpeg|trl]

The job is in `sides/job.py`. Both sides live through all rounds, each in a process of its own;
their steps take turns, and CPU time is counted inside them. TRL gets an environment of its own,
made once in `build/trl`. Prints the stages of the median step of each side, and the ratio of the
medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SIDES = ROOT / "benchmarks" / "sides"
sys.path.insert(0, str(SIDES))

from environment import trl_python  # noqa: E402
from job import Job  # noqa: E402

STAGES = ("prefill", "decode", "reward", "forward", "backward", "optimizer", "publish", "other")
Step = dict[str, float]
"""CPU seconds by stage."""


class Side:
    """One side's process: a step each time it is asked."""

    def __init__(self, name: str, python: Path, job: Job, folder: Path) -> None:
        self.name = name
        self.dtype = job.dtype
        self.steps: list[Step] = []
        folder.mkdir()
        self._log = folder / "log.txt"
        script = str(SIDES / f"{name}_side.py")
        self._process = subprocess.Popen(
            [str(python), script, job.write(), str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log.open("w"),
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            text=True,
        )

    def step(self) -> Step:
        """One step. Raises RuntimeError with the end of the log if the process has died."""
        assert self._process.stdin and self._process.stdout, "both are pipes"
        try:
            print("step", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            self.fail()
        line = self._process.stdout.readline()
        if not line:
            self.fail()
        found: Step = json.loads(line)
        return found

    def fail(self) -> None:
        """Says how the process ended."""
        log = self._log.read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"{self.name} {self.dtype} ended:\n{log[-3000:]}")

    def close(self) -> None:
        """Lets the process end."""
        self._process.communicate()


def run(sides: list[Side], rounds: int) -> None:
    """One step each to warm up, then `rounds` steps each, in turns."""
    for side in sides:
        side.step()
    for done in range(rounds):
        for side in sides:
            side.steps.append(side.step())
            total = sum(side.steps[-1].values())
            print(f"round {done + 1}  {side.name:<5}{side.dtype:<6}{total:8.2f} s", flush=True)


def table(sides: list[Side]) -> str:
    """Median CPU seconds by stage, one line a side."""
    lines = ["".join([f"{'':14}", *(f"{stage:>10}" for stage in (*STAGES, "total"))])]
    for side in sides:
        medians = [statistics.median(step.get(s, 0.0) for step in side.steps) for s in STAGES]
        cells = "".join(f"{value:10.2f}" for value in [*medians, median(side)])
        lines.append(f"{side.name:<6}{side.dtype:<8}{cells}")
    return "\n".join(lines)


def median(side: Side) -> float:
    """The side's CPU seconds per step."""
    return statistics.median(sum(step.values()) for step in side.steps)


def ratios(sides: list[Side]) -> str:
    """RPEG's median over TRL's, and the ratio of every round."""
    lines = []
    for ours, theirs in zip(sides[::2], sides[1::2], strict=True):
        pairs = zip(ours.steps, theirs.steps, strict=True)
        each = ", ".join(f"{sum(a.values()) / sum(b.values()):.2f}" for a, b in pairs)
        ratio = median(ours) / median(theirs)
        lines.append(f"{ours.dtype}: RPEG / TRL = {ratio:.2f} (rounds: {each})")
    return "\n".join(lines)


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    job = Job(options.prompts, options.completions, options.tokens, options.rounds + 1)
    names = (options.only,) if options.only else ("rpeg", "trl")
    pythons = {"rpeg": Path(sys.executable)}
    if "trl" in names:
        pythons["trl"] = trl_python(ROOT / "build" / "trl")
    with tempfile.TemporaryDirectory() as folder:
        sides = [
            Side(name, pythons[name], replace(job, dtype=dtype), Path(folder, f"{name}-{dtype}"))
            for dtype in options.dtypes.split(",")
            for name in names
        ]
        run(sides, options.rounds)
        for side in sides:
            side.close()
    print(f"\nmedian CPU seconds of {options.rounds} steps\n{table(sides)}")
    if len(names) == 2:
        print(ratios(sides))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--only", choices=("rpeg", "trl"))
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--completions", type=int, default=8, help="of each prompt")
    parser.add_argument("--tokens", type=int, default=64, help="of each completion")
    return parser.parse_args()


if __name__ == "__main__":
    main()
