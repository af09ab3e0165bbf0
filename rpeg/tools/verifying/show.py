"""Verdicts for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from rpeg.tools.verifying.figures import Part
from rpeg.tools.verifying.judge import BOUND, Verdict


@dataclass(frozen=True)
class Report:
    """What came of a pipeline."""

    pipeline: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    """What was hardened."""

    @property
    def ok(self) -> bool:
        """Whether every layout that can be made computes what the pipeline says."""
        made = [verdict for verdict in self.verdicts if not verdict.refused]
        return bool(made) and all(verdict.ok for verdict in made)


FIGURES: Mapping[str, str] = {
    "logprob": "logprob",
    "value": "value",
    "target": "target",
    "loss": "loss",
    "grad_norm": "grad_norm",
    "weights": "weights",
    "engine": "behaviour",
}
"""What people and programs read, and the figure of `Parity` behind it."""
_SAID: Mapping[str, tuple[str, ...]] = {
    "log-prob\nvalue": ("logprob", "value"),
    "target": ("target",),
    "loss": ("loss",),
    "grad\nnorm": ("grad_norm",),
    "weights": ("weights",),
    "engine": ("behaviour",),
}
"""By column: the figures of `Parity` in it; a head has the one or the other."""
_WIDEST = 1000
"""Columns, far more than a table has."""


def table(reports: Sequence[Report]) -> Table:
    """One row for each head of a model under a layout; figures beyond their bound are red."""
    made = Table(title="each layout beside the reference interpreter")
    for name in ("pipeline", "layout", "model", "head"):
        made.add_column(name)
    for name in (*_SAID, "greedy"):
        made.add_column(name, justify="right")
    made.add_column("verdict")
    made.add_column("s", justify="right")
    bounds = (f"[dim]{getattr(BOUND, names[0]):.0e}[/]" for names in _SAID.values())
    made.add_row("[dim]at most[/]", "", "", "", *bounds, "", "", "", end_section=True)
    for report in reports:
        for verdict in report.verdicts:
            _add(made, report.pipeline, verdict)
        made.add_section()
    return made


def _add(made: Table, pipeline: str, verdict: Verdict) -> None:
    """A layout's rows: what is said of the whole stands in the first."""
    ends = (_greedy(verdict), _word(verdict), f"{verdict.seconds:.0f}")
    if not verdict.parts:
        made.add_row(pipeline, verdict.layout, "", "", *("" for _ in _SAID), *ends)
    for k, part in enumerate(verdict.parts):
        named = (pipeline, verdict.layout) if k == 0 else ("", "")
        made.add_row(*named, part.model, part.head, *_cells(part), *(ends if k == 0 else ()))


def _cells(part: Part) -> Iterator[str]:
    for names in _SAID.values():
        found = [(name, part.figures[name]) for name in names if name in part.figures]
        yield " ".join(_cell(value, getattr(BOUND, name)) for name, value in found) or "-"


def _cell(value: float, bound: float) -> str:
    return f"{value:.1e}" if value <= bound else f"[red]{value:.1e}[/]"


def _greedy(verdict: Verdict) -> str:
    tally = verdict.greedy
    return f"{tally.equal} of {tally.of}" if tally.of else "-"


def _word(verdict: Verdict) -> str:
    colours = {"same": "green", "DIFFERS": "bold red", "refused": "yellow"}
    return f"[{colours[verdict.word]}]{verdict.word}[/]"


def explanations(verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each layout that differs or is refused, and for each tie that greedy decoding
    broke.
    """
    lines = [f"{v.layout}: {v.problem}" for v in verdicts if v.problem]
    lines += [f"{v.layout}: refused: {v.refused}" for v in verdicts if v.refused]
    for v in verdicts:
        lines += [
            f"{v.layout}: greedy completion {prompt + 1} of `{name}` parts at token {token + 1}: "
            f"the two greatest logits are {gap:.1e} apart, a tie"
            for name, prompt, token, gap in v.greedy.parted
            if v.ok
        ]
    return lines


def as_json(reports: Sequence[Report]) -> dict[str, Any]:
    """The same as plain values; null where a layout failed or is refused, or has no such thing."""
    return {
        "ok": all(report.ok for report in reports),
        "bounds": {shown: getattr(BOUND, name) for shown, name in FIGURES.items()},
        "pipelines": [
            {
                "pipeline": report.pipeline,
                "ok": report.ok,
                "layouts": [_layout(v) for v in report.verdicts],
                "hardened": list(report.notes),
            }
            for report in reports
        ],
    }


def _layout(verdict: Verdict) -> dict[str, Any]:
    tally, kinds = verdict.greedy, {name for part in verdict.parts for name in part.figures}
    figures = {
        shown: getattr(verdict.parity, name) if name in kinds else None
        for shown, name in FIGURES.items()
    }
    return {
        "layout": verdict.layout,
        "verdict": verdict.word.lower(),
        "ok": verdict.ok,
        **figures,
        "models": [_part(part) for part in verdict.parts],
        "greedy": {"equal": tally.equal, "of": tally.of} if tally.of else None,
        "problem": verdict.problem or None,
        "refused": verdict.refused or None,
        "seconds": round(verdict.seconds, 1),
    }


def _part(part: Part) -> dict[str, Any]:
    figures = {shown: part.figures.get(name) for shown, name in FIGURES.items()}
    return {"model": part.model, "head": part.head, **figures}


def print_table(reports: Sequence[Report]) -> None:
    """Prints table and explanations."""
    made, console = table(reports), Console()
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), made).maximum
    console.width = max(console.width, needed)  # a figure that is cut is none
    console.print(made)
    for report in reports:
        for line in explanations(report.verdicts):
            console.print(f"{report.pipeline}: {line}", markup=False, soft_wrap=True)
