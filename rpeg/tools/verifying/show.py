"""Verdicts for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rpeg.interp import Parity
from rpeg.tools.verifying.judge import BOUND, Verdict

_FIGURES = {
    "logprob": "logprob",
    "grad_norm": "grad_norm",
    "weights": "weights",
    "engine": "behaviour",
}
"""What people and programs read, and the figure of `Parity` behind it."""


def table(pipeline: str, verdicts: Sequence[Verdict]) -> Table:
    """One row a layout; figures beyond their bound are red."""
    made = Table(title=f"{pipeline}: each layout beside the reference interpreter")
    made.add_column("layout")
    for name in ("log-prob", "grad norm", "weights", "engine", "greedy"):
        made.add_column(name, justify="right")
    made.add_column("verdict")
    made.add_column("s", justify="right")
    bounds = (f"{getattr(BOUND, name):.0e}" for name in _FIGURES.values())
    made.add_row("[dim]at most[/]", *(f"[dim]{b}[/]" for b in bounds), "", "", "", end_section=True)
    for verdict in verdicts:
        made.add_row(*_row(verdict))
    return made


def _row(verdict: Verdict) -> tuple[str, ...]:
    tally, p = verdict.greedy, verdict.parity
    figures = [_figure(p, name) if p is not None else "" for name in _FIGURES.values()]
    if not verdict.has_engine:
        figures[-1] = "-"
    return (
        verdict.layout,
        *figures,
        f"{tally.equal} of {tally.of}" if tally.of else "-",
        "[green]same[/]" if verdict.ok else "[bold red]DIFFERS[/]",
        f"{verdict.seconds:.0f}",
    )


def _figure(parity: Parity, name: str) -> str:
    value, bound = getattr(parity, name), getattr(BOUND, name)
    return f"{value:.1e}" if value <= bound else f"[red]{value:.1e}[/]"


def explanations(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each layout that differs, and one for each tie that greedy decoding broke."""
    lines = [f"{v.layout}: {v.problem}" for v in verdicts if not v.ok]
    for v in verdicts:
        lines += [
            f"{v.layout}: greedy completion {prompt + 1} of `{name}` parts at token {token + 1}: "
            f"the two greatest logits are {gap:.1e} apart, a tie"
            for name, prompt, token, gap in v.greedy.parted
            if v.ok
        ]
    return lines


def as_json(pipeline: str, verdicts: Sequence[Verdict], notes: Sequence[str]) -> dict[str, Any]:
    """The same as plain values; null where a layout failed, or has no engine."""
    return {
        "pipeline": pipeline,
        "ok": all(v.ok for v in verdicts),
        "bounds": {shown: getattr(BOUND, name) for shown, name in _FIGURES.items()},
        "layouts": [_layout(v) for v in verdicts],
        "hardened": list(notes),
    }


def _layout(verdict: Verdict) -> dict[str, Any]:
    p, tally = verdict.parity, verdict.greedy
    figures = {shown: getattr(p, name, None) for shown, name in _FIGURES.items()}
    if not verdict.has_engine:
        figures["engine"] = None
    return {
        "layout": verdict.layout,
        "ok": verdict.ok,
        **figures,
        "greedy": {"equal": tally.equal, "of": tally.of} if tally.of else None,
        "problem": verdict.problem or None,
        "seconds": round(verdict.seconds, 1),
    }


def print_table(pipeline: str, verdicts: Sequence[Verdict]) -> None:
    """Prints table and explanations."""
    console = Console()
    console.print(table(pipeline, verdicts))
    for line in explanations(verdicts):
        console.print(line, markup=False, soft_wrap=True)
