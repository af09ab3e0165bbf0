"""`rpeg simulate`: step after step of a pipeline on a cluster, with lengths that vary."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rpeg.cost.estimating import step_graph
from rpeg.cost.period.cycles import Deadlock
from rpeg.cost.period.schedule import Schedule
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.simulation.result import summary
from rpeg.cost.simulation.run import Run
from rpeg.cost.simulation.simulating import simulated
from rpeg.cost.simulation.trace import trace_events
from rpeg.tools.console import OK, Failure, language_only, natural, positive, read
from rpeg.tools.predicting.arguments import target, target_arguments
from rpeg.tools.predicting.placing import place
from rpeg.tools.predicting.pricing import scheduled_setting
from rpeg.tools.views.simulation import text

HELP = "simulate steps of a pipeline on a cluster: lengths vary, links are shared"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("file", metavar="FILE[:PIPELINE]", help=".rpeg text, and which pipeline")
    target_arguments(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    parser.add_argument(
        "--steps", type=positive, default=100, metavar="N", help="how many (default: 100)"
    )
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="S", help="of what is drawn (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write when each task ran, for Perfetto"
    )
    parser.epilog = "docs/simulation.md tells what varies, and what is printed."


def run(options: argparse.Namespace) -> int:
    """Simulates, prints, writes."""
    source = read(options.file)
    language_only(source, "rpeg simulate")
    where = target(options)
    there = place(source, where)
    setting = scheduled_setting(there, where)
    ran = _ran(setting, options.steps, options.seed)
    if options.trace:
        _write_trace(ran, options.trace)
    ahead, notes = Schedule.of(setting.pipeline).ahead, setting.workload.assumed
    found = summary(ran, options.seed, ahead)
    if options.json:
        names = {"pipeline": there.pipeline.title, "plan": there.plan, "cluster": there.cluster}
        print(json.dumps({**names, **found.to_json(), "notes": notes}, indent=2))
    else:
        title = f"{there.pipeline.title}, plan {there.plan} on {there.cluster}"
        sys.stdout.write(text(found, title, notes))
    return OK


def _ran(setting: Setting, steps: int, seed: int) -> Run:
    try:
        return simulated(step_graph(setting), setting, steps, seed)
    except Deadlock as error:
        raise Failure(str(error)) from None


def _write_trace(ran: Run, path: Path) -> None:
    lines = ",\n".join(json.dumps(event) for event in trace_events(ran))
    try:
        path.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from None
