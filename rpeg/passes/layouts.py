"""What this version compiles of a plan: layouts over all processes of a pool, engines inside the
trainer.
"""

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import FileLineColLoc
from xdsl.ir import Attribute

from rpeg.ir.base import RpegOp
from rpeg.ir.layout import later, size_of, width_of, zero_of
from rpeg.ir.ops.effects import EvalLossOp
from rpeg.ir.ops.movement import CLAUSES, clause_of, model_of, pool_of
from rpeg.ir.ops.sampling import GenerateOp, LogprobOp, ScoreOp, ValuesOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.violations import setting
from rpeg.ir.stages import stage_name
from rpeg.ir.text.locations import plan_line
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.records import CLAUSES as ROWS
from rpeg.ir.vocabulary.settings import Python, python_value
from rpeg.passes.base import Problem
from rpeg.passes.layout_names import layout_name

Settings = Mapping[str, Attribute]
FORWARD = ("dp", "tp", "pp", "cp", "ep", "vpp", "sp")
"""Settings that say where weights are; the others only matter to an update."""
PASSES_THROUGH = LogprobOp | ValuesOp | ScoreOp | EvalLossOp | UpdateOp
"""Stages that run the model as it is spread over its processes; engines have it whole."""


# ---- which layout, and which micro-batches


def layout_of(model: str | None, stages: Sequence[RpegOp]) -> RecordAttr | None:
    """The layout that a model has: that of its update, else of the first stage that works with it,
    else of the first stage of all, as without a model.
    """
    found = (clause_of(op, "par") for op in _working_with(model, stages))
    return next((clause for clause in found if clause is not None), None)


def shares_of(stages: Sequence[RpegOp]) -> RecordAttr | None:
    """The layout whose data-parallel width batches are split by: that of the first stage that
    samples, else of the first of all. A model of another width takes rows from those shares.
    """
    first = sorted(stages, key=lambda op: not isinstance(op, GenerateOp))
    return next((clause for op in first if (clause := clause_of(op, "par")) is not None), None)


def bound_of(model: str, stages: Sequence[RpegOp]) -> RecordAttr | None:
    """A model's bound on micro-batches: that of its update, else of its first stage with one."""
    found = (clause_of(op, "mb") for op in _working_with(model, stages) if model_of(op) == model)
    return next((clause for clause in found if clause is not None), None)


def _working_with(model: str | None, stages: Sequence[RpegOp]) -> list[RpegOp]:
    """The stages that work with a model, the most decisive first."""
    if model is None:
        return list(stages)
    return sorted(stages, key=lambda op: (not _trains(op, model), model_of(op) != model))


def _trains(op: RpegOp, model: str | None) -> bool:
    return isinstance(op, UpdateOp) and op.makes() == model


def settings_of(layout: RecordAttr) -> Settings:
    """The settings that a program uses: all but the order of axes."""
    return {name: value for name, value in layout.settings.items() if name != "order"}


def title_of(layout: RecordAttr) -> str:
    """A layout's short name, as `--layout` takes it."""
    held = {name: python_value(value) for name, value in settings_of(layout).items()}
    return layout_name({n: v for n, v in held.items() if isinstance(v, int | str)})


# ---- what does not compile


def clause_problems(stages: Sequence[RpegOp]) -> Iterator[Problem]:
    """Clauses that check and print, but do not compile yet: each line of a plan that has one; once
    what one layout for all stages says.
    """
    told: set[tuple[FileLineColLoc | None, str]] = set()
    for op in stages:
        for kind in CLAUSES:
            clause, line = clause_of(op, kind), plan_line(op)
            why = _refusal(op, clause, stages) if clause is not None else None
            if why is not None and (line, why) not in told:
                told.add((line, why))
                yield Problem(op, why, setting(kind))


def _refusal(op: RpegOp, clause: RecordAttr, stages: Sequence[RpegOp]) -> str | None:
    match clause.kind:
        case "par":
            return _not_yet(clause) or _differs(op, clause, stages)
        case "mb":
            return _bound_refusal(op, clause, stages)
        case "engine" if _values(clause) != {"name": "embedded"}:
            return f"{shown(clause)} does not compile yet: write engine(name=embedded)"
        case "publish" if {**_values(clause), "to": ""} != {"to": "", "mode": "reshard"}:
            return f"{shown(clause)} does not compile yet: write mode=reshard, and nothing else"
        case "resid" if _values(clause):
            return f"{shown(clause)} does not compile yet: leave it out"
        case "stream" | "fuse":
            return f"{shown(clause)} does not compile yet: leave it out"
        case _:
            return None


def _not_yet(par: RecordAttr) -> str | None:
    if (why := later(par)) is not None:
        return f"{shown(par)}: {why}"
    if zero_of(par) > 1:
        return f"{shown(par)}: sharded gradients and weights do not compile yet: write zero=1"
    return None


def _differs(op: RpegOp, par: RecordAttr, stages: Sequence[RpegOp]) -> str | None:
    """A layout that does not go with the others of its pool: all take every process, each model
    has one, and what runs no model has the width of the batches.
    """
    around = [stage for stage in stages if pool_of(stage) == pool_of(op)]
    first = shares_of(around)
    assert first is not None, "par is a clause of one of the stages"
    if size_of(par) != size_of(first):
        return (
            f"{shown(par)}: stages of one pool take all of its processes, and others take "
            f"{size_of(first)}: fewer do not compile yet"
        )
    dp = width_of(first, "dp")
    if width_of(par, "dp") != dp and not moves_rows(op):
        why = "what measures a data set" if isinstance(op, EvalLossOp) else "what runs no model"
        return f"{shown(par)}: {why} has the width of what samples: write dp={dp}"
    return _another_copy(op, par, stages)


def moves_rows(op: RpegOp) -> bool:
    """Whether a model takes its rows from other shares where it has a width of its own."""
    return _passes_through(op) and not isinstance(op, EvalLossOp)


def _another_copy(op: RpegOp, par: RecordAttr, stages: Sequence[RpegOp]) -> str | None:
    model = model_of(op)
    theirs = layout_of(model, stages)
    if not _passes_through(op) or theirs is None or _same(par, theirs):
        return None
    return (
        f"{shown(par)}: `{model}` has {shown(theirs)}, and a second copy of its weights does not "
        "compile yet: write the same"
    )


def _passes_through(op: RpegOp) -> bool:
    """Verifiers and judges are asked: their scores are not forward passes of the model."""
    return op.passes_model if isinstance(op, ScoreOp) else isinstance(op, PASSES_THROUGH)


def _same(one: RecordAttr, other: RecordAttr) -> bool:
    return all(one.settings.get(name) == other.settings.get(name) for name in FORWARD)


def _bound_refusal(op: RpegOp, mb: RecordAttr, stages: Sequence[RpegOp]) -> str | None:
    """Why a bound on micro-batches is refused: it belongs to a model, and to passes through it."""
    if not _passes_through(op):
        return f"{shown(mb)}: `{stage_name(op)}` has no micro-batches: leave it out"
    model = model_of(op)
    theirs = bound_of(model or "", stages)
    if theirs is None or theirs == mb:
        return None
    return f"{shown(mb)}: `{model}` has {shown(theirs)}: write the same, or leave one out"


def _values(clause: RecordAttr) -> dict[str, Python]:
    """The settings that differ from their defaults."""
    defaults = ROWS[clause.kind].settings
    held = {
        n: v for n, v in clause.settings.items() if n not in defaults or v != defaults[n].default
    }
    return {name: python_value(value) for name, value in held.items()}


def shown(clause: RecordAttr) -> str:
    """A clause as a plan writes it, without defaults."""
    return f"{clause.kind}({', '.join(f'{n}={_text(v)}' for n, v in _values(clause).items())})"


def _text(value: Python) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
