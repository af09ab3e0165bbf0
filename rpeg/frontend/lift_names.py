"""Names of values in lifted text: of declared things, versions, and what a step computes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from xdsl.ir import Block, SSAValue

from rpeg.frontend import ast
from rpeg.frontend.grammar import keywords
from rpeg.frontend.recovery import REGIONS
from rpeg.ir.base import RpegOp
from rpeg.ir.declared import declarations, symbol_name
from rpeg.ir.ops.declare import ExpectOp, PipelineOp
from rpeg.ir.ops.fuse import FuseOp
from rpeg.ir.ops.plan import PoolOp
from rpeg.ir.ops.sampling import GetOp, StaleOp
from rpeg.ir.ops.step import state_key
from rpeg.ir.stages import stages
from rpeg.ir.text.naming import step_index
from rpeg.ir.types.buffer import BufferType
from rpeg.ir.types.values import (
    NEXT,
    CursorType,
    DataType,
    StateType,
    ToolType,
    VerifierType,
    WeightsType,
)

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]")


def state_of(value: SSAValue) -> tuple[str, str] | None:
    """What a value is a version of, if it is one: frozen weights and old versions are not."""
    return None if isinstance(value.owner, GetOp | StaleOp) else state_key(value.type)


class Names:
    """A legal name for every value of a pipeline, each given once. What leaves a fused pass has the
    name of what it is inside.
    """

    def __init__(self, pipeline: PipelineOp) -> None:
        self.renamed: dict[str, str] = {}
        """Names of values that could not stay as they were."""
        self._names: dict[SSAValue, str] = {}
        self._taken = {*keywords(), *REGIONS, *_fixed(pipeline)}
        for name, stage in stages(pipeline).items():  # first: plans call them by these names
            if name and state_key(stage.results[0].type) is None:
                self._give(stage.results[0], name)
        self._expected = _numbered(self._targets(pipeline))
        for op in pipeline.walk():
            if isinstance(op, RpegOp) and not isinstance(op, GetOp | FuseOp):
                for result in op.results:
                    self._result(result, op)

    def ref(self, value: SSAValue) -> ast.Ref:
        """How a text refers to a value."""
        if isinstance(value.owner, FuseOp):
            return self.ref(value.owner.inner(value))
        held = value.type
        match held:
            case WeightsType():
                return ast.Ref(held.owner, _version(value, held))
            case StateType() if not _frozen(value):
                lag = 0 if isinstance(value.owner, Block) else NEXT
                return ast.Ref(held.symbol, _index(value, lag))
            case CursorType() | DataType() | VerifierType() | ToolType() | StateType():
                return ast.Ref(held.symbol)
            case BufferType():
                return ast.Ref(held.title)
            case _:
                return ast.Ref(self._names[value])

    def _targets(self, pipeline: PipelineOp) -> list[str]:
        """What expectations name, apart from stages and declarations."""
        targets = (op.target.data for op in pipeline.walk() if isinstance(op, ExpectOp))
        return [name for name in targets if name not in self._taken]

    def _result(self, result: SSAValue, op: RpegOp) -> None:
        if result not in self._names and state_key(result.type) is None:
            hint = result.name_hint or ""
            self._give(result, self._expected.pop(hint, hint) or op.SURFACE or "value")

    def _give(self, value: SSAValue, wanted: str) -> None:
        legal = _ILLEGAL.sub("_", wanted)
        legal = f"_{legal}" if legal[:1].isdigit() else legal
        name, number = legal, 2
        while name in self._taken:
            name, number = f"{legal}_{number}", number + 1
        self._taken.add(name)
        self._names[value] = name
        if name != wanted:
            self.renamed[wanted] = name


def _numbered(names: Iterable[str]) -> dict[str, str]:
    """Names such as `acc_2`, by the hint that xDSL keeps of them: `acc`."""
    pairs = ((SSAValue.extract_valid_name(name), name) for name in names)
    return {hint: name for hint, name in pairs if hint != name}


def _fixed(pipeline: PipelineOp) -> Iterable[str]:
    """Names that others refer to by text: declarations and pools."""
    yield from (name for d in declarations(pipeline) if (name := symbol_name(d)) is not None)
    yield from (op.title for op in pipeline.walk() if isinstance(op, PoolOp))


def _frozen(value: SSAValue) -> bool:
    return isinstance(value.owner, GetOp)


def _version(value: SSAValue, held: WeightsType) -> ast.Index | ast.Window | None:
    if _frozen(value):
        return None
    low, high = held.lag
    if low == high:
        return _index(value, low)
    return ast.Window(_index(value, high), _index(value, low))


def _index(value: SSAValue, lag: int) -> ast.Index:
    """`i`, `i+1`, `i-2` for a lag of 0, -1, 2."""
    base = step_index(value)
    if lag == 0:
        return ast.Index(base)
    return ast.Index(base, "+" if lag == NEXT else "-", ast.Literal("int", str(abs(lag))))
