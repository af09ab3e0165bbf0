"""The text of a hardened pipeline, with the plans that it still fits."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from rpeg.frontend import load
from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.text.sources import Sources


def written(module: ModuleOp, sources: Sources, name: str) -> tuple[str, list[str]]:
    """The text of a module, and notes. A plan that it does not fit any more, such as one for more
    processes than its few rows divide over, is left out: the module loses it.
    """
    text, notes = render(lift(module, sources)), list[str]()
    if _error(text, name) is None:
        return text, notes
    for plan in _plans(module):
        problem = _alone(module, sources, plan.title, name)
        if problem is not None:
            notes.append(f"plan `{plan.title}` is left out: {problem}")
            Rewriter.erase_op(plan)
    return render(lift(module, sources)), notes


def _alone(module: ModuleOp, sources: Sources, title: str, name: str) -> str | None:
    """What is wrong with the text if it has this plan alone."""
    copy = module.clone()
    same = sources.of(module, copy)
    for plan in _plans(copy):
        if plan.title != title:
            Rewriter.erase_op(plan)
    return _error(render(lift(copy, same)), name)


def _error(text: str, name: str) -> str | None:
    found = load(text, name).diagnostics
    return next((d.message for d in found if d.severity == "error"), None)


def _plans(module: ModuleOp) -> list[PlanOp]:
    return [op for op in module.walk() if isinstance(op, PlanOp)]
