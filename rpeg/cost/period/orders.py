"""Edges that a schedule's resources and channels make: one task at a time, no more than fits.

A pool goes through its sequence again and again, and a link sends in the order of the text. A
channel holds `capacity` batches that were sent and not taken: whoever sends one more waits until
the other pool gets to where it takes the oldest, and so does what stands behind it in its sequence.
What comes in chunks goes before all that it does not need: it is there to fill gaps. Pools that
train end their steps together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from rpeg.cost.period.chunks import Chunks
from rpeg.cost.period.graph import Edge, Task
from rpeg.cost.period.schedule import Channel, Schedule, channels
from rpeg.ir.pools import home_of, trained_on

Chains = Mapping[str, Sequence[Task]]


def resource_orders(schedule: Schedule, chains: Chains, chunks: Chunks) -> Iterator[Edge]:
    """The order of each resource's tasks, around to the first of the next turn."""
    for resource in dict.fromkeys(chain[0].resource for chain in chains.values()):
        labels = _chunks_first(_order(schedule, chains, resource or ""), schedule, chunks)
        tasks = [task for label in labels for task in chains[label]]
        for before, after in pairwise(tasks):
            yield Edge(before.name, after.name, 0, "order")
        yield Edge(tasks[-1].name, tasks[0].name, 1, "order")


def _order(schedule: Schedule, chains: Chains, resource: str) -> Sequence[str]:
    """A pool's in the order of its sequence, others' in the order of the text."""
    held = [label for label in chains if chains[label][0].resource == resource]
    sequence = schedule.sequences.get(resource)
    return held if sequence is None else [label for label in sequence if label in held]


def _chunks_first(labels: Sequence[str], schedule: Schedule, chunks: Chunks) -> Sequence[str]:
    needed = {label for label in labels if chunks.number(label) > 1}
    now = [(w.source, w.target) for w in schedule.waits() if not w.turns] if needed else []
    size = -1
    while size < len(needed):
        size = len(needed)
        needed |= {source for source, target in now if target in needed}
    return sorted(labels, key=lambda label: label not in needed)


def back_pressure(schedule: Schedule, chains: Chains) -> Iterator[Edge]:
    """What waits for a place in a channel."""
    for channel in channels(schedule):
        taken, turns = _before(schedule, chains, channel)
        for waiting, later in _senders(schedule, chains, channel):
            distance = channel.capacity + turns + later
            yield Edge(chains[taken][-1].name, chains[waiting][0].name, distance, "back-pressure")


def books(schedule: Schedule, chains: Chains) -> Iterator[Edge]:
    """Pools that train and the one that keeps the run's books end a step before either begins the
    next: a checkpoint is of one step.
    """
    step = next(iter(schedule.tasks.values())).parent_op()
    assert step is not None, "tasks are operations of a step"
    home = home_of(step)
    for pool in dict.fromkeys(trained_on(step).values()):
        if home is None or pool == home:
            continue
        for one, other in ((home, pool), (pool, home)):
            last, first = _run(schedule, chains, one)[-1], _run(schedule, chains, other)[0]
            yield Edge(chains[last][-1].name, chains[first][0].name, 1, "books")


def _run(schedule: Schedule, chains: Chains, pool: str) -> Sequence[str]:
    """The tasks that a pool runs itself, in its order."""
    return [label for label in schedule.sequences[pool] if chains[label][0].resource == pool]


def _before(schedule: Schedule, chains: Chains, channel: Channel) -> tuple[str, int]:
    """The task behind which a pool takes a batch, and whether it is of the turn before."""
    sequence = schedule.sequences[channel.target]
    place = min(sequence.index(label) for label in channel.labels)
    run = _run(schedule, chains, channel.target)
    earlier = [label for label in sequence[:place] if label in run]
    return (earlier[-1], 0) if earlier else (run[-1], 1)


def _senders(schedule: Schedule, chains: Chains, channel: Channel) -> Iterator[tuple[str, int]]:
    """What waits: the transfers, and the task behind them, maybe of the next turn."""
    yield from ((label, 0) for label in channel.labels)
    sequence = schedule.sequences[channel.source]
    place = min(sequence.index(label) for label in channel.labels)
    run = _run(schedule, chains, channel.source)
    later = [label for label in sequence[place:] if label in run]
    yield (later[0], 0) if later else (run[0], 1)
