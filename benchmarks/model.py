"""Predicted against measured seconds of a step: layouts of the demo on one and two processes.

    python benchmarks/model.py [FOLDER] [--rounds 5] [--steps 16] [--busy]

Every round measures the machine anew, as `rpeg calibrate` does, with one process and with two,
which slow each other down; then it runs `examples/sort_digits.rpeg:grpo` under each layout, from
the same warmed-up weights and without evaluations. The model is given the rates of as many
processes as a layout has, how long the demo's prompts and answers are, and in how many groups some
answers are better than others: all others are sampled, and not trained on. Nothing is fitted to its
steps. A step lasts until the next one begins: what it writes belongs to it. A machine that does
something else is refused: `--busy` goes on. The warm-up is trained once, in FOLDER (default
`runs/processes`, which `processes.py` shares); the rest takes minutes, fewer with
`--calibrations 1`. Where a run fails its round ends there, and the medians are of the others.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from rpeg.cost.estimate import Estimate
from rpeg.cost.platform import load_platform
from rpeg.cost.pricing import estimate
from rpeg.cost.profiles.setting import Inputs
from rpeg.passes.layout_names import parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.logs.report import series
from rpeg.runtime.logs.trace import read_trace
from rpeg.tools.calibrating.describe import cluster_file
from rpeg.tools.calibrating.fit import best_rate
from rpeg.tools.calibrating.idle import BUSY, others_share
from rpeg.tools.calibrating.measure import CalibrationError, measure
from rpeg.tools.calibrating.measured import Measured
from rpeg.tools.compiling import SIMPLIFY, one_pipeline, passes_of, run_passes
from rpeg.tools.console import read
from rpeg.tools.tracing.names import timed_names

sys.path.insert(0, str(Path(__file__).parent))

from processes import rpeg, write_pipeline

LAYOUTS: Mapping[str, int] = {"dp1": 1, "dp2": 2, "dp2zero1": 2, "tp2": 2, "pp2": 2}
"""Layout -> its processes."""

EVALUATIONS = r"    every\(steps=25\).*?\n    }\n|  data heldout = [^\n]*\n(?=  verifier)"
"""Of the demo's second pipeline: what it does on some steps, and the data for that."""

SCHEDULE = r", warmup=\d+, schedule=linear"
"""Of its learning rate, which so few steps don't get through, as a warning says."""

VARIES = 0.1
"""Spread of repeats over their median from which on it is told."""

AIM = 0.15
"""Of the error of a layout's predicted step."""

ANSWER_MS = 0.001
"""Of `exact_match`, which compares two texts."""

BETWEEN = "between stages"


@dataclass
class Layout:
    """Seconds per step, one of each round."""

    predicted: list[float] = field(default_factory=list[float])
    measured: list[float] = field(default_factory=list[float])
    stages: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """(predicted, measured) of each stage, by the clock's name."""

    @property
    def error(self) -> float:
        """Predicted over measured less 1, of the medians."""
        return statistics.median(self.predicted) / statistics.median(self.measured) - 1.0

    @property
    def spread(self) -> float:
        """Of the measured steps: largest less smallest, over the median."""
        return (max(self.measured) - min(self.measured)) / statistics.median(self.measured)


def main() -> None:
    """Runs the benchmark and prints what it came to."""
    options = parse()
    print(idleness(options.busy), flush=True)
    started = time.monotonic()
    folder: Path = options.folder.resolve()
    pipeline = with_lengths(write_pipeline(folder), folder)
    print(f"the warm-up is there after {time.monotonic() - started:.0f} s", flush=True)
    told = with_share(pipeline, share := told_apart(pipeline, options.steps))
    print(f"answers differ in {share:.0%} of the groups", flush=True)
    layouts = {name: Layout() for name in options.layouts}
    for done in range(options.rounds):
        try:
            rounds(layouts, told, folder, options, f"round {done + 1} ")
        except (CalibrationError, CalledProcessError) as error:
            print(f"round {done + 1}  ended: {error}", flush=True)
    measured = {name: layout for name, layout in layouts.items() if layout.measured}
    print(f"{report(measured)}\n{time.monotonic() - started:.0f} s in all")
    if len(measured) < len(layouts):
        sys.exit("some layouts were never measured")


def rounds(
    layouts: Mapping[str, Layout], pipeline: Path, folder: Path, options: Namespace, title: str
) -> None:
    """Measures the machine, then every layout once.

    Raises CalibrationError or CalledProcessError where something that it starts fails.
    """
    print(f"{title} {idleness(anyway=True)}", flush=True)
    counts = sorted({LAYOUTS[name] for name in layouts} | {1, 2})
    machines = {number: measure(number, options.calibrations) for number in counts}
    print(f"{title} {corun(machines)}", flush=True)
    for name, layout in layouts.items():
        cluster = write_cluster(folder, machines[LAYOUTS[name]])
        one_round(layout, pipeline, name, cluster, options.steps)
        print(f"{title} {line(name, layout)}", flush=True)


def idleness(anyway: bool) -> str:
    """What others do with the cores; ends the program where they work and nobody said `--busy`."""
    share = others_share()
    if share is None:
        return "nothing here tells whether others work"
    if share > BUSY and not anyway:
        sys.exit(f"others use {100 * share:.0f} % of the cores: wait, or go on with --busy")
    busy = f", more than {100 * BUSY:.0f} %: what follows is no measurement"
    return f"others use {100 * share:.0f} % of the cores{busy if share > BUSY else ''}"


def with_lengths(pipeline: Path, folder: Path) -> Path:
    """The file beside it, which tells how long prompts, answers and verdicts are."""
    warmup, mark, text = pipeline.read_text("utf-8").partition("pipeline grpo")
    text = warmup + mark + re.sub(f"{EVALUATIONS}|{SCHEDULE}", "", text, flags=re.S)
    rows = [json.loads(text) for text in (folder / "data/sort_digits/train.jsonl").open()]
    prompts = expected([len(row["prompt"]) for row in rows])
    answers = expected([len(row["answer"]) + 1 for row in rows])
    lines = {
        "train": prompts,
        "y": answers,
        "correct": f"lognormal(mean={ANSWER_MS}ms, cv=0)",
    }
    told = "".join(f"  expect {name} = {distribution}\n" for name, distribution in lines.items())
    path = folder / "sort_digits_lengths.rpeg"
    path.write_text(text.rstrip()[:-1] + told + "}\n", encoding="utf-8")
    return path


def told_apart(pipeline: Path, steps: int) -> float:
    """The share of groups in which rewards differ, over a run's steps: the same in all layouts."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--layout", "dp1", "--set", f"steps={steps}", "--run-dir", folder]
        rpeg("run", f"{pipeline}:grpo", *settings)
        files = sorted((Path(folder) / "rollouts").glob("*.jsonl"))
        rows = [json.loads(text) for file in files for text in file.open()]
    groups: dict[int, set[float]] = {}
    for row in rows:
        groups.setdefault(row["ordinal"], set()).add(row["rewards"]["r"])
    return sum(len(rewards) > 1 for rewards in groups.values()) / len(groups)


def with_share(pipeline: Path, share: float) -> Path:
    """The file beside it, which tells that share, too."""
    text = pipeline.read_text(encoding="utf-8").rstrip()[:-1]
    path = pipeline.with_name("sort_digits_told.rpeg")
    path.write_text(f"{text}  expect adv = ratio(mean={share:.3f})\n}}\n", encoding="utf-8")
    return path


def expected(lengths: Sequence[int]) -> str:
    """What the file says of lengths; a character is a token, and an answer has one more."""
    mean = statistics.mean(lengths)
    return f"lognormal(mean={mean:.2f}, cv={statistics.stdev(lengths) / mean:.3f})"


def write_cluster(folder: Path, found: Measured) -> Path:
    """A cluster file of what was measured."""
    path = folder / f"here-{found.processes}.toml"
    path.write_text(cluster_file(path.stem, found, str(date.today())), encoding="utf-8")
    return path


def one_round(layout: Layout, pipeline: Path, name: str, cluster: Path, steps: int) -> None:
    """Predicts and measures once."""
    told, names = predict(pipeline, name, cluster)
    found = run(pipeline, name, steps)
    layout.predicted.append(told.period_s)
    layout.measured.append(found["seconds"])
    for stage in told.stages:
        timed = names.get(stage.stage, BETWEEN if stage.stage == "q" else stage.stage)
        if f"time/{timed}" in found:
            pair = (stage.seconds, found[f"time/{timed}"])
            layout.stages.setdefault(timed, []).append(pair)


def predict(pipeline: Path, layout: str, cluster: Path) -> tuple[Estimate, Mapping[str, str]]:
    """The estimate of the demo under a layout, and what a run's clock calls its stages."""
    source = read(f"{pipeline}:grpo")
    module, op, _ = one_pipeline(source, ())
    names = timed_names(op)
    placing = RpegAnnotateParallelismPass(**parse_layout(layout))  # type: ignore[arg-type]
    scheduling = passes_of("rpeg-fuse-inference,rpeg-schedule")
    run_passes(module, [*passes_of(SIMPLIFY), placing, *scheduling], source)
    inputs = Inputs(folder=pipeline.parent)
    return estimate(module, load_platform(str(cluster)), inputs, plan=layout), names


def run(pipeline: Path, layout: str, steps: int) -> dict[str, float]:
    """Medians over a run's steps but the first and the last: wall seconds, whole and by stage."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["--layout", layout, "--set", f"steps={steps}", "--run-dir", folder]
        rpeg("run", f"{pipeline}:grpo", *settings)
        lines = read_metrics(Path(folder) / "metrics.jsonl")
        whole = step_seconds(read_trace(Path(folder) / "trace.json"))
    names = {name for one in lines for name in one if name.count("/") == 1 and name[:5] == "time/"}
    stages = {name: series(lines, name)[1] for name in names}
    rest = [one - sum(parts) for one, *parts in zip(whole, *stages.values(), strict=False)]
    table = {"seconds": whole, f"time/{BETWEEN}": rest, **stages}
    return {name: statistics.median(values[1 : steps - 1]) for name, values in table.items()}


def step_seconds(events: Iterable[Mapping[str, Any]]) -> list[float]:
    """From the beginning of each step's first stage to that of the next one's."""
    begins: dict[int, float] = {}
    for event in events:
        step = event["args"]["step"]
        begins[step] = min(begins.get(step, event["ts"]), event["ts"])
    ordered = [begins[step] / 1e6 for step in sorted(begins)]
    return [after - before for before, after in pairwise(ordered)]


def corun(machines: Mapping[int, Measured]) -> str:
    """What two processes cost each other."""
    one, two = machines[1], machines[2]
    rates = best_rate(one.matmuls) / best_rate(two.matmuls)
    memory = best_rate(one.streams) / best_rate(two.streams)
    return f"two at once: matmuls take {rates:.2f} times as long, memory {memory:.2f}"


HEAD = f"{'layout':10} predicted   measured    error   spread"


def report(layouts: Mapping[str, Layout]) -> str:
    """Medians of all rounds, by layout, then by stage."""
    parts = ["", HEAD, *(line(name, layout) for name, layout in layouts.items()), *summary(layouts)]
    for name, layout in layouts.items():
        parts.append(f"\nstages of {name}")
        for stage, pairs in layout.stages.items():
            told, found = (statistics.median(side) for side in zip(*pairs, strict=True))
            parts.append(f"{stage:14} {told:7.3f} s  {found:7.3f} s  {told / found - 1.0:+7.1%}")
    return "\n".join(parts)


def summary(layouts: Mapping[str, Layout]) -> Iterator[str]:
    """How far the predictions are off, over all layouts."""
    errors = [abs(layout.error) for layout in layouts.values()]
    if errors:
        near = sum(error <= AIM for error in errors)
        within = f"{near} of {len(errors)} layouts within {AIM:.0%}"
        yield f"median error {statistics.median(errors):.1%}, largest {max(errors):.1%}: {within}"


def line(name: str, layout: Layout) -> str:
    """One layout: medians so far."""
    predicted, measured = (statistics.median(s) for s in (layout.predicted, layout.measured))
    text = f"{name:10} {predicted:7.3f} s  {measured:7.3f} s  {layout.error:+7.1%}"
    varies = "  repeats vary" if layout.spread > VARIES else ""
    return f"{text}  {layout.spread:7.1%}{varies}"


def _steps(text: str) -> int:
    if (steps := int(text)) < 3:
        raise ValueError(text)
    return steps


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/processes"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=_steps, default=16, help="of a run; two aren't counted")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--calibrations", type=int, default=3, help="rounds of each calibration")
    parser.add_argument("--busy", action="store_true", help="whatever else the machine does")
    return parser.parse_args()


if __name__ == "__main__":
    main()
