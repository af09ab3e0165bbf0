"""Does the demo learn, and from its rewards? Three seeds of it, and a control.

    python benchmarks/demo_seeds.py [FOLDER]

The control is the generated program of the first seed with one line more: it shuffles the rewards
of each process before they are used, so that they say nothing about the answers. Finished runs in
FOLDER (default `runs/demo-seeds`) are not run again. Prints a table and what was required of it;
exits with 1 if the requirements do not hold.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from rpeg.runtime.logs.metrics import Line, read_metrics
from rpeg.runtime.logs.report import series

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SEEDS = (0, 1, 2)
MEDIAN_AFTER, GAIN, CONTROL_GAIN = 0.82, 0.30, 0.03


class Result(NamedTuple):
    """Held-out accuracy before and after reinforcement, and seconds of both runs' steps."""

    name: str
    before: float
    after: float
    seconds: float

    @property
    def gain(self) -> float:
        """Accuracy won."""
        return self.after - self.before


def main(folder: Path) -> int:
    """Runs what is not finished, then judges."""
    results = []
    for seed in SEEDS:
        train(folder / f"seed-{seed}", seed)
        results.append(measure(f"seed {seed}", folder / f"seed-{seed}", "grpo"))
    control = run_control(folder / f"seed-{SEEDS[0]}", SEEDS[0])
    print(table([*results, control]))
    return judge(results, control)


def train(folder: Path, seed: int) -> None:
    """Both pipelines, in a copy of the examples: exported weights go beside their pipeline."""
    folder.mkdir(parents=True, exist_ok=True)
    file = Path(shutil.copy(EXAMPLES / "sort_digits.rpeg", folder))
    shutil.copytree(EXAMPLES / "data", folder / "data", dirs_exist_ok=True)
    for pipeline in ("warmup", "grpo"):
        where = ("--seed", str(seed), "--run-dir", str(folder / pipeline))
        rpeg("run", f"{file}:{pipeline}", *where)


def run_control(folder: Path, seed: int) -> Result:
    """The same second run, its rewards shuffled."""
    package = folder / "control-program"
    rpeg("compile", f"{folder / 'sort_digits.rpeg'}:grpo", "-o", str(package), "--force")
    (program,) = package.glob("program_*.py")
    program.write_text(shuffle_rewards(program.read_text(encoding="utf-8")), encoding="utf-8")
    rpeg("launch", str(package), "--seed", str(seed), "--run-dir", str(folder / "control"))
    return measure("control", folder, "control")


def shuffle_rewards(program: str) -> str:
    """The program with a line after `score` that takes the meaning out of the rewards."""
    scored = re.compile(r"^( +)(r = correct\.score\(.*\))$", re.MULTILINE)
    text, lines = scored.subn(r"\1\2\n\1r = r[torch.randperm(len(r))]", program)
    if lines != 1:
        raise ValueError("the generated program does not score as this benchmark expects")
    return text.replace("from rpeg import", "import torch\nfrom rpeg import", 1)


def rpeg(*arguments: str) -> None:
    """One command of rpeg. Raises CalledProcessError if it fails."""
    subprocess.run([sys.executable, "-m", "rpeg.tools.rpeg", *arguments], check=True)


def measure(name: str, folder: Path, trained: str) -> Result:
    """What the warm-up and the run after it logged."""
    before, after = (read_metrics(folder / run / "metrics.jsonl") for run in ("warmup", trained))
    seconds = sum(series([*before, *after], "seconds")[1])
    return Result(name, last_accuracy(before), last_accuracy(after), seconds)


def last_accuracy(lines: list[Line]) -> float:
    """The last held-out accuracy that a run logged."""
    return series(lines, "eval/heldout_acc")[1][-1]


def table(results: list[Result]) -> str:
    """The results, one per line."""
    rows = [
        f"{r.name:<10}{r.before:8.3f}{r.after:8.3f}{r.gain:+8.3f}{r.seconds:9.0f}" for r in results
    ]
    return "\n".join([f"{'':10}{'before':>8}{'after':>8}{'gain':>8}{'seconds':>9}", *rows])


def judge(results: list[Result], control: Result) -> int:
    """Prints which requirements hold; 0 if all do."""
    median = statistics.median(r.after for r in results)
    least = min(r.gain for r in results)
    checks = (
        (f"median after {median:.3f} >= {MEDIAN_AFTER}", median >= MEDIAN_AFTER),
        (f"least gain {least:+.3f} >= {GAIN}", least >= GAIN),
        (f"control's gain {control.gain:+.3f} <= {CONTROL_GAIN}", control.gain <= CONTROL_GAIN),
    )
    for text, holds in checks:
        print(f"{'ok' if holds else 'MISSED':<8}{text}")
    return 0 if all(holds for _, holds in checks) else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/demo-seeds").resolve()))
