"""Which rows a stage goes over."""

from __future__ import annotations

import math
from statistics import NormalDist

from xdsl.ir import Operation, SSAValue

from rpeg.cost.profiles.layouts import layout_of
from rpeg.cost.profiles.setting import Setting
from rpeg.cost.profiles.workload import Rows
from rpeg.ir.base import RpegOp
from rpeg.ir.ops.effects import EvalLossOp, EvalOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.types.values import DataType
from rpeg.ir.vocabulary.settings import python_value


def rows_at_once(op: RpegOp, setting: Setting) -> Rows:
    """The rows that a stage has before it at once; an update those of a minibatch."""
    match op:
        case UpdateOp():
            rows = trained_rows(op, setting)
            return rows.share(rows.number / op.int_of("minibatches"))
        case GenerateOp():
            return setting.workload.rows(op.trajectories)
        case EvalOp() | EvalLossOp():
            return held_out(op, setting)
        case _:
            return setting.workload.rows(op.operands[1])


def held_out(op: EvalOp | EvalLossOp, setting: Setting) -> Rows:
    """What is made of the rows of the data set that is measured, or read of it."""
    limit = python_value(op.properties.get("limit"))
    samples = isinstance(op, EvalOp)
    most = float(op.int_of("max_tokens")) if samples else None
    data = op.operands[1].type
    assert isinstance(data, DataType)
    number = setting.workload.size(data.symbol, limit if isinstance(limit, int) else None)
    times = op.int_of("n") if samples else 1
    return setting.workload.of_data(data, number * times, most)


def trained_rows(op: UpdateOp, setting: Setting) -> Rows:
    """The rows that an update trains on: those of its first loss."""
    loss: SSAValue = op.losses[0]
    assert isinstance(loss.owner, Operation)
    return setting.workload.rows(loss.owner.operands[0])


def computed_rows(op: UpdateOp, setting: Setting) -> Rows:
    """Those of them that it computes: groups without advantages are left out, of some replicas more
    than of others. All have as many here as the one that has most.
    """
    losses = [loss.owner for loss in op.losses if isinstance(loss.owner, Operation)]
    rows, share = trained_rows(op, setting), setting.workload.told_apart(losses)
    groups = rows.number / rows.a_prompt / op.int_of("minibatches")
    return rows.groups(_of_the_fullest(share, groups, layout_of(op).dp))


def _of_the_fullest(share: float, groups: float, replicas: int) -> float:
    """The share of its groups that the replica computes which has most to compute, on average.

    Of n normal variables the largest is about the quantile (n - 3/8) / (n + 1/4) (Blom, 1958).
    """
    deviation = math.sqrt(share * (1.0 - share) * replicas / groups)
    largest = NormalDist().inv_cdf((replicas - 0.375) / (replicas + 0.25))
    return min(share + max(largest, 0.0) * deviation, 1.0)
