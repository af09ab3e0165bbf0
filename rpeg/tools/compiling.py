"""From a text to a verified L3 module: what `compile` and `run` share."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.passes import ModulePass, PassPipeline

from rpeg.frontend import Loaded, digest, load
from rpeg.frontend.lift import lift
from rpeg.frontend.overrides import parse_overrides
from rpeg.ir.clusters import cores_here
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.plan import PlanOp
from rpeg.ir.ops.sampling import GenerateOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError, Position, has_errors
from rpeg.ir.text.parse import parse_module
from rpeg.ir.text.sources import Sources, position_of
from rpeg.ir.types.attributes import SOURCE_HASH
from rpeg.lowering.package import programs
from rpeg.lowering.python import pipeline_name
from rpeg.passes import PASSES
from rpeg.passes.base import PassRefused, pipelines
from rpeg.passes.layout_names import LayoutNameError, parse_layout
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.passes.rpeg_bounded_async import RpegBoundedAsyncPass, wider_window
from rpeg.passes.rpeg_lower_to_programs import RpegLowerToProgramsPass
from rpeg.planner.default import default_processes
from rpeg.tools.ahead import Ahead
from rpeg.tools.console import USAGE, Failure, Reported, Source, report
from rpeg.tools.cores import core_problems
from rpeg.tools.sources import fit_problems, length_problems, source_problems

SIMPLIFY = ",".join(
    (
        "rpeg-canonicalize",
        "rpeg-eliminate-old-logprob",
        "rpeg-eliminate-reference",
        "rpeg-eliminate-dead-stages",
    )
)
LOWER = "rpeg-fuse-inference,rpeg-schedule"


@dataclass(frozen=True)
class Choice:
    """How a pipeline is to run: what the command line says of it."""

    sets: Sequence[str] = ()
    plan: str | None = None
    processes: int | None = None
    layout: str | None = None
    """A layout's name, such as `tp2sp`; instead of a plan or a number of processes."""
    allow_python: bool = False
    needs_files: bool = False
    """Its relative sources must be here: it runs here."""
    runs: Sequence[Path] = ()
    """Folders of runs that may hold the models of `run:` sources; empty: they are not looked up
    yet.
    """
    ahead: Ahead | None = None
    """How far generation runs ahead; None: as the text says."""
    order: str = "index"
    """In which order samples make up batches; see `RpegLowerToProgramsPass`."""


def load_with(sets: Sequence[str], source: Source) -> Loaded:
    """The text with `--set` applied. Raises Reported."""
    try:
        overrides = parse_overrides(sets)
    except DiagnosticsError as error:
        report(error.diagnostics, Source(Path("--set"), "\n".join(sets)))
        raise Reported from None
    return load(source.text, source.name, overrides, source.pipeline)


def one_pipeline(
    source: Source, sets: Sequence[str], plan: str | None = None
) -> tuple[ModuleOp, PipelineOp, Sources]:
    """The verified module of a file's one pipeline, or of the one that was chosen. Of remarks about
    plans only those about `plan` are shown; by default all.
    """
    loaded = load_with(sets, source)
    report(remarks(loaded, plan), source)
    return only_pipeline(loaded, source)


def remarks(loaded: Loaded, plan: str | None) -> list[Diagnostic]:
    """What is to be shown of a text: errors, and of what is said about plans only that on `plan`;
    by default all.
    """
    elsewhere = set(_lines_of_others(loaded, plan)) if plan is not None else set[Position]()
    return [d for d in loaded.diagnostics if d.severity == "error" or d.at not in elsewhere]


def only_pipeline(loaded: Loaded, source: Source) -> tuple[ModuleOp, PipelineOp, Sources]:
    """The one pipeline of a text without errors. Raises Failure where it has more."""
    assert loaded.module is not None
    found = list(pipelines(loaded.module))
    if len(found) != 1:
        names = " ".join(shlex.quote(f"{source.path}:{p.title}") for p in found)
        raise Failure(f"{source.path} holds {len(found)} pipelines; choose one: {names}", USAGE)
    return loaded.module, found[0], loaded.sources


def _lines_of_others(loaded: Loaded, plan: str) -> Iterator[Position]:
    """Where the plans but this one are written."""
    for op in loaded.module.walk() if loaded.module is not None else ():
        if isinstance(op, PlanOp) and op.title != plan:
            yield from (loaded.sources.position(part) for part in op.walk())


NO_PLAN = ""
"""The name of no plan."""


def no_gpus() -> int:
    """For a program that may run elsewhere, this machine's GPUs do not count, only its cores."""
    return 0


@dataclass(frozen=True)
class Checked:
    """A text without errors, whose sources are here; not placed yet."""

    module: ModuleOp
    pipeline: PipelineOp
    sources: Sources

    def copied(self) -> Checked:
        """The same, for passes to rewrite."""
        module = self.module.clone()
        return Checked(module, next(pipelines(module)), self.sources.of(self.module, module))

    @property
    def source_sha256(self) -> str:
        """The hash by which a run's folder identifies the text."""
        held = self.module.attributes[SOURCE_HASH]
        assert isinstance(held, StringAttr)
        return held.data


def compile_text(source: Source, choice: Choice) -> ModuleOp:
    """The verified L3 module of a `.rpeg` text. Raises Failure."""
    return placed(check_text(source, choice), source, choice)


def check_text(source: Source, choice: Choice) -> Checked:
    """What can be said of a text and its sources before anything is compiled. Raises Failure."""
    module, pipeline, sources = one_pipeline(source, choice.sets, choice.plan or NO_PLAN)
    run_ahead(module, sources, source, choice.ahead)
    checked = Checked(module, pipeline, sources)
    problems = [*_of_sources(checked, source, choice), *length_problems(pipeline, sources, source)]
    if choice.plan is not None and not choice.needs_files:  # `rpeg run` tells how many processes
        problems += core_problems(pipeline, sources, source.name, choice.plan)
    if has_errors(problems):  # what else stops it is told at once
        problems += lowered(checked.copied(), source, choice, _placing(pipeline, choice, no_gpus))
    report(problems, source)
    return checked


def _of_sources(checked: Checked, source: Source, choice: Choice) -> Iterator[Diagnostic]:
    return source_problems(
        checked.pipeline,
        checked.sources,
        source,
        allow_python=choice.allow_python,
        needs_files=choice.needs_files,
        runs=choice.runs,
    )


def placed(
    checked: Checked, source: Source, choice: Choice, gpus: Callable[[], int] = no_gpus
) -> ModuleOp:
    """The verified L3 module, on the chosen layout; `gpus` is asked if it matters. Raises
    Failure.
    """
    placing = _placing(checked.pipeline, choice, gpus)
    report(lowered(checked, source, choice, placing), source)
    return checked.module


def lowered(
    checked: Checked, source: Source, choice: Choice, placing: RpegAnnotateParallelismPass
) -> list[Diagnostic]:
    """Takes the module to L3 where `placing` puts it; or else everything that does not compile.

    What `rpeg compile` and `rpeg run` refuse, and `rpeg check` remarks on, comes from here alone.
    """
    module, whole = checked.module, checked.copied()
    problems = pass_problems(module, [*passes_of(SIMPLIFY), placing], source)
    if problems:  # with what is refused of the pipeline wherever it runs
        anywhere = RpegAnnotateParallelismPass()
        rest = lowered(whole, source, choice, anywhere) if placing != anywhere else []
        return [*problems, *(problem for problem in rest if problem not in problems)]
    problems = list(fit_problems(checked.pipeline, checked.sources, source, choice.runs))
    lowering = RpegLowerToProgramsPass(order=choice.order)
    return problems + pass_problems(module, [*passes_of(LOWER), lowering], source)


def run_ahead(module: ModuleOp, sources: Sources, source: Source, ahead: Ahead | None) -> None:
    """`widened`, or raises Failure where that is refused; notes what stays ahead anyway."""
    report(windows_kept(module, source, ahead), source)
    report(widened(module, sources, source, ahead), source)


def windows_kept(module: ModuleOp, source: Source, ahead: Ahead | None) -> Iterator[Diagnostic]:
    """Notes on the windows of a text that staleness 0 leaves: it changes nothing, so that what the
    text lets run ahead still does.
    """
    if ahead is None or ahead.staleness:
        return
    for op in module.walk():
        text = wider_window(op, 0) if isinstance(op, GenerateOp) else None
        if text is not None:
            yield Diagnostic(position_of(op), text, "note", source.name)


def widened(
    module: ModuleOp, sources: Sources, source: Source, ahead: Ahead | None
) -> list[Diagnostic]:
    """Widens the windows of a module, whose identity is then that of the text that says so: what is
    refused.
    """
    if ahead is None:
        return []
    widening = RpegBoundedAsyncPass(ahead.staleness, correction=ahead.correction)
    problems = pass_problems(module, [widening], source)
    if not problems and widening.statistics.counts:
        module.attributes[SOURCE_HASH] = StringAttr(digest(lift(module, sources)))
    return problems


def _placing(
    pipeline: PipelineOp, choice: Choice, gpus: Callable[[], int]
) -> RpegAnnotateParallelismPass:
    """The pass that takes the chosen layout, or the one for this machine. Raises Failure."""
    if choice.plan is not None:
        return RpegAnnotateParallelismPass(plan=choice.plan)
    if choice.layout is not None:
        try:
            settings: dict[str, Any] = parse_layout(choice.layout)
        except LayoutNameError as error:
            raise Failure(str(error), USAGE) from None
        return RpegAnnotateParallelismPass(**settings)
    count = choice.processes or default_processes(pipeline, gpus(), cores_here())
    return RpegAnnotateParallelismPass(dp=count)


def passes_of(spec: str) -> Sequence[ModulePass]:
    """The passes of a comma-separated text."""
    return PassPipeline.parse_spec(PASSES, spec).passes


def run_passes(module: ModuleOp, passes: Sequence[ModulePass], source: Source) -> None:
    """Runs passes, each checked by the verifiers. Raises Failure."""
    report(pass_problems(module, passes, source), source)


def pass_problems(
    module: ModuleOp, passes: Sequence[ModulePass], source: Source
) -> list[Diagnostic]:
    """Runs passes up to the first that is refused or breaks a rule: what is wrong then."""
    context = Context()
    for each in passes:
        try:
            each.apply(context, module)
        except PassRefused as refusal:
            return [Diagnostic(p.at, p.message, "error", source.name) for p in refusal.problems]
        broken = [d for d in diagnose(module, Sources(source.name)) if d.severity == "error"]
        if broken:
            return broken
    return []


def load_programs(source: Source) -> ModuleOp:
    """The verified L3 module of an `.mlir` text. Raises Failure."""
    module, sources, problems = parse_module(source.text, source.name)
    report(problems, source)
    assert module is not None
    report([d for d in diagnose(module, sources) if d.severity == "error"], source)
    names = {pipeline_name(program) for program in programs(module)}
    if len(names) != 1:
        kinds = ", ".join(sorted({op.name for op in module.ops})) or "nothing"
        held = f"programs of {' and '.join(sorted(names))}" if names else kinds
        text = (
            "compile takes .rpeg text, or .mlir with the rrt.program of a pipeline, one for each "
            f"process group; this holds {held}"
        )
        report([Diagnostic(Position(1, 1), text, "error", source.name)], source)
    return module
