"""L2, the schedule: the order of tasks on each process group, and the distances between them.

A task is an operation of the step; its label is an attribute of the operation. The schedule of a
synchronous pipeline is its program order, with reads of old versions before what replaces them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import takewhile

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolRefAttr, i64
from xdsl.ir import Attribute, Block, Dialect, Operation, SSAValue
from xdsl.irdl import irdl_op_definition, opt_prop_def, prop_def, region_def, traits_def
from xdsl.traits import NoTerminator

from rpeg.ir.base import CheckedOp
from rpeg.ir.declared import step_of
from rpeg.ir.ops.movement import PublishOp
from rpeg.ir.ops.regions import EveryOp
from rpeg.ir.ops.sampling import GetOp, StaleOp
from rpeg.ir.ops.updates import KlControllerOp, UpdateOp
from rpeg.ir.pools import pools_at
from rpeg.ir.rules.ranks import groups_of
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.flow import symbol_text

TASK = "task"
"""The attribute that labels an operation of the step."""


@irdl_op_definition
class TaskOp(CheckedOp):
    """The next task of a sequence: `rsched.task "y"`, or `rsched.task "y" ahead 2`.

    Among the tasks of step i, one that is ahead 2 is that of step i + 2. The first step runs it for
    steps 0 and 1 as well, the last two not at all.
    """

    name = "rsched.task"
    label = prop_def(StringAttr)
    ahead = opt_prop_def(IntegerAttr.constr(i64))
    assembly_format = "$label (`ahead` $ahead^)? attr-dict"

    @staticmethod
    def of(label: str, ahead: int | None = None) -> "TaskOp":
        """The task with this label, `ahead` steps ahead."""
        properties: dict[str, Attribute] = {"label": StringAttr(label)}
        if ahead is not None:
            properties["ahead"] = IntegerAttr(ahead, i64)
        return TaskOp.create(properties=properties)

    @property
    def steps_ahead(self) -> int:
        """How many steps ahead of the current one the step is that it belongs to."""
        return 0 if self.ahead is None else int(self.ahead.value.data)

    def rules(self) -> Iterator[Violation]:
        sequence, step = self.parent_op(), step_of(self)
        if not isinstance(sequence, SequenceOp) or step is None:
            return
        label, tasks = self.label.data, labelled(step)
        earlier = takewhile(lambda op: op is not self, sequence.body.block.ops)
        above = {op.label.data for op in earlier if isinstance(op, TaskOp)}
        if label not in tasks:
            yield Violation(
                "unknown-task", f"`{label}` is not a task of the step{hint(label, tasks)}"
            )
            return
        if self.steps_ahead < 0:
            text = f"ahead {self.steps_ahead}: a task runs in its own step or before it"
            yield Violation("setting-range", text)
        if label in above:
            yield Violation("repeated-task", f"`{label}` stands twice in the sequence")
        for before, after, why in dependences(step.regions[0].block):
            other = label_of(after)
            if label_of(before) != label or other is None:
                continue
            if self._follows(sequence.tasks.get(other), other in above):
                yield Violation("broken-dependence", f"`{other}` runs before `{label}`: {why}")
        if self.ahead is not None:
            yield from self._misread(step, sequence.tasks, above)

    def _follows(self, other: "TaskOp | None", above: bool) -> bool:
        """Whether a task of a step runs before this one of the same step."""
        ahead = other.steps_ahead if other is not None else self.steps_ahead
        return ahead > self.steps_ahead or (ahead == self.steps_ahead and above)

    def _misread(
        self, step: Operation, tasks: Mapping[str, "TaskOp"], above: Set[str]
    ) -> Iterator[Violation]:
        """States that are too old so far ahead, or too new."""
        makers = _makers(step)
        for value, youngest, oldest in reads(labelled(step)[self.label.data]):
            maker = tasks.get(makers.get(value, ""))
            if maker is None:
                continue
            age = self.steps_ahead - maker.steps_ahead - (maker.label.data in above)
            if not youngest <= age <= oldest:
                allowed = f"{youngest} to {oldest}" if youngest < oldest else f"{oldest}"
                yield Violation(
                    "broken-dependence",
                    f"`{self.label.data}` runs {self.steps_ahead} steps ahead and finds "
                    f"`{name_of(value)}` {age} steps old, not {allowed}",
                )


@irdl_op_definition
class EdgeOp(CheckedOp):
    """A dependence across steps: `rsched.edge "actor" to "y" distance 1`."""

    name = "rsched.edge"
    source = prop_def(StringAttr)
    target = prop_def(StringAttr)
    distance = prop_def(IntegerAttr.constr(i64))
    assembly_format = "$source `to` $target `distance` $distance attr-dict"

    @staticmethod
    def of(source: str, target: str, distance: int) -> "EdgeOp":
        """`target` of step i needs `source` of step i - distance."""
        properties: dict[str, Attribute] = {
            "source": StringAttr(source),
            "target": StringAttr(target),
            "distance": IntegerAttr(distance, i64),
        }
        return EdgeOp.create(properties=properties)

    def rules(self) -> Iterator[Violation]:
        sequence, step = self.parent_op(), step_of(self)
        if not isinstance(sequence, SequenceOp) or step is None:
            return
        source, target, tasks = self.source.data, self.target.data, labelled(step)
        unknown = [label for label in dict.fromkeys((source, target)) if label not in tasks]
        for label in unknown:
            yield Violation(
                "unknown-task", f"`{label}` is not a task of the step{hint(label, tasks)}"
            )
        distance = int(self.distance.value.data)
        if distance < 0:
            yield Violation(
                "edge-distance",
                f"distance {distance}: an edge leads to this step (0) or a later one",
            )
        elif distance == 0 and not unknown and _turned(source, target, sequence.labels):
            around = " -> ".join([*dict.fromkeys((target, source)), target])
            yield Violation(
                "zero-distance-cycle",
                f"zero-distance cycle: {around}: `{source}` does not run before `{target}` in this "
                "sequence; write distance 1, or move the task",
            )


@irdl_op_definition
class SequenceOp(CheckedOp):
    """The tasks of one process group, in the order in which it runs them."""

    name = "rsched.sequence"
    pool = prop_def(SymbolRefAttr)
    body = region_def("single_block")
    traits = traits_def(NoTerminator())
    assembly_format = "$pool attr-dict-with-keyword $body"

    @property
    def tasks(self) -> Mapping[str, TaskOp]:
        """Its tasks by label, in order."""
        return {op.label.data: op for op in self.body.block.ops if isinstance(op, TaskOp)}

    @property
    def labels(self) -> Sequence[str]:
        """Labels of its tasks, in order."""
        return [op.label.data for op in self.body.block.ops if isinstance(op, TaskOp)]

    def rules(self) -> Iterator[Violation]:
        step = step_of(self)
        if step is None:
            yield Violation("misplaced-operation", "a sequence belongs into a pipeline with a step")
            return
        pipeline, pool = self.parent_op(), symbol_text(self.pool)
        groups = groups_of(pipeline) if pipeline is not None else {}
        if pool not in groups:
            near = hint(pool, groups) or f"; declared: {', '.join(groups) or 'none'}"
            yield Violation("unknown-process-group", f"`{pool}` is not a process group{near}")
        tasks = ((label, pools_at(op)) for label, op in labelled(step).items())
        mine = [label for label, pools in tasks if not pools or pool in pools]
        missing = [label for label in mine if label not in self.labels]
        if missing:
            yield Violation("missing-task", f"the sequence leaves out {', '.join(missing)}")
        count = Counter(label_of(op) for op in step.regions[0].block.ops)
        for label in (label for label in self.tasks if count[label] > 1):
            text = f"`{label}` names {count[label]} tasks of the step: give each its own label"
            yield Violation("repeated-task", text)
        yield from self._without_edges(step)

    def _without_edges(self, step: Operation) -> Iterator[Violation]:
        """What its tasks read of earlier steps stands as edges, at that distance or nearer."""
        lines = (op for op in self.body.block.ops if isinstance(op, EdgeOp))
        written = [(op.source.data, op.target.data, int(op.distance.value.data)) for op in lines]
        for (source, target), distance in across_steps(step).items():
            held = [d for a, b, d in written if (a, b) == (source, target)]
            if target in self.labels and min(held, default=distance + 1) > distance:
                yield Violation(
                    "broken-dependence",
                    f"`{target}` reads what `{source}` of an earlier step makes: write "
                    f'rsched.edge "{source}" to "{target}" distance {distance}',
                )


def _turned(first: str, second: str, labels: Sequence[str]) -> bool:
    """Whether a sequence that runs both does not run `first` before `second`."""
    both = first in labels and second in labels
    return both and second not in labels[labels.index(first) + 1 :]


def label_of(op: Operation) -> str | None:
    """The label of a task."""
    held = op.attributes.get(TASK)
    return held.data if isinstance(held, StringAttr) else None


def labelled(step: Operation) -> dict[str, Operation]:
    """The tasks of a step, by label, in the order of the text."""
    pairs = ((label_of(op), op) for op in step.regions[0].block.ops)
    return {label: op for label, op in pairs if label is not None}


Read = tuple[SSAValue, int, int]
"""(value, youngest, oldest): how many steps old the version that is read may be."""


def reads(op: Operation) -> list[Read]:
    """Values that an operation reads, those of its regions included; of a window, its state."""
    readers = (inner for inner in op.walk() if inner is op or not isinstance(inner, StaleOp))
    return [_read(v) for inner in readers for v in inner.operands]


def _read(value: SSAValue) -> Read:
    if not isinstance(value.owner, StaleOp):
        return value, 0, 0
    low, high = value.owner.value("low"), value.owner.value("high")
    if not isinstance(low, int) or not isinstance(high, int):
        low, high = 0, 0  # the window's own rules speak of it
    return value.owner.weights, low, high


def uses(op: Operation) -> list[SSAValue]:
    """The values of `reads`."""
    return [value for value, _, _ in reads(op)]


def _makers(step: Operation) -> dict[SSAValue, str]:
    """Of each state as a step starts: the label of the task that makes the next one."""
    block = step.regions[0].block
    ends = block.last_op.operands if block.last_op is not None else ()
    labels = {
        start: label_of(end.owner) if isinstance(end.owner, Operation) else None
        for start, end in zip(block.args, ends, strict=False)
    }
    return {start: label for start, label in labels.items() if label is not None}


def across_steps(step: Operation) -> dict[tuple[str, str], int]:
    """(maker, reader) -> distance, for each task that starts from a state which another task makes:
    1, and as much more as the window reaches back that it reads.
    """
    found: dict[tuple[str, str], int] = {}
    for start, source in _makers(step).items():
        for target, task in labelled(step).items():
            distances = [1 + oldest for value, _, oldest in reads(task) if value is start]
            if distances:
                found[source, target] = min(*distances, found.get((source, target), distances[0]))
    return found


Dependence = tuple[Operation, Operation, str]
"""(first, second, why): `first` runs before `second` within one step."""


def dependences(block: Block) -> Iterator[Dependence]:
    """The pairs of a step's operations whose order is fixed."""
    ops = list(block.ops)
    makers: dict[SSAValue, Operation] = {r: op for op in ops for r in op.results}
    last = block.last_op
    ending = [makers[v] for v in last.operands if v in makers] if last is not None else []
    for op in ops:
        if op is last:
            continue
        for value in dict.fromkeys(uses(op)):
            if value in makers and makers[value] is not op:
                yield makers[value], op, "it reads what the other makes"
        yield from _overwrites(op, ops)
        if isinstance(op, EveryOp) and not op.carried:
            ends = (e for e in ending if e is not op)
            yield from ((e, op, "it sees the state as the step ends") for e in ends)


def _overwrites(op: Operation, ops: Sequence[Operation]) -> Iterator[Dependence]:
    """Updates and controllers work in place, and a publish replaces an engine's weights: old
    readers go first.
    """
    replaced = [old for inner in op.walk() if (old := _replaced(inner)) is not None]
    if not replaced:
        return
    for reader in ops:
        read = set() if reader is op or isinstance(reader, GetOp) else set(uses(reader))
        if not read.isdisjoint(replaced):
            yield reader, op, "the other replaces the version that it reads"


def _replaced(op: Operation) -> SSAValue | None:
    """The state whose old version is gone once an operation has run."""
    match op:
        case UpdateOp():
            return op.weights
        case KlControllerOp():
            return op.coef
        case PublishOp():
            return _register(op)
        case _:
            return None


def _register(publish: PublishOp) -> SSAValue | None:
    """The published weights as the step starts: the argument whose next version this one makes."""
    block = publish.parent_block()
    if block is None or block.last_op is None:
        return None
    pairs = zip(block.args, block.last_op.operands, strict=False)
    return next((start for start, end in pairs if end is publish.published), None)


Rsched = Dialect("rsched", [SequenceOp, TaskOp, EdgeOp], [])
