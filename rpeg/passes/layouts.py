"""What this version compiles of a plan: one data-parallel layout, engines inside the trainer."""

from collections.abc import Iterator, Mapping, Sequence

from xdsl.ir import Attribute, Operation

from rpeg.ir.attributes import RecordAttr
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.movement import CLAUSES, clause_of, pool_of
from rpeg.ir.records import CLAUSES as ROWS
from rpeg.ir.settings import Python, python_value

Problem = tuple[Operation, str]
WIDTHS = ("tp", "pp", "cp", "ep", "vpp", "sp", "zero")
"""Settings of a layout that stay at their defaults."""


def the_layout(stages: Sequence[RpegOp]) -> Mapping[str, Attribute] | None:
    """The settings of the first stage's layout; without the order of axes, which is not used."""
    found = next((c for c in (clause_of(op, "par") for op in stages) if c is not None), None)
    if found is None:
        return None
    return {name: value for name, value in found.settings.items() if name != "order"}


def clause_problems(stages: Sequence[RpegOp]) -> Iterator[Problem]:
    """Clauses that check and print, but do not compile yet."""
    layouts: list[RecordAttr] = []
    for op in stages:
        for kind in CLAUSES:
            clause = clause_of(op, kind)
            if clause is None or (kind == "par" and clause in layouts):
                continue
            if kind == "par":
                layouts.append(clause)
            why = _refusal(op, clause, first=len(layouts) == 1)
            if why is not None:
                yield op, why


def _refusal(op: RpegOp, clause: RecordAttr, first: bool) -> str | None:
    match clause.kind:
        case "par" if not _data_parallel(clause):
            return f"{shown(clause)}: this version compiles data-parallel layouts, par(dp=...)"
        case "par" if not first:
            return f"{shown(clause)}: this version compiles one layout a pipeline"
        case "engine" if _values(clause) != {"name": "embedded"}:
            return f"{shown(clause)} does not compile yet: write engine(name=embedded)"
        case "publish" if _values(clause) != {"to": pool_of(op), "mode": "reshard"}:
            return f"{shown(clause)} does not compile yet: write mode=reshard, to the same pool"
        case "resid" if _values(clause):
            return f"{shown(clause)} does not compile yet: leave it out"
        case "stream" | "fuse":
            return f"{shown(clause)} does not compile yet: leave it out"
        case _:
            return None


def _data_parallel(par: RecordAttr) -> bool:
    return not any(name in WIDTHS for name in _values(par))


def _values(clause: RecordAttr) -> dict[str, Python]:
    """The settings that differ from their defaults."""
    defaults = ROWS[clause.kind].settings
    held = {
        n: v for n, v in clause.settings.items() if n not in defaults or v != defaults[n].default
    }
    return {name: python_value(value) for name, value in held.items()}


def shown(clause: RecordAttr) -> str:
    """A clause as a plan writes it, without defaults."""
    return f"{clause.kind}({', '.join(f'{n}={_text(v)}' for n, v in _values(clause).items())})"


def _text(value: Python) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
