"""A rule of schedules (L2) as a whole: process groups do not wait for each other in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from xdsl.ir import Operation

from rpeg.ir.declared import step_of
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.movement import TransferOp
from rpeg.ir.pools import pools_at
from rpeg.ir.rsched import EdgeOp, SequenceOp, dependences, label_of, labelled
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.flow import symbol_text

Task = tuple[str, str]
"""(process group, label)."""


def deadlock_violations(root: Operation) -> Iterator[tuple[Operation, Violation]]:
    """Each pipeline with a cycle of tasks that wait for each other within a step.

    Within one sequence, the rules of its tasks and edges say more of it.
    """
    blocks = (block for region in root.regions for block in region.blocks)
    for pipeline in (op for block in blocks for op in block.ops):
        if isinstance(pipeline, PipelineOp):
            found = pipeline.ops_of(SequenceOp)
            sequences = {symbol_text(op.pool): op for op in found}
            around = _cycle(pipeline, sequences) if len(sequences) > 1 else []
            if len({pool for pool, _ in around}) > 1:
                named = " -> ".join(f"{label} on {pool}" for pool, label in around)
                text = (
                    f"zero-distance cycle: {named}: reorder a sequence, or give an edge distance 1"
                )
                yield next(iter(sequences.values())), Violation("zero-distance-cycle", text)


def _cycle(pipeline: PipelineOp, sequences: Mapping[str, SequenceOp]) -> list[Task]:
    """A cycle of tasks, the first again at the end; empty if there is none."""
    waits: dict[Task, set[Task]] = {}
    for before, after in _orders(pipeline, sequences):
        waits.setdefault(after, set()).add(before)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        found: list[Task] = error.args[1]
        return found
    return []


def _orders(pipeline: PipelineOp, groups: Mapping[str, SequenceOp]) -> Iterator[tuple[Task, Task]]:
    """(first, second): `second` of a step waits for `first` of the same step."""
    for pool, sequence in groups.items():
        yield from (((pool, a), (pool, b)) for a, b in pairwise(sequence.labels))
    for before, after in (*_needs(pipeline), *_zero_edges(groups.values())):
        for pool in (p for p, s in groups.items() if after in s.labels):
            makers = [pool] if before in groups[pool].labels else groups
            yield from (((p, before), (pool, after)) for p in makers if before in groups[p].labels)
    yield from _crossings(pipeline, groups)


def _crossings(
    pipeline: PipelineOp, groups: Mapping[str, SequenceOp]
) -> Iterator[tuple[Task, Task]]:
    """What a pool takes, another one sends first: the same task of both."""
    step = step_of(pipeline)
    for label, op in labelled(step).items() if step is not None else ():
        if isinstance(op, TransferOp):
            ends = [p for p in pools_at(op) if p in groups and label in groups[p].labels]
            yield from (((a, label), (b, label)) for a, b in pairwise(ends))


def _needs(pipeline: PipelineOp) -> Iterator[tuple[str, str]]:
    step = step_of(pipeline)
    for before, after, _ in dependences(step.regions[0].block) if step is not None else ():
        first, second = label_of(before), label_of(after)
        if first is not None and second is not None:
            yield first, second


def _zero_edges(sequences: Iterable[SequenceOp]) -> Iterator[tuple[str, str]]:
    for sequence in sequences:
        for op in sequence.body.block.ops:
            if isinstance(op, EdgeOp) and op.distance.value.data == 0:
                yield op.source.data, op.target.data
