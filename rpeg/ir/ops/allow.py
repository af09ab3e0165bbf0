"""What a text permits: passes that change what is trained, and how far."""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation
from xdsl.irdl import irdl_op_definition, prop_def

from rpeg.ir.base import CheckedOp
from rpeg.ir.declared import pipeline_of
from rpeg.ir.rules.settings import known_record_violations
from rpeg.ir.rules.staleness import old_spans_violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.records import ALLOW
from rpeg.ir.vocabulary.settings import Python, python_value


@irdl_op_definition
class AllowOp(CheckedOp):
    """A structural pass that the user permits: `rpeg.allow #rpeg.record<bounded_async, {...}>`."""

    name = "rpeg.allow"
    WITHIN: ClassVar[str] = "rpeg.pipeline"
    permission = prop_def(RecordAttr)
    assembly_format = "qualified($permission) attr-dict"

    def rules(self) -> Iterator[Violation]:
        yield from known_record_violations(self.permission, ALLOW, "a permission")
        if self.permission.kind not in ALLOW:
            return
        words = {
            k: v.data for k, v in self.permission.settings.items() if isinstance(v, StringAttr)
        }
        yield from old_spans_violations(words)


def allowed_windows(op: Operation) -> list[Mapping[str, Python]]:
    """The settings of each `allow bounded_async` line around an operation."""
    pipeline = pipeline_of(op)
    others = pipeline.regions[0].block.ops if pipeline is not None else ()
    records = [other.permission for other in others if isinstance(other, AllowOp)]
    windows = [record.settings for record in records if record.kind == "bounded_async"]
    table = ALLOW["bounded_async"].settings
    return [
        {k: python_value(v) for k, v in window.items() if k in table and table[k].kind.accepts(v)}
        for window in windows
    ]


def allowed_staleness(op: Operation) -> int | None:
    """How old weights may be by the `allow bounded_async` lines around an operation."""
    found = (window.get("staleness") for window in allowed_windows(op))
    return max((held for held in found if isinstance(held, int) and held >= 0), default=None)


OPS: tuple[type[CheckedOp], ...] = (AllowOp,)
