"""Pools of more cores than the nodes of their cluster have."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.ir.clusters import ClusterError, load_cluster
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.rules.violations import setting
from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.ir.text.sources import Sources
from rpeg.ir.vocabulary.settings import python_value


def core_problems(
    pipeline: PipelineOp, sources: Sources, file: str, plan: str | None = None
) -> Iterator[Diagnostic]:
    """Warnings at pools with more processes a node than cores: of one plan, or of all."""
    for op in pipeline.ops_of(PlanOp):
        if plan not in (None, op.title):
            continue
        try:
            cluster = load_cluster(op.cluster.data)
        except ClusterError:  # an error of its own
            continue
        for pool in op.pools:
            per_node = python_value(pool.shape.settings.get("per_node"))
            if not isinstance(per_node, int) or per_node <= cluster.cores_per_node:
                continue
            has = f"a node of {cluster.name} has {cluster.cores_per_node}"
            text = f"per_node={per_node}: {has} cores, which processes share and wait for"
            yield Diagnostic(sources.position(pool, setting("per_node")), text, "warning", file)
