"""A pipeline as it would compile under a plan: simplified, placed on a cluster, and in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from rpeg.cost.hardware import NoSpeedsError
from rpeg.cost.platform import Platform, load_platform
from rpeg.cost.profiles.setting import Cores, Inputs, checkers_of
from rpeg.cost.profiles.shapes import ShapeError
from rpeg.ir.clusters import ClusterError, growing, is_sized, load_cluster
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.rsched import SequenceOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError, has_errors
from rpeg.ir.text.sources import Sources, position_of
from rpeg.ir.types.flow import symbol_text
from rpeg.passes.base import PassRefused, pipelines
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.planner.default import NAME as DEFAULT
from rpeg.planner.default import default_processes
from rpeg.planner.smallest import NAME as SMALLEST
from rpeg.planner.smallest import Smallest, place_smallest
from rpeg.tools.compiling import (
    SIMPLIFY,
    load_with,
    only_pipeline,
    pass_problems,
    passes_of,
    remarks,
    widened,
    windows_kept,
)
from rpeg.tools.console import USAGE, Failure, Source, report
from rpeg.tools.messages import unrepeated
from rpeg.tools.predicting.arguments import Target
from rpeg.tools.predicting.plans import Chosen, choose


class NoSpeeds(Failure):
    """The cluster's file doesn't tell how fast its parts are."""


@dataclass(frozen=True)
class Placed:
    """One pipeline at L1, where every stage has a pool of a cluster."""

    source: Source
    module: ModuleOp
    cluster: str
    plan: str
    checkers: Mapping[str, Cores]
    """The stages that pools of cores run, by name."""
    notes: tuple[str, ...] = ()
    """Notes on the plan, for the user."""

    @property
    def pipeline(self) -> PipelineOp:
        """The module's only one."""
        return next(pipelines(self.module))

    def scheduled(self) -> PipelineOp:
        """The same at L2. Raises DiagnosticsError if tasks wait for each other."""
        module = self.module.clone()
        _run(module, passes_of("rpeg-schedule"), self.source)
        return next(pipelines(module))

    def orders(self) -> dict[str, tuple[str, ...]]:
        """The tasks of each pool in order. Raises DiagnosticsError if some wait for each other."""
        found = (op for op in self.scheduled().walk() if isinstance(op, SequenceOp))
        return {symbol_text(op.pool): tuple(op.labels) for op in found}


def place(source: Source, target: Target) -> Placed:
    """The one pipeline of a file, under the plan that `target` means. Raises Failure."""
    loaded = load_with(target.sets, source)
    said = remarks(loaded, target.plan)
    if has_errors(said):
        report(said, source)
    module, _, sources = only_pipeline(loaded, source)
    said += windows_kept(module, source, target.ahead)
    try:
        found = placed(module, sources, source, target)
    except DiagnosticsError as error:
        report([*unrepeated(said, error.diagnostics), *error.diagnostics], source)
        raise
    report(said, source)
    return found


def placed(module: ModuleOp, sources: Sources, source: Source, target: Target) -> Placed:
    """A verified module of one pipeline, which is then the placed one.

    Raises:
        Failure: there is no such cluster or plan.
        DiagnosticsError: the plan does not go with the pipeline or the cluster, or generation may
            not run so far ahead.
    """
    chosen = choose(next(pipelines(module)), target)
    problems = diagnose(module, sources, names=False)
    if not has_errors(problems):
        problems = widened(module, sources, source, target.ahead)
    if has_errors(problems):
        raise DiagnosticsError(problems)
    there = _by_plan if chosen.plan is not None else _without_plan
    found = there(module, source, target, chosen)
    _run(module, passes_of("rpeg-fuse-inference"), source)
    return found


def _by_plan(module: ModuleOp, source: Source, target: Target, chosen: Chosen) -> Placed:
    assert chosen.plan is not None, "the caller has looked"
    name, checkers = chosen.plan.title, checkers_of(chosen.plan)
    idle = tuple(_idle(chosen.plan, chosen.cluster)) if chosen.moved else ()
    _on_gpus(chosen.plan, chosen.cluster, source)
    _run(module, passes_of(SIMPLIFY), source)
    _run(module, [RpegAnnotateParallelismPass(plan=name)], source)
    return Placed(source, module, chosen.cluster, name, checkers, idle)


def _idle(plan: PlanOp, name: str) -> Iterator[str]:
    """What a plan leaves out of a cluster that it was not written for."""
    cluster = load_cluster(name)
    used = {gpu for pool in plan.pools for gpu in pool.gpus(cluster) or ()}
    if used and len(used) < cluster.gpus:
        none = f"{cluster.gpus - len(used)} of the {cluster.gpus} GPUs of {name} are in no pool"
        yield f"{none} of plan `{plan.title}`: they do nothing"


def _on_gpus(plan: PlanOp, cluster: str, source: Source) -> None:
    """Refuses layouts over cores where there are GPUs, as which they would be priced."""
    if not load_cluster(cluster).gpus:
        return
    cores = {pool.title for pool in plan.pools if pool.shape.kind == "cores"}
    for line in plan.places:
        if line.pool_name in cores and line.clause("par") is not None:
            text = (
                f"`{line.pool_name}` is a pool of cores, and {cluster} has GPUs: models run on "
                "cores only where there are none: write nodes(a..b) or gpus(a..b)"
            )
            raise refused(line, text, source)


def _without_plan(module: ModuleOp, source: Source, target: Target, chosen: Chosen) -> Placed:
    """The smallest tp x pp that fits, which is noted; and the smallest cluster, where the user
    names none of a size.
    """
    _run(module, passes_of(SIMPLIFY), source)
    inputs = Inputs(source.folder, target.architectures)
    cluster, notes = chosen.cluster, list[str]()
    if not is_sized(cluster):
        cluster = _fitting(module, source, inputs, cluster)
        ways = f"--cluster {chosen.cluster}-N or --gpus N"
        text = f'"{chosen.cluster}" has no size: {cluster} is the smallest that fits'
        notes.append(f"{text}, with twice the nodes each time; name another with {ways}")
    try:
        found = _smallest(module, source, inputs, cluster)
    except NoSpeeds:  # whoever prices it says so
        return _data_parallel(module, source, cluster)
    return Placed(source, module, cluster, SMALLEST, {}, (*notes, found.note(cluster)))


def _data_parallel(module: ModuleOp, source: Source, cluster: str) -> Placed:
    """What `rpeg run` takes without a plan: order and staleness need no speeds."""
    there = load_cluster(cluster)
    size = default_processes(next(pipelines(module)), there.gpus, there.cores)
    _run(module, [RpegAnnotateParallelismPass(dp=size)], source)
    note = f'the file has no plan for "{cluster}": this is for dp={size} on one pool'
    return Placed(source, module, cluster, DEFAULT, {}, (note,))


def _fitting(module: ModuleOp, source: Source, inputs: Inputs, name: str) -> str:
    """The first size of a cluster that the pipeline fits. Raises Failure where none does."""
    tried = name
    for tried in growing(name):
        found = _smallest(module.clone(), source, inputs, tried)
        if found.fits:
            return tried
        if found.idle:
            break
    text = f"no size of {name} up to {tried} fits: name it to see what lacks memory"
    raise Failure(f"--cluster {name}: {text}, with --cluster {tried}", USAGE)


def _smallest(module: ModuleOp, source: Source, inputs: Inputs, cluster: str) -> Smallest:
    try:
        return place_smallest(module, platform_of(cluster), inputs)
    except ShapeError as error:
        raise refused(error.op, error.message, source) from error
    except PassRefused as refusal:
        problem = refusal.problems[0]
        raise refused(problem.op, problem.message, source) from refusal


def platform_of(cluster: str) -> Platform:
    """A cluster and its speeds. Raises NoSpeeds, or Failure for a file that isn't whole."""
    try:
        return load_platform(cluster)
    except NoSpeedsError as error:
        raise NoSpeeds(str(error)) from None
    except ClusterError as error:
        raise Failure(str(error)) from None


def refused(op: Operation, message: str, source: Source) -> DiagnosticsError:
    """An error at the place of an operation."""
    return DiagnosticsError([Diagnostic(position_of(op), message, "error", source.name)])


def _run(module: ModuleOp, passes: Sequence[ModulePass], source: Source) -> None:
    problems = pass_problems(module, passes, source)
    if problems:
        raise DiagnosticsError(problems)
