"""Which of a file's plans a command means: the one it names, or the file's for the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr

from rpeg.cost.hardware import NoSpeedsError
from rpeg.cost.platform import load_platform
from rpeg.ir.clusters import ClusterError, is_sized
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.rules.violations import hint
from rpeg.tools.console import USAGE, Failure
from rpeg.tools.predicting.arguments import Target


@dataclass(frozen=True)
class Chosen:
    """Where a pipeline is to run."""

    cluster: str
    """Without a size where only a plan would need one and there is no plan."""
    plan: PlanOp | None
    """None: the file has no plan for the cluster."""
    moved: bool = False
    """Whether the plan is another cluster's."""


def choose(pipeline: PipelineOp, target: Target) -> Chosen:
    """The plan that is named or else is for the cluster, and a cluster that there is.

    A plan that is named for another cluster than its own is put there: its pools and layouts have
    to be checked anew. Raises Failure.
    """
    plans = pipeline.ops_of(PlanOp)
    plan = _named(plans, target.plan) if target.plan is not None else _for(plans, target.cluster)
    cluster = _cluster_of(plan, target)
    if plan is None:
        return Chosen(cluster, plan)
    moved = plan.cluster.data != cluster
    plan.properties["cluster"] = StringAttr(cluster)
    return Chosen(cluster, plan, moved)


def _named(plans: Sequence[PlanOp], name: str) -> PlanOp:
    found = next((plan for plan in plans if plan.title == name), None)
    if found is None:
        titles = [plan.title for plan in plans]
        other = hint(name, titles) or f"; the file has: {', '.join(titles) or 'none'}"
        raise Failure(f"there is no plan `{name}`{other}", USAGE)
    return found


def _for(plans: Sequence[PlanOp], cluster: str | None) -> PlanOp | None:
    """The only plan that is for a cluster, or the only one at all where none is named; a name
    without a size stands for any size of it.
    """
    if cluster is None and len(plans) == 1:
        return plans[0]
    if cluster is None:
        sizes = ", ".join(f"{plan.title} (on {plan.cluster.data})" for plan in plans)
        way = f"--plan NAME takes one of the file's: {sizes}; or name" if plans else "name"
        raise Failure(f"where is it to run? {way} a cluster, such as --cluster alps-1", USAGE)
    there = [plan for plan in plans if plan.cluster.data == cluster]
    there = there or [plan for plan in plans if _sized(plan.cluster.data, cluster)]
    if len(there) > 1:
        ways = " or ".join(f"--plan {plan.title}" for plan in there)
        raise Failure(f'the file has {len(there)} plans for "{cluster}": write {ways}', USAGE)
    return there[0] if there else None


def _sized(cluster: str, name: str) -> bool:
    base, _, size = cluster.rpartition("-")
    return base == name and size.isdecimal()


def _cluster_of(plan: PlanOp | None, target: Target) -> str:
    """The cluster that the command line or the plan names. Raises Failure if there is no such
    cluster.
    """
    own = plan.cluster.data if plan is not None else None
    if target.cluster is None or (own is not None and _sized(own, target.cluster)):
        assert own is not None
        return own
    if not is_sized(target.cluster):
        if plan is None:
            return target.cluster
        text = f"`{plan.title}` needs a cluster with a size"
        raise Failure(f"{text}: write --cluster {target.cluster}-N, of N nodes, or --gpus N", USAGE)
    try:
        load_platform(target.cluster)
    except NoSpeedsError:  # whoever prices it says so
        return target.cluster
    except ClusterError as error:
        raise Failure(f"--cluster: {error}", USAGE) from None
    return target.cluster
