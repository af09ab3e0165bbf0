"""`make demo`: a small model learns to sort digits by reinforcement, in minutes on two CPU cores.

Runs both pipelines of `sort_digits.rpeg`. First `warmup`: demonstrations, until the model gets some
problems right. Then `grpo`: nothing but rewards. Stop it whenever you like: the next call goes on
from the last checkpoint.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rpeg.rundir.folder import RunFolder
from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.logs.report import plot_run, series
from rpeg.tools.rpeg import main as rpeg

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "runs"
STAGES = {
    "warmup": "1/2  learn from demonstrations, until some answers are right",
    "grpo": "2/2  GRPO: sample answers, reward the right ones",
}
"""Pipeline -> what it is."""


def main() -> int:
    """Trains and says what came of it; the exit code of the first stage that fails, or 0."""
    for pipeline, what in STAGES.items():
        print(f"\n{what}", flush=True)
        code = train(pipeline)
        if code:
            return code
    print(f"\n{summary(RUNS / 'warmup', RUNS / 'grpo')}")
    print(f"reward by step: {plot_run(RUNS / 'grpo', RUNS / 'grpo' / 'report.png')}")
    return 0


def train(pipeline: str) -> int:
    """Runs one pipeline, unless it is finished; its exit code."""
    record = RunFolder(RUNS / pipeline).read()
    if record is not None and record.is_done(record.steps):
        print(f"already done: to train it again, delete {RUNS / pipeline}")
        return 0
    file = ROOT / "examples" / "sort_digits.rpeg"
    return rpeg(["run", f"{file}:{pipeline}", "--run-dir", str(RUNS / pipeline)])


def summary(before: Path, after: Path) -> str:
    """Held-out accuracy at the end of two runs, and the minutes that their steps took."""
    minutes = (seconds(before) + seconds(after)) / 60
    return (
        f"held-out accuracy, 1024 problems that no run trains on: {heldout(before):.3f} before "
        f"reinforcement, {heldout(after):.3f} after ({minutes:.1f} minutes of training)"
    )


def heldout(run_dir: Path) -> float:
    """The last held-out accuracy that a run logged."""
    _, values = series(read_metrics(run_dir / "metrics.jsonl"), "eval/heldout_acc")
    return values[-1]


def seconds(run_dir: Path) -> float:
    """Wall time of a run's steps."""
    return sum(series(read_metrics(run_dir / "metrics.jsonl"), "seconds")[1])


if __name__ == "__main__":
    sys.exit(main())
