"""Where it runs: plans, their pools, a line for each stage. No line of a plan can change a loss."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from xdsl.dialects.builtin import (
    ArrayAttr,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
)
from xdsl.irdl import (
    irdl_op_definition,
    prop_def,
    region_def,
    traits_def,
)
from xdsl.traits import NoTerminator, SymbolOpInterface

from rpeg.ir.base import CheckedOp
from rpeg.ir.clusters import Cluster, ClusterError, load_cluster
from rpeg.ir.declared import symbol_name
from rpeg.ir.rules import violations
from rpeg.ir.rules.settings import known_record_violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.flow import symbol_text
from rpeg.ir.vocabulary.records import CLAUSES, POOLS
from rpeg.ir.vocabulary.settings import python_value


@irdl_op_definition
class PoolOp(CheckedOp):
    """A part of the cluster: `rpeg.pool @all #rpeg.record<nodes, {which = [0, 39]}>`."""

    name = "rpeg.pool"
    WITHIN: ClassVar[str] = "rpeg.plan"
    sym_name = prop_def(SymbolNameConstraint())
    shape = prop_def(RecordAttr)
    traits = traits_def(SymbolOpInterface())
    assembly_format = "$sym_name qualified($shape) attr-dict"

    @property
    def title(self) -> str:
        """Its name."""
        return symbol_name(self) or ""

    @property
    def bounds(self) -> tuple[int, int] | None:
        """First and last unit, both included; None where the record does not say."""
        held = self.shape.settings.get("nodes" if self.shape.kind == "cores" else "which")
        numbers = python_value(held) if isinstance(held, ArrayAttr) else ()
        if not isinstance(numbers, tuple) or len(numbers) != 2:
            return None
        low, high = numbers
        return (low, high) if isinstance(low, int) and isinstance(high, int) else None

    def gpus(self, cluster: Cluster) -> range | None:
        """Its GPUs, numbered through the cluster; None for a pool of cores or one outside of it."""
        bounds = self.bounds
        if bounds is None or self.shape.kind == "cores" or self._misplaced(cluster):
            return None
        per = cluster.gpus_per_node if self.shape.kind == "nodes" else 1
        return range(bounds[0] * per, (bounds[1] + 1) * per)

    @property
    def cores(self) -> int | None:
        """CPU cores of a pool of cores, one for each process; None for a pool of GPUs."""
        bounds, per = self.bounds, python_value(self.shape.settings.get("per_node"))
        if self.shape.kind != "cores" or not isinstance(per, int):
            return None
        if bounds is None or bounds[0] > bounds[1]:
            return None
        return (bounds[1] - bounds[0] + 1) * per

    def _misplaced(self, cluster: Cluster) -> str | None:
        bounds = self.bounds
        if self.shape.kind != "cores" and not cluster.gpus:
            return "the cluster has no GPUs: write cores(0..0, per_node=N)"
        if bounds is not None and bounds[0] > bounds[1]:
            return f"{bounds[0]}..{bounds[1]} is empty: the smaller number comes first"
        unit = "gpus" if self.shape.kind == "gpus" else "nodes"
        limit = cluster.gpus if unit == "gpus" else cluster.nodes
        if bounds is None or bounds[1] < limit:
            return None
        return f"{bounds[0]}..{bounds[1]}: the cluster has {unit} 0..{limit - 1}"

    def rules(self) -> Iterator[Violation]:
        yield from known_record_violations(self.shape, POOLS, "a kind of pool")
        if self.shape.kind not in POOLS:
            return
        cluster = plan_cluster(self)
        message = self._misplaced(cluster) if cluster is not None else None
        if message is not None:
            yield Violation("outside-cluster", message, violations.setting("which"))


@irdl_op_definition
class PlaceOp(CheckedOp):
    """A stage, its pool, its clauses: `rpeg.place "y" on @all [#rpeg.record<par, {dp = 8}>]`."""

    name = "rpeg.place"
    WITHIN: ClassVar[str] = "rpeg.plan"
    stage = prop_def(StringAttr)
    pool = prop_def(SymbolRefAttr)
    clauses = prop_def(ArrayAttr[RecordAttr])
    assembly_format = "$stage `on` $pool $clauses attr-dict"

    @property
    def title(self) -> str:
        """Name of the stage."""
        return self.stage.data

    @property
    def pool_name(self) -> str:
        """Name of the pool."""
        return symbol_text(self.pool)

    def clause(self, kind: str) -> RecordAttr | None:
        """The clause of this kind, if the line has one."""
        return next((c for c in self.clauses if c.kind == kind), None)

    def fits(self, index: int) -> bool:
        """Whether clause number `index` is a known one, with the settings that it takes."""
        return next(self._misfits(index), None) is None

    def rules(self) -> Iterator[Violation]:
        if not isinstance(self.parent_op(), PlanOp):
            yield Violation("misplaced-operation", "rpeg.place belongs into rpeg.plan")
        for index in range(len(self.clauses)):
            yield from self._misfits(index)

    def _misfits(self, index: int) -> Iterator[Violation]:
        record = self.clauses.data[index]
        for found in known_record_violations(record, CLAUSES, "a clause", f"{index}."):
            whole = found.anchor == violations.WHOLE
            yield replace(found, anchor=violations.clause(index)) if whole else found


@irdl_op_definition
class PlanOp(CheckedOp):
    """A plan: pools and places on a cluster."""

    name = "rpeg.plan"
    WITHIN: ClassVar[str] = "rpeg.pipeline"
    sym_name = prop_def(SymbolNameConstraint())
    cluster = prop_def(StringAttr)
    body = region_def("single_block")
    traits = traits_def(SymbolOpInterface(), NoTerminator())
    assembly_format = "$sym_name `on` $cluster attr-dict-with-keyword $body"

    @property
    def title(self) -> str:
        """Its name."""
        return symbol_name(self) or ""

    @property
    def pools(self) -> Sequence[PoolOp]:
        """Its pools, in the order of the text."""
        return [op for op in self.body.block.ops if isinstance(op, PoolOp)]

    @property
    def places(self) -> Sequence[PlaceOp]:
        """Its lines, in the order of the text."""
        return [op for op in self.body.block.ops if isinstance(op, PlaceOp)]

    def pool(self, name: str) -> PoolOp | None:
        """The pool of this name."""
        return next((p for p in self.pools if p.title == name), None)

    def rules(self) -> Iterator[Violation]:
        try:
            load_cluster(self.cluster.data)
        except ClusterError as error:
            yield Violation("unknown-cluster", str(error), violations.setting("cluster"))


def plan_cluster(op: CheckedOp) -> Cluster | None:
    """The cluster of the plan around an operation; None if it is not known."""
    plan = op.parent_op()
    if not isinstance(plan, PlanOp):
        return None
    try:
        return load_cluster(plan.cluster.data)
    except ClusterError:
        return None


def integers(low: int, high: int) -> ArrayAttr[IntegerAttr]:
    """A closed range, as a pool's record holds it."""
    return ArrayAttr([IntegerAttr(low, 64), IntegerAttr(high, 64)])


OPS: tuple[type[CheckedOp], ...] = (PlanOp, PoolOp, PlaceOp)
