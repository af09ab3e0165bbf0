"""Wall seconds of a step of the demo's reinforcement pipeline: two processes against one.

    python benchmarks/processes.py [FOLDER] [--steps 6] [--rounds 3]

Both run `examples/sort_digits.rpeg:grpo` on as many processes, from the same warmed-up weights, in
turns. A run's first step isn't counted. The warm-up is trained once, in FOLDER (default
`runs/processes`).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "sides"))

from demo import rpeg, write_pipeline

from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.logs.report import series

PROCESSES = (1, 2)


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    pipeline = write_pipeline(options.folder.resolve())
    seconds: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    for done in range(options.rounds):
        for processes, found in seconds.items():
            found.append(median_step(pipeline, processes, options.steps))
            print(
                f"round {done + 1}  {processes} processes {found[-1]:7.2f} s per step", flush=True
            )
    print(report(seconds))


def median_step(pipeline: Path, processes: int, steps: int) -> float:
    """Runs the pipeline; the median of its steps' wall seconds."""
    with tempfile.TemporaryDirectory() as run:
        settings = ["--processes", str(processes), "--set", f"steps={steps}", "--run-dir", run]
        rpeg("run", f"{pipeline}:grpo", *settings)
        lines = read_metrics(Path(run) / "metrics.jsonl")
    return statistics.median(series(lines, "seconds")[1][1:])


def report(seconds: dict[int, list[float]]) -> str:
    """The medians and their ratio."""
    one, two = (statistics.median(seconds[processes]) for processes in PROCESSES)
    each = ", ".join(f"{b / a:.2f}" for a, b in zip(*seconds.values(), strict=True))
    return f"1 process {one:.2f} s, 2 processes {two:.2f} s: ratio {two / one:.2f} (rounds: {each})"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/processes"))
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
