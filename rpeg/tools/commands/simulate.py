"""`rpeg simulate`: step after step of a pipeline on a cluster, with lengths that vary."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from rpeg.cost.period.schedule import Schedule
from rpeg.cost.simulation.result import Simulated, summary
from rpeg.cost.simulation.run import Run
from rpeg.cost.simulation.simulate import simulated
from rpeg.cost.simulation.trace import trace_events
from rpeg.tools import output
from rpeg.tools.checking.memory import lacking
from rpeg.tools.console import OK, language_only, natural, positive, read
from rpeg.tools.predicting.arguments import files_read, target, target_arguments
from rpeg.tools.predicting.estimates import Predicted, predict
from rpeg.tools.tracing.names import timed_names
from rpeg.tools.views.simulation import text

HELP = "simulate steps of a pipeline on a cluster: lengths vary, links are shared"

MOST_STEPS = 10_000
"""The standard error of a mean over this many is a hundredth of one step's deviation."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("file", metavar="FILE[:PIPELINE]", help=".rpeg text, and which pipeline")
    target_arguments(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    parser.add_argument(
        "--steps", type=_steps, default=100, metavar="N", help="how many (default: 100)"
    )
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="S", help="of what is drawn (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write when each task ran, as .json for Perfetto"
    )
    parser.epilog = "docs/simulation.md tells what varies, and what is printed."


def _steps(text: str) -> int:
    """A whole number of at least 1, and at most MOST_STEPS."""
    steps = positive(text)
    if steps > MOST_STEPS:
        raise argparse.ArgumentTypeError(f"expected at most {MOST_STEPS} steps, not {text}")
    return steps


def run(options: argparse.Namespace) -> int:
    """Simulates, prints, writes."""
    source = read(options.file)
    language_only(source, "rpeg simulate")
    if options.trace:
        output.refuse(options.trace, files_read(options, source.path), (".json",))
    found = predict(source, target(options))
    ran = simulated(found.graph, found.setting, options.steps, options.seed)
    if options.trace:
        _write_trace(ran, timed_names(found.placed.pipeline), options.trace)
    _print(summary(ran, options.seed, Schedule.of(found.setting.pipeline).ahead), found, options)
    return OK


def _print(told: Simulated, found: Predicted, options: argparse.Namespace) -> None:
    there, notes = found.placed, found.estimate.notes
    lack = lacking(found.estimate.memory)
    if options.json:
        names = {"pipeline": there.pipeline.title, "plan": there.plan, "cluster": there.cluster}
        fits = {"fits": lack is None}
        print(json.dumps({**names, **fits, **told.to_json(), "notes": notes}, indent=2))
    else:
        title = f"{there.pipeline.title}, plan {there.plan} on {there.cluster}"
        sys.stdout.write(f"{lack}\n" * (lack is not None) + text(told, title, notes))


def _write_trace(ran: Run, timed: Mapping[str, str], path: Path) -> None:
    lines = ",\n".join(json.dumps(event) for event in trace_events(ran, timed))
    output.write(path, f"[\n{lines}\n]\n")
