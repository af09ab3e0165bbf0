"""Verification that reports every broken rule at its place, where xDSL's stops at the first."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from rpeg.ir.base import CheckedOp, RpegOp
from rpeg.ir.rules.channels import channel_violations
from rpeg.ir.rules.order import order_violations
from rpeg.ir.rules.plan import plan_violations
from rpeg.ir.rules.program import program_violations
from rpeg.ir.rules.ranks import rank_violations
from rpeg.ir.rules.references import reference_violations
from rpeg.ir.rules.schedule import deadlock_violations
from rpeg.ir.rules.stage_names import stage_name_violations
from rpeg.ir.rules.structure import shape_violations
from rpeg.ir.rules.versions import version_violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.rules.walks import Walk
from rpeg.ir.text.diagnostics import Diagnostic, has_errors, in_order
from rpeg.ir.text.sources import Sources


def diagnose(module: Operation, sources: Sources, names: bool = True) -> list[Diagnostic]:
    """Every problem of a module; warnings and notes only where no error may have caused them.

    `names` asks whether what is used is declared, and each stage called something else: the front
    end has its own messages for that.
    """
    problems = _problems(module, names)
    found = [sources.violation(op, broken) for op, broken in problems]
    unique = list(dict.fromkeys(in_order(found)))
    return [d for d in unique if d.severity == "error"] if has_errors(unique) else unique


def _problems(module: Operation, names: bool) -> Iterator[tuple[Operation, Violation]]:
    walk = Walk(module)
    misshapen = [(op, v) for op in walk.ops for v in shape_violations(op)]
    if misshapen:
        yield from misshapen
        return
    disorder = list(order_violations(module))
    yield from disorder
    if any(v.code == "zero-distance-cycle" for _, v in disorder):
        return  # rules follow values to where they come from, which a cycle never ends
    for op in walk.ops:
        yield from ((op, v) for v in _op_problems(op))
    yield from plan_violations(walk)
    yield from rank_violations(walk)
    yield from deadlock_violations(module)
    yield from program_violations(walk)
    yield from channel_violations(walk)
    yield from version_violations(walk)
    if names:
        yield from stage_name_violations(walk)
        yield from reference_violations(walk)


def _op_problems(op: Operation) -> list[Violation]:
    found: list[Violation] = []
    try:
        if isinstance(op, CheckedOp):
            found += op.violations()
            CheckedOp.SOUND = op
        if not any(v.severity == "error" for v in found):
            _verify_rest(op)
    except VerifyException as error:
        found.append(Violation("malformed-operation", " ".join(str(error).split())))
    finally:
        CheckedOp.SOUND = None
    return found


def _verify_rest(op: Operation) -> None:
    """What xDSL checks besides the rules. Raises VerifyException.

    The shape and the rules of an operation of L0 ask what its definition does; traits are left, and
    what may end a block.
    """
    if isinstance(op, RpegOp) and op.next_op is not None and not op.successors:
        for trait in op.get_irdl_definition().traits:
            trait.verify(op)
    else:
        op.verify(verify_nested_ops=False)
