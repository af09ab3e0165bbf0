"""The shape of operations: how many operands, results and blocks, which properties, inside of what.

Rules about meaning walk through a module freely, so they are asked only where every shape is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation
from xdsl.irdl import OpDef, OptPropertyDef, VerificationContext
from xdsl.irdl.operations import VarIRConstruct, irdl_op_verify_regions, verify_variadic_size
from xdsl.utils.exceptions import VerifyException

from rpeg.ir.base import CheckedOp, RpegOp
from rpeg.ir.declared import enclosing
from rpeg.ir.definitions import Held
from rpeg.ir.rules.violations import Violation


def shape_violations(op: Operation) -> Iterator[Violation]:
    """What is wrong with the shape of one operation."""
    around = op.parent_op()
    if not isinstance(op, RpegOp) and around is not None and enclosing(around, "rpeg.step"):
        yield Violation("misplaced-operation", f"{op.name} does not belong into a step")
    if not isinstance(op, CheckedOp):
        return
    definition = op.get_irdl_definition()
    for message in (*_counts(op, definition), *_properties(op, definition)):
        yield Violation("malformed-operation", f"{op.name}: {message}")
    if op.WITHIN and enclosing(op, op.WITHIN) is None:
        yield Violation("misplaced-operation", f"{op.name} belongs inside {op.WITHIN}")


def _counts(op: CheckedOp, definition: OpDef) -> Iterator[str]:
    try:
        verify_variadic_size(op, definition, VarIRConstruct.OPERAND)
        verify_variadic_size(op, definition, VarIRConstruct.RESULT)
        irdl_op_verify_regions(op, definition, VerificationContext())
    except VerifyException as error:
        message = str(error)
        yield message[:1].lower() + message[1:]
        return
    if isinstance(op, RpegOp):
        for name, flow in op.operand_flows().items():
            if flow.at_least_one and not getattr(op, name):
                yield f"it needs {flow.pattern.noun} as `{name}`"


def _properties(op: CheckedOp, definition: OpDef) -> Iterator[str]:
    """Properties that are not settings: settings have messages of their own."""
    for name, wanted in definition.properties.items():
        held = op.properties.get(name)
        if isinstance(wanted.constr, Held):
            continue
        if held is None and not isinstance(wanted, OptPropertyDef):
            yield f"`{name}` is missing"
        elif held is not None:
            try:
                wanted.constr.verify(held, VerificationContext())
            except VerifyException:
                yield f"`{name}` can't be {held}"
