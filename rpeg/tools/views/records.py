"""The graph of a step as JSON; docs/rpeg-opt.md describes the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import DeclareOp, ExpectOp, PipelineOp
from rpeg.ir.ops.movement import CLAUSES, clause_of, pool_of
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.stages import STAGE, stage_name
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.values import OptimizerType, TrajectoriesType, WeightsType
from rpeg.ir.vocabulary.settings import python_value
from rpeg.tools.views.graph import GraphBuilder, graphs, made_by
from rpeg.tools.views.sizes import size_of

SCHEMA = "rpeg-graph/1"
"""The version of the schema; a change that readers would notice increases it."""
Record = dict[str, object]


def records(module: ModuleOp, sources: Sources) -> str:
    """The JSON text. Raises DiagnosticsError for programs, which have no step."""
    graphs(module, sources)
    pipelines = [_pipeline(op) for op in module.ops if isinstance(op, PipelineOp)]
    return json.dumps({"schema": SCHEMA, "pipelines": pipelines}, indent=2) + "\n"


def _pipeline(op: PipelineOp) -> Record:
    builder, parts = GraphBuilder(op), list(op.body.block.ops)
    graph = builder.graph()
    inside = {node.id: node.inside for node in graph.nodes}
    return {
        "name": graph.name,
        "index": graph.index,
        "steps": graph.steps,
        "declarations": [_declaration(p) for p in parts if isinstance(p, DeclareOp)],
        "operations": [_operation(o, inside[i], builder) for o, i in builder.ids.items()],
        "edges": [
            {"from": e.source, "to": e.target, "value": e.value, "crosses_steps": e.crosses}
            for e in graph.edges
        ],
        "expect": [_expect(p) for p in parts if isinstance(p, ExpectOp)],
        "plans": [_plan(p) for p in parts if isinstance(p, PlanOp)],
    }


def _declaration(op: DeclareOp) -> Record:
    return {
        "name": op.title,
        "kind": op.KIND,
        "form": op.form_name,
        "source": op.uri,
        "starts_from": op.initial,
        "settings": _plain(op.settings()),
    }


def _operation(op: Operation, inside: str | None, builder: GraphBuilder) -> Record:
    assert isinstance(op, RpegOp)
    held = {n: op.properties[n] for n in op.setting_table() if n in op.properties}
    placed = op.PLACED or STAGE in op.attributes
    clauses = ((kind, clause_of(op, kind)) for kind in CLAUSES)
    return {
        "id": builder.ids[op],
        "name": op.word,
        "op": op.name,
        "inside": inside,
        "stage": stage_name(op) if placed else None,
        "pool": pool_of(op),
        "runs": {kind: python_value(clause) for kind, clause in clauses if clause is not None},
        "settings": _plain(held),
        "results": [_value(r, builder) for r in made_by(op)],
    }


def _value(value: SSAValue, builder: GraphBuilder) -> Record:
    size = size_of(value, builder.pipeline)
    lag = value.type.lag if isinstance(value.type, WeightsType | TrajectoriesType) else None
    return {
        "name": None if isinstance(value.type, OptimizerType) else builder.value(value),
        "type": str(value.type),
        "lag": list(lag) if lag is not None else None,
        "bytes_at_most": size.most if size is not None else None,
        "bytes_expected": size.expected if size is not None else None,
    }


def _expect(op: ExpectOp) -> Record:
    return {"of": op.target.data, "distribution": python_value(op.distribution)}


def _plan(op: PlanOp) -> Record:
    return {
        "name": op.title,
        "cluster": op.cluster.data,
        "pools": [{"name": p.title, "shape": python_value(p.shape)} for p in op.pools],
        "places": [
            {
                "stage": p.title,
                "pool": p.pool_name,
                "runs": {c.kind: python_value(c) for c in p.clauses},
            }
            for p in op.places
        ],
    }


def _plain(settings: Mapping[str, Attribute]) -> Record:
    return {name: python_value(held) for name, held in settings.items()}
