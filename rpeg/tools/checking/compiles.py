"""What `rpeg compile` would refuse in a checked pipeline, as notes at its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.tools.compiling import Checked, Choice, lowered
from rpeg.tools.console import Source


def refusals(
    checked: Checked, source: Source, plans: Sequence[str] | None = None
) -> tuple[list[Diagnostic], bool]:
    """Notes on what does not compile: of the pipeline wherever it runs, then of what only a plan
    says; and whether there are any of the first kind. `plans` are the names of those to try, by
    default all.
    """
    anywhere = _problems(checked, source, None)
    notes = [_note(problem, "rpeg compile") for problem in anywhere]
    held = [op.title for op in checked.pipeline.ops_of(PlanOp)]
    for plan in (name for name in held if plans is None or name in plans):
        of_plan = (p for p in _problems(checked, source, plan) if p not in anywhere)
        notes += [_note(problem, f"rpeg compile --plan {plan}") for problem in of_plan]
    return notes, bool(anywhere)


def _problems(checked: Checked, source: Source, plan: str | None) -> list[Diagnostic]:
    choice = Choice(plan=plan, allow_python=True)
    return lowered(checked.copied(), source, choice, RpegAnnotateParallelismPass(plan=plan))


def _note(problem: Diagnostic, command: str) -> Diagnostic:
    return replace(problem, message=f"{command} refuses this: {problem.message}", severity="note")
