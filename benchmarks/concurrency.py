"""What it costs that a generator and a trainer on two processes wait for each other.

    python benchmarks/concurrency.py [--steps 30] [--rounds 5] [--staleness 1]

Wall seconds of a step of `examples/async_two_pools.rpeg`, with samples at most so many steps old,
against the slower of the same two loops, run at the same time without each other
(`sides/loops.py`), in turns. A run's first three steps aren't counted, of the two loops only steps
in which both ran.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rpeg.runtime.logs.trace import read_trace

HERE = Path(__file__).resolve().parent
EXAMPLES = HERE.parent / "examples"
WARM_UP = 3
"""Steps at the beginning that aren't counted."""
Ends = list[float]
"""Seconds at which a loop's steps ended."""


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    ratios = []
    for done in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            coupled = pace(two_pools(Path(folder), options.steps, options.staleness))
            loops = both_loops(Path(folder), options.steps)
        alone = [pace(ends) for ends in together(loops)]
        ratios.append(coupled / max(alone))
        print(
            f"round {done + 1}  coupled {coupled:.3f} s a step, sampling alone {alone[0]:.3f}, "
            f"training alone {alone[1]:.3f}: ratio {ratios[-1]:.2f}",
            flush=True,
        )
    print(f"median ratio {statistics.median(ratios):.2f}")


def two_pools(folder: Path, steps: int, staleness: int) -> Ends:
    """The example, from fresh weights."""
    pipeline = folder / "async_two_pools.rpeg"
    (folder / "data").symlink_to(EXAMPLES / "data")
    text = (EXAMPLES / pipeline.name).read_text(encoding="utf-8")
    pipeline.write_text(text.replace("run:warmup/actor", "models/tiny-qwen3-digits"), "utf-8")
    settings = ["--set", f"steps={steps}", "--set", f"staleness={staleness}"]
    run = folder / "two"
    start(["-m", "rpeg.tools.rpeg", "run", pipeline, "--plan", "two", "--run-dir", run, *settings])
    return step_ends(run, process=1)


def both_loops(folder: Path, steps: int) -> list[Ends]:
    """The ends of the sampling and the training loop's steps, which run at the same time."""
    names = ("sample", "train")
    running = [
        subprocess.Popen(
            [sys.executable, str(HERE / "sides" / "loops.py"), name],
            env=environment(RPEG_RUN_DIR=folder / name, RPEG_ROOT=EXAMPLES, STEPS=steps),
            stdout=subprocess.DEVNULL,
        )
        for name in names
    ]
    if any([process.wait() for process in running]):
        raise SystemExit("a loop failed")
    return [step_ends(folder / name, process=0) for name in names]


def start(command: Sequence[object]) -> None:
    """Runs Python, silent. Raises CalledProcessError if it fails."""
    subprocess.run(
        [sys.executable, *map(str, command)],
        check=True,
        stdout=subprocess.DEVNULL,
        env=environment(),
    )


def environment(**more: object) -> dict[str, str]:
    """Of a process to measure."""
    path = {"PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **path, **{name: str(value) for name, value in more.items()}}


def step_ends(run: Path, process: int) -> Ends:
    """When each step of a process ended, after the warm-up."""
    ends: dict[int, float] = {}
    for event in read_trace(run / "trace.json"):
        if event["tid"] == process:
            step, end = event["args"]["step"], (event["ts"] + event["dur"]) / 1e6
            ends[step] = max(end, ends.get(step, 0.0))
    return [ends[step] for step in sorted(ends) if step > WARM_UP]


def together(loops: Sequence[Ends]) -> list[Ends]:
    """Of each loop, what lies in the time in which all of them ran."""
    begin, end = max(ends[0] for ends in loops), min(ends[-1] for ends in loops)
    kept = [[t for t in ends if begin <= t <= end] for ends in loops]
    if min(map(len, kept)) < 2:
        raise SystemExit("the loops hardly ran at the same time: raise --steps")
    return kept


def pace(ends: Ends) -> float:
    """Seconds a step."""
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--staleness", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
