"""From stages on several pools to a step whose every operation has a pool, with explicit transfers.

A plan places stages. The rest follows from it: a batch is read where it is used, a function of
fields runs where its result is read, and what measures and writes is of the home pool, which trains
what is sampled from. A model trains where its update is, and is asked there. A value that another
pool reads gets a transfer, right behind the operation that makes it.
"""

from collections.abc import Iterator, Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import ExportOp
from rpeg.ir.ops.movement import POOL, TransferOp, model_of, pool_of
from rpeg.ir.ops.regions import CollectOp, EveryOp
from rpeg.ir.ops.sampling import BatchOp, GenerateOp, GetOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.pools import home_of, sampled_from, task_around, trained_on
from rpeg.ir.reported import is_trained, reported_rewards
from rpeg.ir.rules.violations import setting
from rpeg.ir.stages import stage_name
from rpeg.ir.text.naming import name_of, trajectories_of
from rpeg.ir.types.values import (
    CursorType,
    DataType,
    LossType,
    ResponseFieldType,
    StateType,
    TokenFieldType,
    TrajectoriesType,
    WeightsType,
)
from rpeg.passes.base import PassRefused, Problem

CROSSES = TrajectoriesType | TokenFieldType | ResponseFieldType
"""What can move from pool to pool."""


def spread(step: StepOp) -> int:
    """Gives every operation of a step a pool, and every crossing a transfer; returns the number of
    transfers.

    Raises PassRefused with everything that can't be where the plan has it.
    """
    home, trained = _home(step), trained_on(step)
    tasks = [op for op in step.body.block.ops if not isinstance(op, GetOp)][:-1]
    for op in reversed(tasks):
        op.attributes.setdefault(POOL, StringAttr(_where(op, step, home)))
    problems = [problem for op in tasks for problem in _misplaced(op, home, trained)]
    problems += _data_apart(tasks)
    if problems:
        raise PassRefused.of(problems)
    return _transfers(step, tasks, home)


def _home(step: StepOp) -> str:
    """The pool that trains what is sampled from. Raises PassRefused if it is not one."""
    home, sampled = home_of(step), sampled_from(step)
    if home is None:
        raise PassRefused(step, "a plan of several pools needs an update: its pool trains")
    for op in step.walk():
        if isinstance(op, UpdateOp) and op.makes() in sampled and pool_of(op) != home:
            text = (
                f"`{stage_name(op)}` trains on `{pool_of(op)}`, another model that is sampled from "
                f"on `{home}`: engines get their weights from one pool: write {home}"
            )
            raise PassRefused(op, text, setting(POOL))
    return home


# ---- which pool


def _where(task: Operation, step: StepOp, home: str) -> str:
    """The pool of a task, given those of its readers."""
    if isinstance(task, CollectOp):
        sampled = (pool_of(op) for op in task.walk() if isinstance(op, GenerateOp))
        return next((pool for pool in sampled if pool is not None), home)
    given = pool_of(task)
    if given is not None:
        return given
    if not task.results or _makes_state(task, step):
        return home
    readers = [pool for reader in _readers(task) if (pool := pool_of(reader)) is not None]
    return home if home in readers or not readers else readers[0]


def _makes_state(task: Operation, step: StepOp) -> bool:
    """Whether a step ends with what a task makes, but for the place in a data set."""
    made = (r for r in task.results if not isinstance(r.type, CursorType))
    return any(r in step.ending.operands for r in made)


def _readers(task: Operation) -> list[Operation]:
    """The tasks that read what a task makes, places in data aside, in the order of the text."""
    made = (r for r in task.results if not isinstance(r.type, CursorType))
    used = (task_around(use.operation) for r in made for use in r.uses)
    found = {op for op in used if op.next_op is not None}
    block = task.parent_block()
    return [op for op in (block.ops if block is not None else ()) if op in found]


# ---- what can't be there


def _misplaced(task: Operation, home: str, trained: Mapping[str, str]) -> Iterator[Problem]:
    """Why parts of a task can't run in its pool."""
    pool = pool_of(task) or home
    yield from _apart(task, pool)
    if isinstance(task, BatchOp):
        yield from _read_apart(task)
    for op in task.walk():
        yield from _away_from_weights(op, pool, trained)
        yield from _away_from_loss(op, pool)
        if pool != home:
            yield from _away_from_home(op, pool, home)


def _apart(task: Operation, pool: str) -> Iterator[Problem]:
    """Stages inside of a region that the plan places elsewhere than the region."""
    for op in task.walk():
        there = pool_of(op)
        if there is None or there == pool:
            continue
        what = f"`{stage_name(op)}`" if isinstance(op, RpegOp) else op.name
        if isinstance(task, EveryOp):
            why = f"what runs every so many steps belongs to the run's home: write {pool}"
        else:
            why = f"a collect runs in one pool, that of its generate: write {pool}"
        yield Problem(op, f"{what} is on `{there}`: {why}", setting(POOL))


def _read_apart(task: BatchOp) -> Iterator[Problem]:
    pools = list(dict.fromkeys(pool_of(op) for op in _readers(task)))
    if len(pools) > 1:
        text = (
            f"`{name_of(task.rows)}` is read on the pools {_named(pools)}: rows of data do not "
            "cross pools yet: place what reads them together"
        )
        yield Problem(task, text)


def _data_apart(tasks: Sequence[Operation]) -> Iterator[Problem]:
    """Data that several pools read: each would count its own place in it."""
    found: dict[str, list[str]] = {}
    for op in tasks:
        types = (value.type for value in _reads(op))
        for name in dict.fromkeys(t.symbol for t in types if isinstance(t, CursorType | DataType)):
            pools = found.setdefault(name, [])
            pool = pool_of(op) or ""
            if pools and pool not in pools:
                text = (
                    f"`{name}` is read on the pools {_named([*pools, pool])}: a data set belongs "
                    "to one pool: declare it once more, under another name"
                )
                yield Problem(op, text)
            pools.append(pool)


def _named(pools: Sequence[str | None]) -> str:
    return " and ".join(f"`{pool}`" for pool in dict.fromkeys(pools))


def _reads(task: Operation) -> list[SSAValue]:
    return [value for op in task.walk() for value in op.operands]


def _away_from_weights(op: Operation, pool: str, trained: Mapping[str, str]) -> Iterator[Problem]:
    """What reads the newest weights of a model: only the pool that trains it has those."""
    there = trained.get(model_of(op) or "", pool)
    if there in (pool, pool_of(op)) or not isinstance(op, RpegOp) or not _reads_trained(op):
        return
    inside = isinstance(task_around(op), EveryOp)
    what = f"`{stage_name(op)}`" if op.PLACED else f"`{op.SURFACE}`"
    remedy = f"train it on {pool}" if inside else f"write {there}"
    text = (
        f"{what} is on `{pool}`, and `{model_of(op)}` trains on `{there}`: a second "
        f"copy of its weights does not compile yet: {remedy}"
    )
    yield Problem(op, text, setting(POOL))


def _away_from_loss(op: Operation, pool: str) -> Iterator[Problem]:
    """A loss belongs to one pool: what it is computed from crosses, not the loss."""
    for value in op.operands:
        there = pool_of(task_around(_owner(value))) if isinstance(value.type, LossType) else pool
        if there != pool:
            text = (
                f"`{name_of(value)}` is read on the pools {_named([there, pool])}: a loss does not "
                "cross pools: write one for each"
            )
            yield Problem(op, text, setting(POOL))


def _away_from_home(op: Operation, pool: str, home: str) -> Iterator[Problem]:
    """What only the home pool has: numbers of the step before."""
    for value in op.operands:
        if isinstance(value.type, StateType) and not isinstance(value.owner, GetOp):
            text = (
                f"`{value.type.symbol}` changes from step to step on `{home}`, and `{pool}` reads "
                f"it: numbers do not cross pools yet: place its readers on {home}"
            )
            yield Problem(op, text)


def _reads_trained(op: RpegOp) -> bool:
    """Whether what works with a model, unless it samples, reads weights that the step trains."""
    if isinstance(op, GenerateOp) or not (op.PLACED or isinstance(op, ExportOp)):
        return False
    weights = (v for v in op.operands if isinstance(v.type, WeightsType))
    return any(not isinstance(v.owner, GetOp) for v in weights)


# ---- transfers


def _transfers(step: StepOp, tasks: Sequence[Operation], home: str) -> int:
    """Inserts the transfers of a step, and has their readers read what arrives; returns their
    number.
    """
    arrived: dict[tuple[SSAValue, str], SSAValue] = {}
    last: dict[Operation, Operation] = {}
    for value, pool in dict.fromkeys((*_needs(tasks), *_reported(step, home))):
        maker = task_around(_owner(value))
        if (value, pool) in arrived or pool_of(maker) == pool:
            continue
        made = TransferOp.make(
            [value], attributes={POOL: StringAttr(pool)}, location=maker.location
        )
        made.results[0].name_hint = value.name_hint
        Rewriter.insert_op(made, InsertPoint.after(last.get(maker, maker)))
        last[maker] = made
        arrived[value, pool] = made.results[0]
    for op in tasks:
        _read_arrived(op, arrived)
    return len(arrived)


def _needs(tasks: Sequence[Operation]) -> Iterator[tuple[SSAValue, str]]:
    """(value, pool): each that a task of the pool reads, with the trajectories that it is of."""
    for op in tasks:
        pool = pool_of(op)
        for value in (v for v in _reads(op) if _outside(v, op)):
            if pool is not None and isinstance(value.type, CROSSES):
                y = trajectories_of(value)
                if y is not None and isinstance(y.type, TrajectoriesType):
                    yield y, pool
                yield value, pool


def _reported(step: StepOp, home: str) -> Iterator[tuple[SSAValue, str]]:
    """What reports read: of the trained batch where it trains, of others where they are made."""
    batches = [(y, rewards, is_trained(y, step)) for y, rewards in reported_rewards(step)]
    for y, rewards, trained in batches:
        here = trained or not any(is_trained for _, _, is_trained in batches)
        pool = home if here else pool_of(_owner(y))
        assert pool is not None, "every task has a pool by now"
        yield from ((value, pool) for value in (y, *rewards))


def _outside(value: SSAValue, task: Operation) -> bool:
    """Whether another task makes a value that a task reads."""
    owner = value.owner
    if isinstance(value, BlockArgument) or isinstance(owner, Block):
        return False
    return not isinstance(owner, GetOp) and task_around(owner) is not task


def _owner(value: SSAValue) -> Operation:
    assert isinstance(value.owner, Operation), "an operation of the step makes rows"
    return value.owner


def _read_arrived(task: Operation, arrived: dict[tuple[SSAValue, str], SSAValue]) -> None:
    pool = pool_of(task) or ""
    for op in task.walk():
        op.operands = [arrived.get((value, pool), value) for value in op.operands]
