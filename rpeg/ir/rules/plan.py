"""Rules of plans: stages and pools exist, products match, streams are legal, new weights arrive.

They speak of the step that a plan is for, so they are asked of a whole module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import declaration, declarations, place_in_file, symbol_name
from rpeg.ir.layout import contradictions, later_first, size_of, width_of, zero_of
from rpeg.ir.ops.effects import EvalOp
from rpeg.ir.ops.plan import PlaceOp, PlanOp, plan_cluster
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules import violations
from rpeg.ir.rules.shares import share_violations
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.rules.walks import Walk
from rpeg.ir.stages import between, moving, scope_of, stages, value_names
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.values import WeightsType
from rpeg.ir.vocabulary.records import CLAUSES
from rpeg.ir.vocabulary.signature import SCOPES


def plan_violations(walk: Walk) -> Iterator[tuple[Operation, Violation]]:
    """Broken rules of each plan, and of each of its lines."""
    for plan in walk.of(PlanOp):
        yield from ((plan, found) for found in _whole(plan))
        for place in plan.places:
            yield from ((place, found) for found in _line(plan, place))


def _whole(plan: PlanOp) -> Iterator[Violation]:
    yield from _overlaps(plan)
    if plan.places and (text := open_stages(plan)) is not None:
        yield Violation("open-stages", text, severity="warning")


def _line(plan: PlanOp, place: PlaceOp) -> Iterator[Violation]:
    yield from _stage_rule(plan, place)
    if plan.pool(place.pool_name) is None:
        text = unknown_pool(place.pool_name, [p.title for p in plan.pools])
        yield Violation("unknown-pool", text, violations.setting("pool"))
    yield from _repeated(place)
    for index, record in enumerate(place.clauses):
        if place.fits(index):
            for found in _clause_violations(plan, place, record):
                yield replace(found, anchor=violations.clause(index))
    unpublished = _unpublished(plan, place)
    if unpublished is not None:
        yield Violation("unpublished-weights", unpublished)


def unknown_pool(name: str, pools: Iterable[str]) -> str:
    """The message for a pool that its plan does not have."""
    return f"`{name}` is not a pool of this plan{hint(name, pools)}"


def _repeated(place: PlaceOp) -> Iterator[Violation]:
    """A line says each thing once; it may publish to several pools."""
    seen: set[tuple[str, str]] = set()
    for index, record in enumerate(place.clauses):
        to = _argument(record, "to") if record.kind == "publish" else ""
        if (record.kind, to) in seen:
            what = f"{record.kind}({to})" if to else record.kind
            yield Violation(
                "repeated-clause", f"{what} is given twice: keep one", violations.clause(index)
            )
        seen.add((record.kind, to))


def _stage_rule(plan: PlanOp, place: PlaceOp) -> Iterator[Violation]:
    name, known = place.title, stages(plan)
    tools = {symbol_name(d) for d in declarations(plan) if d.name == "rpeg.tool"}
    if name not in known and name not in tools:
        yield Violation("unknown-stage", _not_a_stage(plan, name, known))
        return
    first = next(p for p in plan.places if p.title == name)
    if first is not place:
        yield Violation("placed-twice", f"`{name}` already has a line at {place_in_file(first)}")


def _not_a_stage(plan: PlanOp, name: str, known: dict[str, RpegOp]) -> str:
    named = [n for n, op in known.items() if name == op.SURFACE]
    if name in value_names(plan):
        return f"`{name}` needs no place: it runs with the stage that reads it"
    if named:
        return f"a plan names a stage by its first result: write {' or '.join(named)}, not {name}"
    near = hint(name, known) or "; a stage is named by its first result"
    return f"`{name}` is not a stage{near}"


def _clause_violations(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[Violation]:
    match record.kind:
        case "par":
            yield from _par(plan, place, record)
        case "resid":
            yield from _resid(plan, place, record)
        case "mb" | "stream" if len(record.settings) - len(CLAUSES[record.kind].operands) != 1:
            text = f"{record.kind} takes one of {', '.join(CLAUSES[record.kind].settings)}"
            yield Violation("clause-choice", text)
        case "stream":
            yield from _stream(plan, place, record)
        case "publish":
            yield from _publish(plan, place, record)
        case "fuse":
            yield from _stage_argument(plan, record, "with")
        case _:
            pass


def _par(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[Violation]:
    sizes = list(_sizes(plan, place, record))
    yield from (Violation("layout-size", later_first(record, text)) for text in sizes)
    stage = stages(plan).get(place.title)
    if stage is not None and not sizes:
        yield from share_violations(stage, record, place.clause("engine"))
    yield from (Violation("layout-contradiction", text) for text in contradictions(record))
    yield from _idle_optimizer(plan, place, record)


def _idle_optimizer(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[Violation]:
    """A frozen model has no optimizer to shard, nor does a stage without a model."""
    zero, stage, name = zero_of(record), stages(plan).get(place.title), _model_of(plan, place)
    model = declaration(plan, name) if name is not None else None
    trained = model is not None and "optim" in model.properties
    if zero and stage is not None and not trained:
        text = (
            f"zero={zero} shards an optimizer, and `{name or place.title}` has none: leave it out"
        )
        yield Violation("idle-optimizer", text)


def _sizes(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[str]:
    yield from _product(plan, place, record)
    ep = width_of(record, "ep")
    if width_of(record, "dp") * width_of(record, "cp") % ep:
        yield f"ep={ep} does not divide dp x cp"


def _product(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[str]:
    """A layout takes every GPU of its pool; on cores, at most one process each."""
    pool, cluster = plan.pool(place.pool_name), plan_cluster(place)
    if pool is None or cluster is None:
        return
    size, gpus, cores = size_of(record), pool.gpus(cluster), pool.cores
    of = f"tp x pp x cp x dp = {size}, the pool `{place.pool_name}` has"
    if gpus is not None and size != len(gpus):
        yield f"{of} {len(gpus)} GPUs{_fitting(record, len(gpus))}"
    elif cores is not None and cores < 1:
        yield f"the pool `{place.pool_name}` is empty: give it per_node=1 or more"
    elif cores is not None and size > cores:
        yield f"{of} {cores} cores, one for each process{_fitting(record, cores)}"


def _fitting(record: RecordAttr, processes: int) -> str:
    """What to write where dp is the whole layout."""
    return f": write dp={processes}" if size_of(record) == width_of(record, "dp") else ""


def _model_of(plan: PlanOp, place: PlaceOp) -> str | None:
    """The model that a stage works with."""
    op = stages(plan).get(place.title)
    types = (v.type for v in op.operands) if op is not None else ()
    return next((t.owner for t in types if isinstance(t, WeightsType)), None)


def _resid(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[Violation]:
    """Memory belongs to a model in a pool, not to a stage: lines that speak of one must agree."""
    model = _model_of(plan, place)
    for other in plan.places:
        if other is place or model is None:
            return
        theirs = other.clause("resid")
        same = other.pool_name == place.pool_name and _model_of(plan, other) == model
        if same and theirs is not None and theirs != record:
            yield Violation(
                "unlike-residency",
                f"`{model}` in pool `{place.pool_name}` has another resid at "
                f"{place_in_file(other)}: say it once, or the same",
            )
            return


def _argument(record: RecordAttr, name: str) -> str:
    held = record.settings.get(name)
    return held.data if isinstance(held, StringAttr) else ""


def _stage_argument(plan: PlanOp, record: RecordAttr, name: str) -> Iterator[Violation]:
    known, stage = stages(plan), _argument(record, name)
    if stage not in known:
        text = f"`{stage}` is not a stage of this plan{hint(stage, known)}"
        yield Violation("unknown-stage", text)


def _stream(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[Violation]:
    """Every operation from the streamed source to this stage must be a map on the chunk."""
    problems = list(_stage_argument(plan, record, "source"))
    yield from problems
    known, chunk = stages(plan), "group" if "groups" in record.settings else "sample"
    stage = known.get(place.title)
    if problems or stage is None:
        return
    for op in between(stage, known[_argument(record, "source")]):
        scope = scope_of(op)
        if SCOPES.index(scope) > SCOPES.index("group" if chunk == "group" else "sample"):
            line = (place_in_file(op) or "?").partition(":")[0]
            way = f"on the way from `{_argument(record, 'source')}`"
            where = "" if op is stage else f" (line {line}, {way})"
            yield Violation(
                "batch-scope-of-stream",
                f"{op.SURFACE}{where} works on a whole {scope}: `{place.title}` can't start on "
                f"{chunk}s",
            )
            return


def _publish(plan: PlanOp, place: PlaceOp, record: RecordAttr) -> Iterator[Violation]:
    stage, to = stages(plan).get(place.title), _argument(record, "to")
    if plan.pool(to) is None:
        yield Violation("unknown-pool", unknown_pool(to, [p.title for p in plan.pools]))
    if stage is not None and not isinstance(stage, UpdateOp):
        text = "publish belongs to an update: it sends the new weights to a pool"
        yield Violation("publish-elsewhere", text)


def open_stages(plan: PlanOp) -> str | None:
    """Which stages a plan has no line for, and what to write; None if it places every one."""
    missing = [name for name in stages(plan) if name not in {p.title for p in plan.places}]
    if not missing:
        return None
    pools = [*(p.pool_name for p in plan.places), *(p.title for p in plan.pools), "POOL"]
    return (
        f"the plan leaves {', '.join(missing)} open, and nothing runs by it so: give each a line, "
        f"such as `{missing[0]} on {pools[0]}`"
    )


def _overlaps(plan: PlanOp) -> Iterator[Violation]:
    pools = list(plan.pools)
    for index, pool in enumerate(pools):
        cluster = plan_cluster(pool)
        mine = set(pool.gpus(cluster) or ()) if cluster is not None else set[int]()
        for other in pools[:index]:
            theirs = set(other.gpus(cluster) or ()) if cluster is not None else set[int]()
            common = mine & theirs
            if common and common not in (mine, theirs):
                yield Violation(
                    "overlapping-pools",
                    f"the pools `{other.title}` and `{pool.title}` share {len(common)} GPUs: pools "
                    "are disjoint, equal or nested",
                )


def _unpublished(plan: PlanOp, place: PlaceOp) -> str | None:
    """The message for an update's line whose new weights miss a reader, if one does.

    A reader in another pool needs a publish; an engine needs one even in the pool that trains.
    """
    model, known, moved = place.title, stages(plan), moving(plan)
    if not isinstance(known.get(model), UpdateOp) or model not in moved:
        return None
    published = (c for c in place.clauses if c.kind == "publish")
    sent = {_argument(c, "to") for c in published}
    for line in plan.places:
        reader = known.get(line.title)
        if reader is None or isinstance(reader, UpdateOp) or _model_of(plan, line) != model:
            continue
        engine = isinstance(reader, GenerateOp | EvalOp)
        if plan.pool(line.pool_name) is None:
            continue
        if line.pool_name not in sent and (engine or line.pool_name != place.pool_name):
            return (
                f"the new weights of `{model}` never reach `{line.title}` in pool "
                f"`{line.pool_name}`: add publish({line.pool_name}, mode=...) to this line"
            )
    return None
