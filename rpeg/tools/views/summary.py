"""A step at a glance: its states, its stages, and how large each value is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from rpeg.frontend.written import number
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.declare import DeclareOp, PipelineOp
from rpeg.ir.ops.movement import clause_of, pool_of
from rpeg.ir.stages import stages
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.values import TrajectoriesType, WeightsType
from rpeg.ir.vocabulary.patterns import describe
from rpeg.ir.vocabulary.settings import python_value
from rpeg.tools.views.graph import GraphBuilder, graphs, made_by, word
from rpeg.tools.views.sizes import shown_bytes, size_of

Row = tuple[str, ...]

NOTES = """\
Bytes are those of a step, packed: 4 a token id, 1 a mask, 4 a number (docs/rpeg-opt.md).
lag: how many steps old the weights may be, or those that sampled the trajectories.
"""


def summary(module: ModuleOp, sources: Sources) -> str:
    """The text. Raises DiagnosticsError for programs, which have no step."""
    graphs(module, sources)
    parts = [_pipeline(op) for op in module.ops if isinstance(op, PipelineOp)]
    return "\n".join(parts) + f"\n{NOTES}"


def _pipeline(op: PipelineOp) -> str:
    builder = GraphBuilder(op)
    head = f"pipeline {op.title}: {builder.step.steps} steps\n"
    declared = [_declaration(d) for d in op.body.block.ops if isinstance(d, DeclareOp)]
    placed = [_stage(name, stage) for name, stage in stages(op).items()]
    values = list(_values(builder))
    return "\n".join(
        (
            head,
            _table(("declared", "kind", "source", "changes"), declared),
            _table(("stage", "operation", "pool", "runs as"), placed),
            _table(("value", "is", "shape", "lag", "at most", "expected", "made by"), values),
        )
    )


def _declaration(op: DeclareOp) -> Row:
    source = op.uri or (f"{op.initial}@0" if op.initial is not None else "-")
    trained = "every step" if "optim" in op.settings() else "-"
    return op.title, f"{op.KIND} ({op.form_name})", source, trained


def _stage(name: str, op: RpegOp) -> Row:
    layout = clause_of(op, "par")
    return name, op.word, pool_of(op) or "-", _layout(layout) if layout is not None else "-"


def _layout(layout: RecordAttr) -> str:
    """The settings of a layout that split or change something: `dp=2 tp=2 sp`."""
    held = {k: python_value(v) for k, v in layout.settings.items()}
    shown = ((k, v) for k, v in held.items() if v is True or v not in (1, 0, "none"))
    words = (k if v is True else f"{k}={_shown(v)}" for k, v in shown)
    return " ".join(words) or "one process"


def _shown(value: object) -> str:
    match value:
        case float():
            return number(value)
        case tuple():
            return ",".join(map(str, value))
        case _:
            return str(value)


def _values(builder: GraphBuilder) -> Iterator[Row]:
    for op in builder.ids:
        for result in made_by(op):
            size = size_of(result, builder.pipeline)
            if size is not None:
                most = shown_bytes(size.most)
                if size.most is None:
                    most = f"{size.each} B a {size.element}"
                yield (
                    builder.value(result),
                    describe(result.type),
                    size.shape,
                    _lag(result),
                    most,
                    shown_bytes(size.expected),
                    word(op),
                )


def _lag(value: SSAValue) -> str:
    if not isinstance(value.type, WeightsType | TrajectoriesType):
        return "-"
    low, high = value.type.lag
    return str(low) if low == high else f"{low}..{high}"


def _table(head: Row, rows: Sequence[Row]) -> str:
    """Columns as wide as their widest cell."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = (_line(row, widths) for row in (head, *rows))
    return "".join(f"{line}\n" for line in lines)


def _line(row: Row, widths: Sequence[int]) -> str:
    cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
    return "  " + "  ".join(cells).rstrip()
