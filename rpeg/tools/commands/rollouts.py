"""`rpeg rollouts`: what a run sampled."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpeg.tools.console import OK, Failure, positive
from rpeg.tools.launching import need_torch

HELP = "browse what a run sampled: prompts, completions, rewards"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder, such as runs/grpo")
    parser.add_argument("--step", type=int, metavar="N", help="which step (default: the newest)")
    parser.add_argument("--sort", metavar="REWARD", help="best of this reward first")
    parser.add_argument("--worst", action="store_true", help="with --sort: worst first")
    parser.add_argument(
        "--limit", type=positive, default=20, metavar="N", help="how many (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")


def run(options: argparse.Namespace) -> int:
    """Prints rollouts of one step."""
    need_torch()
    from rpeg.runtime.errors import RuntimeFailure
    from rpeg.runtime.logs.rollouts import read_rollouts, rollout_steps

    try:
        found = read_rollouts(
            options.run,
            step=options.step,
            sort_by=options.sort,
            ascending=options.worst,
        )
        steps = rollout_steps(options.run)
    except RuntimeFailure as error:
        raise Failure(str(error)) from None
    shown = found[: options.limit]
    if options.json:
        for rollout in shown:
            print(json.dumps(rollout, ensure_ascii=False))
    else:
        _table(shown)
    _tell_more(len(shown), len(found), steps)
    return OK


def _tell_more(shown: int, there: int, steps: Sequence[int]) -> None:
    """What else there is to see; not on standard output, which may be piped."""
    sys.stdout.flush()
    if shown < there:
        text = f"{shown} of {there} completions of this step: --limit {there} shows all"
        others = f", --step N another step ({steps[0]} to {steps[-1]})" if len(steps) > 1 else ""
        print(f"note: {text}{others}", file=sys.stderr)


def _table(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    rewards = list(found[0]["rewards"]) if found else []
    table = Table(title=f"step {found[0]['step']}" if found else None)
    for name in ("prompt", "completion", "answer", *rewards, "version"):
        table.add_column(name)
    for r in found:
        scores = [f"{r['rewards'][name]:.3g}" for name in rewards]
        texts = (r["prompt"], r["completion"], r["answer"] or "")
        table.add_row(*(escape(t) for t in texts), *scores, str(r["version"]))
    Console().print(table)
