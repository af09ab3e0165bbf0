"""What of a step is not the model: wall seconds outside of forward and backward passes.

    python benchmarks/overhead.py [FOLDER] [--steps 50] [--times 1 2 4]

Runs `examples/sort_digits.rpeg:grpo` on one process, from warmed-up weights (trained once, in
FOLDER, default `runs/overhead`), and prints the share of the median step that lies outside of model
spans (`rpeg.runtime.model_time`), and where it goes. A step lasts until the next one begins: what
it writes down belongs to it. With `--times`, the same again with a model so many times as wide.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "sides"))

from demo import WARM, rpeg, write_pipeline
from wide import widen

from rpeg.runtime.logs.trace import read_trace

WARM_UP = 3
"""Steps at the beginning that aren't counted."""
BETWEEN = "between stages"
MODEL = "model"
Step = dict[str, float]
"""Seconds: in models, and outside of them by stage."""


def main() -> None:
    """Runs the benchmark and prints what it measured."""
    options = parse()
    demo = write_pipeline(options.folder.resolve())
    for times in options.times:
        pipeline = widened(demo, times)
        with tempfile.TemporaryDirectory() as run:
            steps = f"steps={options.steps + WARM_UP + 1}"
            rpeg("run", f"{pipeline}:grpo", "--processes", "1", "--set", steps, "--run-dir", run)
            found = measured(read_trace(Path(run) / "trace.json"))[WARM_UP:]
        print(f"model {times} times as wide:", *report(found), sep="\n", flush=True)


def widened(demo: Path, times: int) -> Path:
    """The demo's file with the model so many times as wide, beside it."""
    if times == 1:
        return demo
    wide = f"{WARM}-{times}-wide"
    widen(demo.parent / WARM, demo.parent / wide, times)
    path = demo.with_stem(f"{demo.stem}-{times}-wide")
    text = demo.read_text(encoding="utf-8")
    path.write_text(text.replace(f'"{WARM}", optim', f'"{wide}", optim'), encoding="utf-8")
    return path


def measured(events: Iterable[Mapping[str, Any]]) -> list[Step]:
    """Each step but the last, whose end nothing tells."""
    by_step: defaultdict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for event in events:
        by_step[event["args"]["step"]].append(event)
    steps = [by_step[number] for number in sorted(by_step)]
    begins = [min(event["ts"] for event in step) for step in steps]
    pairs = zip(steps, begins, begins[1:], strict=False)
    return [parts(step, (end - begin) / 1e6) for step, begin, end in pairs]


def parts(events: Iterable[Mapping[str, Any]], wall: float) -> Step:
    """The wall seconds of a step; a stage within a stage counts in its own only."""
    step: defaultdict[str, float] = defaultdict(float)
    for event in events:
        stage, model = event["args"]["stage"], event["args"]["model"] / 1e6
        outside = event["dur"] / 1e6 - model
        step[stage] += outside
        outer = stage.rpartition("/")[0]
        if outer:
            step[outer] -= outside
        else:
            step[MODEL] += model
    step[BETWEEN] = wall - sum(step.values())
    return dict(step)


def report(steps: list[Step]) -> Iterable[str]:
    """The median step, and the medians of what it spends elsewhere."""
    shares = sorted(1.0 - step[MODEL] / sum(step.values()) for step in steps)
    wall = statistics.median(sum(step.values()) for step in steps)
    yield (
        f"{len(steps)} steps of {1e3 * wall:.1f} ms: {statistics.median(shares):.1%} outside of "
        f"models (quartiles {shares[len(shares) // 4]:.1%} to {shares[3 * len(shares) // 4]:.1%})"
    )
    names = dict.fromkeys(name for step in steps for name in step)
    medians = {n: statistics.median(step.get(n, 0.0) for step in steps) for n in names}
    for name in sorted(medians, key=lambda n: -medians[n]):
        yield f"  {name:<24}{1e3 * medians[name]:8.2f} ms {medians[name] / wall:7.1%}"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/overhead"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--times", type=int, nargs="+", default=[1])
    return parser.parse_args()


if __name__ == "__main__":
    main()
