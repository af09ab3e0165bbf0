"""Wall seconds of a step of the demo's reinforcement pipeline: two processes against one.

    python benchmarks/processes.py [FOLDER] [--steps 6] [--rounds 3]

Both run `examples/sort_digits.rpeg:grpo` on as many processes, from the same warmed-up weights, in
turns. A run's first step isn't counted. The warm-up is trained once, in FOLDER (default
`runs/processes`).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.logs.report import series

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROCESSES = (1, 2)
WARM = "out/sort_digits/warmup"


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    pipeline = write_pipeline(options.folder.resolve())
    seconds: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    for done in range(options.rounds):
        for processes, found in seconds.items():
            found.append(median_step(pipeline, processes, options.steps))
            print(f"round {done + 1}  {processes} processes {found[-1]:7.2f} s a step", flush=True)
    print(report(seconds))


def write_pipeline(folder: Path) -> Path:
    """The demo's file in `folder`, its second pipeline starting from the warm-up's export there."""
    shutil.copytree(EXAMPLES / "data", folder / "data", dirs_exist_ok=True)
    text = (EXAMPLES / "sort_digits.rpeg").read_text(encoding="utf-8")
    path = folder / "sort_digits.rpeg"
    path.write_text(text.replace("run:warmup/actor", WARM), encoding="utf-8")
    if not (folder / WARM / "model.safetensors").is_file():
        rpeg("run", f"{path}:warmup", "--run-dir", str(folder / "warmup"))
    return path


def median_step(pipeline: Path, processes: int, steps: int) -> float:
    """Runs the pipeline; the median of its steps' wall seconds."""
    with tempfile.TemporaryDirectory() as run:
        settings = ["--processes", str(processes), "--set", f"steps={steps}", "--run-dir", run]
        rpeg("run", f"{pipeline}:grpo", *settings)
        lines = read_metrics(Path(run) / "metrics.jsonl")
    return statistics.median(series(lines, "seconds")[1][1:])


def rpeg(*arguments: str) -> None:
    """One command of rpeg, silent. Raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "rpeg.tools.rpeg", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)


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
