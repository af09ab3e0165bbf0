"""The profile of each task of a placed step."""

from __future__ import annotations

from dataclasses import replace

from xdsl.ir import Operation

from rpeg.cost.collectives import ALL_GATHER, Group, collective
from rpeg.cost.profiles import moving, passes
from rpeg.cost.profiles.contention import slowed
from rpeg.cost.profiles.footprint import usable
from rpeg.cost.profiles.judging import judge
from rpeg.cost.profiles.layouts import Layout, bound_of, layout_of
from rpeg.cost.profiles.residency import HOST, residency_of
from rpeg.cost.profiles.rows import computed_rows, held_out
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.stage import Profile, moved
from rpeg.cost.profiles.states import states
from rpeg.cost.profiles.workload import Rows, timeout_of
from rpeg.cost.training import NUMBER_BYTES
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import EvalLossOp, EvalOp
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.movement import PublishOp, TransferOp, model_of, pool_of
from rpeg.ir.ops.regions import CollectOp, EveryOp
from rpeg.ir.ops.sampling import BatchOp, GenerateOp, LogprobOp, ScoreOp, ValuesOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.pools import made_on
from rpeg.ir.stages import stage_name
from rpeg.ir.types.batches import PromptsType
from rpeg.ir.types.values import ToolType, VerifierType, WeightsType
from rpeg.ir.vocabulary.settings import python_value


def profiles(setting: Setting) -> dict[Operation, Profile]:
    """Every operation of the step with its profile; what takes no time has an empty one.

    A region has the sum of what is inside, on average per step: an `every` a part, a `collect` as
    many rounds as it takes on average.
    """
    found: dict[Operation, Profile] = {}
    step = next(op for op in setting.pipeline.regions[0].block.ops if op.name == "rpeg.step")
    for task in step.regions[0].block.ops:
        _enter(task, setting, found, 1.0)
    return found


def _enter(
    op: Operation, setting: Setting, found: dict[Operation, Profile], times: float
) -> Profile:
    """Adds an operation, and what is inside of it, each `times` a step."""
    times *= _repeats(op, setting)
    inside = [o for region in op.regions for block in region.blocks for o in block.ops]
    parts = [_enter(o, setting, found, times) for o in inside]
    own = sum(parts, Profile())
    if not inside:
        own = slowed(op, _profile(op, setting).times(times), setting)
    found[op] = own
    return own


def _repeats(op: Operation, setting: Setting) -> float:
    match op:
        case EveryOp():
            return 1.0 / op.int_of("steps")
        case CollectOp():
            return max(op.int_of("groups") / (_asked(op) * setting.workload.kept(op)), 1.0)
        case _:
            return 1.0


def _asked(collect: CollectOp) -> int:
    """Groups of one round of a collect."""
    found = (op.prompts.type for op in collect.walk() if isinstance(op, GenerateOp))
    return next((held.size.data for held in found if isinstance(held, PromptsType)), 1)


def _profile(op: Operation, setting: Setting) -> Profile:
    """Of one operation, once."""
    bare = _bare(op, setting)
    if not isinstance(op, RpegOp) or not op.PLACED or _verifies(op):
        return bare
    costs = setting.assumptions
    rest = costs.rest_shared if setting.shared(pool_of(op)) else costs.rest
    rest = 0.0 if _has_its_rows(op) else rest
    loaded = bare.with_seconds("offload", _offload(op, setting))
    return loaded.with_seconds("overhead", loaded.seconds * rest / (1.0 - rest))


def _has_its_rows(op: Operation) -> bool:
    """Whether a pass before it, fused with it, has packed and moved the rows already."""
    around = op.parent_op()
    return isinstance(around, FuseOp) and around.body.block.first_op is not op


def _bare(op: Operation, setting: Setting) -> Profile:
    match op:
        case GenerateOp():
            sampled = _sampled(op, setting.workload.rows(op.trajectories), setting)
            return sampled.with_seconds("tools", _waits(op, setting))
        case EvalOp():
            sampled = _sampled(op, held_out(op, setting), setting)
            return sampled.with_seconds("tools", _waits(op, setting))
        case EvalLossOp():
            return _forward(op, setting, held_out(op, setting))
        case LogprobOp() | ValuesOp():
            return _forward(op, setting, setting.workload.rows(op.trajectories))
        case ScoreOp():
            return _scored(op, setting)
        case UpdateOp():
            return _updated(op, setting)
        case PublishOp():
            return _published(op, setting)
        case TransferOp():
            return _transferred(op, setting)
        case BatchOp():
            return _books(op, setting)
        case _:
            return Profile()


def _verifies(op: Operation) -> bool:
    return isinstance(op, ScoreOp) and not isinstance(op.scorer.type, WeightsType)


def _sampled(op: RpegOp, rows: Rows, setting: Setting) -> Profile:
    engine = replace(setting.assumptions.sampling, utilization=usable(setting, op))
    return setting.rollouts(op).profile(rows, setting.machine, engine)


def _waits(op: GenerateOp | EvalOp, setting: Setting) -> float:
    """Seconds that the last sample waits for answers between its turns, of the slowest of its
    tools on average; others decode meanwhile.
    """
    called = (tool.type for tool in op.tools)
    names = [held.symbol for held in called if isinstance(held, ToolType)]
    limits = [timeout_of(setting.pipeline, name) for name in names]
    pairs = zip(names, limits, strict=True)
    means = (setting.workload.verdict(name, limit).average for name, limit in pairs)
    return (op.int_of("max_turns") - 1) * max(means, default=0.0)


def _forward(op: RpegOp, setting: Setting, rows: Rows) -> Profile:
    layout, bound = layout_of(op), bound_of(op)
    era = setting.assumptions.training
    return passes.forward(setting.model(op), layout, bound, rows, setting.machine, era)


def _updated(op: UpdateOp, setting: Setting) -> Profile:
    return passes.update(
        setting.model(op),
        layout_of(op),
        bound_of(op),
        computed_rows(op, setting),
        setting.machine,
        setting.assumptions.training,
        epochs=op.int_of("epochs"),
        minibatches=op.int_of("minibatches"),
    )


def _scored(op: ScoreOp, setting: Setting) -> Profile:
    held, rows = op.scorer.type, setting.workload.rows(op.trajectories)
    match held:
        case WeightsType() if op.passes_model:
            return _forward(op, setting, rows)
        case WeightsType():
            return _judged(op, held.owner, rows, setting)
        case VerifierType() | ToolType():
            return _verified(op, held.symbol, rows, setting)
        case _:
            return Profile()


def _judged(op: ScoreOp, judge_name: str, rows: Rows, setting: Setting) -> Profile:
    """A judge reads prompt and response, and writes a number."""
    most = _setting_of(setting, judge_name, "max_tokens")
    return _sampled(op, setting.workload.judged(judge_name, rows, most), setting)


def _verified(op: ScoreOp, verifier: str, rows: Rows, setting: Setting) -> Profile:
    """By the cores of a pool of their own, or one for each process."""
    each = setting.workload.verdict(verifier, timeout_of(setting.pipeline, verifier))
    apart = setting.checkers.get(stage_name(op))
    processes = setting.pools.get(pool_of(op) or "", 1)
    judged = judge(rows.number, each, apart.number if apart is not None else processes)
    replicas = layout_of(op).dp
    return judged if processes == replicas else judged + _gathers(1.0, processes, setting)


def _published(op: PublishOp, setting: Setting) -> Profile:
    model, to = model_of(op) or "", pool_of(op)
    update, readers = setting.trainer(model), setting.samplers(model, to)
    if update is None or not readers:
        return Profile()
    trainer, engine = layout_of(update), setting.rollouts(readers[0]).layout
    if pool_of(update) == to:
        bucket = moving.bucket_of(update)
        within = moving.publish_within(
            setting.models[model], trainer, engine, setting.machine, bucket
        )
        launches = setting.assumptions.publish_launches * setting.models[model].shape.layers
        within = within.with_seconds("overhead", launches * setting.machine.launch_s)
        if not setting.assumptions.by_message:
            return within
        return within + moving.tensor_messages(setting.models[model], trainer, setting.machine)
    mode, bucket = moving.mode_of(update), moving.bucket_of(update)
    return moving.publish_apart(
        setting.models[model], trainer, engine, setting.machine, mode, bucket
    )


def _transferred(op: TransferOp, setting: Setting) -> Profile:
    senders = setting.pools.get(made_on(op.moved) or "", 1)
    takers = setting.pools.get(pool_of(op) or "", 1)
    rows = setting.workload.rows(op.moved)
    return moving.transfer(op.moved, rows, senders, takers, setting.machine)


STEP_OBJECTS, OBJECT_MESSAGES = 3.0, 2.0
"""Objects that processes hand each other in a step (rollouts, metrics, and what else is written),
and the messages of each: its size, and itself. A test counts them.
"""


def _books(op: BatchOp, setting: Setting) -> Profile:
    """What a step takes besides its stages; it counts with the first batch that is read."""
    first = next(o for o in setting.pipeline.walk() if isinstance(o, BatchOp))
    if op is not first:
        return Profile()
    seconds = setting.assumptions.book_launches * setting.machine.launch_s
    processes = max(setting.pools.values(), default=1)
    books = Profile().with_seconds("overhead", seconds)
    return books + _gathers(STEP_OBJECTS, processes, setting)


def _gathers(objects: float, processes: int, setting: Setting) -> Profile:
    """Objects that all processes of a pool hand to each other."""
    machine, launches = setting.machine, setting.assumptions.gather_launches
    if processes == 1 or not launches:
        return Profile()
    group = Group.of(machine, processes)
    message = float(collective(machine, ALL_GATHER, NUMBER_BYTES, group))
    sent = moved("communication", objects * OBJECT_MESSAGES * message)
    return sent.with_seconds("overhead", objects * launches * machine.launch_s)


# ---- what comes from the host


def _offload(op: RpegOp, setting: Setting) -> float:
    """Seconds to bring a stage's states from the host, and back what it changed."""
    if isinstance(op, GenerateOp | EvalOp) or model_of(op) is None:
        return 0.0
    resid, model = residency_of(op), setting.model(op)
    held = states(model, _spread(op, setting))
    size = 0.0
    if resid.comes_from_host and not _follows(op, setting):
        size += held.weights
    if isinstance(op, UpdateOp):
        size += 2.0 * held.optimizer if resid.opt == HOST else 0.0
        size += held.weights if resid.params == HOST else 0.0
    return moving.over_host_link(size, setting.machine)


def _spread(op: RpegOp, setting: Setting) -> Layout:
    model = model_of(op) or ""
    return setting.home_layout(model) if setting.trainer(model) is not None else layout_of(op)


def _follows(op: RpegOp, setting: Setting) -> bool:
    """Whether the stage before on the pool has the model's weights there already."""
    on = [other for other in setting.stages.values() if pool_of(other) == pool_of(op)]
    before = on[on.index(op) - 1] if on.index(op) else None
    return before is not None and _passes(before) and model_of(before) == model_of(op)


def _passes(op: Operation) -> bool:
    return not isinstance(op, GenerateOp | EvalOp)


def _setting_of(setting: Setting, declared: str, name: str) -> float:
    """A number that a declaration holds."""
    ops = setting.pipeline.regions[0].block.ops
    found = (op for op in ops if getattr(op, "title", None) == declared)
    value = next((python_value(op.properties.get(name)) for op in found), None)
    return float(value) if isinstance(value, int) else 256.0
