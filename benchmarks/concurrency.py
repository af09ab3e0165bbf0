"""What it costs that a generator and a trainer on two processes wait for each other.

    python benchmarks/concurrency.py [FOLDER] [--steps 20] [--rounds 5] [--staleness 1]

Wall seconds of a step of `examples/async_two_pools.rpeg` on its two pools, with samples at most so
many steps old, against the slower of the same two loops, run at the same time without each other
(`sides/loops.py`), in turns. Beside them, once, the same step at a staleness of 0, data-parallel on
both processes. All of it with the rule that checks the answers, and with a verifier that takes its
time for each: so much that a batch waits 0.8 of what sampling and training take.

All start from the demo's warm-up, which is trained once, in FOLDER (default `runs/concurrency`).
A run's first three steps aren't counted; nothing is evaluated or saved.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "sides"))

from demo import EXAMPLES, WARM, rpeg, write_pipeline

from rpeg.runtime.logs.trace import read_trace

HERE = Path(__file__).resolve().parent
PIPELINE = "async_two_pools.rpeg"
WARM_UP = 3
"""Steps at the beginning that aren't counted."""
EVALUATIONS = re.compile(
    r"    every\(steps=25\) {\n.*?\n    }\n|  data heldout = [^\n]*\n| *heldout_acc on [^\n]*\n",
    re.S,
)
"""What the pipeline does on some steps, the data for that, and where."""
SAMPLES = 32 * 8
PART = 0.8
"""Of sampling and training: how long a batch waits for the slow verifier."""
RULE, SLOW = "rule:exact_match", "python:slow_reward:reward"
SLOW_REWARD = '''\
"""Checks an answer, and takes its time."""

import os
import time


def reward(prompt, completion, answer, metadata):
    time.sleep(float(os.environ["SECONDS_A_SAMPLE"]))
    return float(completion.strip() == answer.strip())
'''
Ends = list[float]
"""Seconds at which a loop's steps ended."""


@dataclass(frozen=True)
class Job:
    """One pipeline, compiled for two pools and for both processes together."""

    folder: Path
    verifier: str
    steps: int
    seconds_a_sample: float = 0.0

    def compile(self, staleness: int) -> None:
        """Writes both programs."""
        text = (EXAMPLES / PIPELINE).read_text(encoding="utf-8")
        text = text.replace("run:warmup/actor", WARM).replace(RULE, self.verifier)
        file = self.folder / PIPELINE
        file.write_text(EVALUATIONS.sub("", text), encoding="utf-8")
        for package, how, old in (
            (self.two, ("--plan", "two"), staleness),
            (self.one, ("--processes", "2"), 0),
        ):
            settings = ("--set", f"steps={self.steps}", "--set", f"staleness={old}")
            where = ("-o", str(package), "--force", *self.permission)
            rpeg("compile", str(file), *how, *settings, *where)

    @property
    def two(self) -> Path:
        """The programs of two pools."""
        return self.folder / "two"

    @property
    def one(self) -> Path:
        """The program of one pool of two processes."""
        return self.folder / "one"

    def pace(self, package: Path, process: int) -> float:
        """Seconds per step of a process of a program, from fresh weights."""
        with tempfile.TemporaryDirectory() as run:
            command = ["-m", "rpeg.tools.rpeg", "launch", package, "--run-dir", run]
            done = self.start([*command, *self.permission])
            if done.wait():
                raise SystemExit(f"{package.name} failed: run it with `rpeg launch {package}`")
            return pace(step_ends(Path(run), process))

    def loops(self) -> tuple[float, float]:
        """Seconds per step of the sampling and of the training loop, which run at the same time."""
        with tempfile.TemporaryDirectory() as meeting:
            runs = [Path(meeting) / name for name in ("sample", "train")]
            running = [
                self.start(
                    [str(HERE / "sides" / "loops.py"), run.name],
                    RPEG_RUN_DIR=run,
                    RPEG_ROOT=self.folder,
                    RPEG_ALLOW_PYTHON=1,
                    LOCAL_WORLD_SIZE=2,
                    MEETING=meeting,
                    SOURCE=WARM,
                    VERIFIER=self.verifier,
                    STEPS=self.steps,
                )
                for run in runs
            ]
            if any([process.wait() for process in running]):
                raise SystemExit("a loop failed")
            sampling, training = together([step_ends(run, process=0) for run in runs])
        return pace(sampling), pace(training)

    @property
    def permission(self) -> list[str]:
        """To run the slow verifier."""
        return ["--allow-python"] if self.verifier == SLOW else []

    def start(self, command: Sequence[object], **more: object) -> subprocess.Popen[bytes]:
        """Runs Python, silent."""
        settings = {
            "PYTHONPATH": HERE.parent,
            "OMP_NUM_THREADS": 1,
            "SECONDS_A_SAMPLE": self.seconds_a_sample,
            **more,
        }
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdout=subprocess.DEVNULL,
            env=os.environ | {name: str(value) for name, value in settings.items()},
        )


@dataclass
class Found:
    """What was measured of a job: seconds per step, in turns."""

    coupled: list[float] = field(default_factory=list)
    alone: list[tuple[float, float]] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Of the coupled run to the slower loop."""
        return [both / max(alone) for both, alone in zip(self.coupled, self.alone, strict=True)]

    @property
    def work(self) -> float:
        """Seconds to sample and to train."""
        return sum(statistics.median(loop) for loop in zip(*self.alone, strict=True))


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    folder = options.folder.resolve()
    write_pipeline(folder)
    (folder / "slow_reward.py").write_text(SLOW_REWARD, encoding="utf-8")
    fast = measure(Job(folder, RULE, options.steps), options)
    workers = max(1, (os.cpu_count() or 1) // 2)
    each = PART * fast.work * workers / SAMPLES
    print(f"\na verifier of {1e3 * each:.2f} ms per sample, {workers} at a time", flush=True)
    measure(Job(folder, SLOW, options.steps, each), options)


def measure(job: Job, options: argparse.Namespace) -> Found:
    """All rounds of a job; prints each, and what they come to."""
    job.compile(options.staleness)
    found = Found()
    for done in range(options.rounds):
        found.coupled.append(job.pace(job.two, process=1))
        found.alone.append(job.loops())
        sampling, training = found.alone[-1]
        print(
            f"round {done + 1}  coupled {found.coupled[-1]:.3f} s per step, sampling alone "
            f"{sampling:.3f}, training alone {training:.3f}: ratio {found.ratios[-1]:.2f}",
            flush=True,
        )
    coupled, in_turns = statistics.median(found.coupled), job.pace(job.one, process=0)
    print(
        f"median ratio {statistics.median(found.ratios):.2f}; synchronous on both processes "
        f"{in_turns:.3f} s per step, {in_turns / coupled:.2f} of the coupled run's {coupled:.3f}",
        flush=True,
    )
    return found


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
    """Seconds per step."""
    return (ends[-1] - ends[0]) / (len(ends) - 1)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/concurrency"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--staleness", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
