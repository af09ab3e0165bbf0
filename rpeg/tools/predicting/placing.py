"""A pipeline as it would compile under a plan: simplified, placed on a cluster, and in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from rpeg.cost.profiles.setting import Cores, checkers_of
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.rsched import SequenceOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import DiagnosticsError, has_errors
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.values import symbol_text
from rpeg.passes.base import pipelines
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.tools.compiling import SIMPLIFY, one_pipeline, pass_problems, passes_of
from rpeg.tools.console import Failure, Source, report
from rpeg.tools.predicting.arguments import Target
from rpeg.tools.predicting.plans import choose


@dataclass(frozen=True)
class Placed:
    """One pipeline at L1, where every stage has a pool of a cluster."""

    source: Source
    module: ModuleOp
    cluster: str
    plan: str
    checkers: Mapping[str, Cores]
    """The stages that pools of cores run, by name."""

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
    module, _, sources = one_pipeline(source, target.sets)
    try:
        return placed(module, sources, source, target)
    except DiagnosticsError as error:
        report(error.diagnostics, source)
        raise


def placed(module: ModuleOp, sources: Sources, source: Source, target: Target) -> Placed:
    """A verified module of one pipeline, which is then the placed one.

    Raises:
        Failure: there is no such cluster or plan.
        DiagnosticsError: the plan does not go with the pipeline or the cluster.
    """
    chosen = choose(next(pipelines(module)), target)
    if chosen.plan is None:
        raise Failure(f'{source.path} has no plan for "{chosen.cluster}": name one with --plan')
    problems = diagnose(module, sources, names=False)
    if has_errors(problems):
        raise DiagnosticsError(problems)
    name, checkers = chosen.plan.title, checkers_of(chosen.plan)
    _run(module, passes_of(SIMPLIFY), source)
    _run(module, [RpegAnnotateParallelismPass(plan=name)], source)
    _run(module, passes_of("rpeg-fuse-inference"), source)
    return Placed(source, module, chosen.cluster, name, checkers)


def _run(module: ModuleOp, passes: Sequence[ModulePass], source: Source) -> None:
    problems = pass_problems(module, passes, source)
    if problems:
        raise DiagnosticsError(problems)
