"""Lines of plans for stages that a rewrite makes: without one, a plan could not be compiled."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.plan import PlaceOp, PlanOp
from rpeg.ir.types.attributes import RecordAttr, plain


def place_beside(pipeline: PipelineOp, name: str, model: str, *, frozen: bool = False) -> int:
    """Gives a new stage the pool, layout and micro-batches of a model's update, in each plan that
    has a line for that: so many. One of a `frozen` model has no optimizer to share.
    """
    plans = pipeline.ops_of(PlanOp)
    updates = [place for plan in plans for place in plan.places if place.title == model]
    for place in updates:
        clauses = ArrayAttr(list(_clauses(place, frozen)))
        held = {**place.properties, "stage": StringAttr(name), "clauses": clauses}
        made = PlaceOp.create(properties=held, location=place.location)
        Rewriter.insert_op(made, InsertPoint.before(place))
    return len(updates)


def _clauses(place: PlaceOp, frozen: bool) -> Iterator[RecordAttr]:
    for clause in place.clauses:
        if clause.kind == "par" and frozen:
            yield RecordAttr.make(clause.kind, {**clause.settings, "zero": plain(0)})
        elif clause.kind in ("par", "mb"):
            yield clause
