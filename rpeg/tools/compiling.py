"""From a text to a verified L3 module: what `compile` and `run` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass, PassPipeline

from rpeg.frontend import Loaded, load
from rpeg.frontend.overrides import parse_overrides
from rpeg.ir.diagnostics import Diagnostic, DiagnosticsError, Position, Severity
from rpeg.ir.ops.declare import DataOp, DeclareOp, ModelOp, PipelineOp
from rpeg.ir.parse import parse_module
from rpeg.ir.sources import Sources, position_of
from rpeg.ir.verify import diagnose
from rpeg.ir.violations import setting
from rpeg.lowering.package import programs
from rpeg.passes import PASSES
from rpeg.passes.base import PassRefused, pipelines
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.planner.default import default_processes
from rpeg.resources import resource
from rpeg.tools.console import USAGE, Failure, Reported, Source, refuse, report

SIMPLIFY = "rpeg-canonicalize,rpeg-eliminate-old-logprob,rpeg-eliminate-reference"
LOWER = "rpeg-schedule,rpeg-lower-to-programs"


@dataclass(frozen=True)
class Choice:
    """How a pipeline is to run: what the command line says of it."""

    sets: Sequence[str] = ()
    plan: str | None = None
    processes: int | None = None
    allow_python: bool = False
    needs_files: bool = False
    """Its relative sources must be here: it runs here."""


def load_with(sets: Sequence[str], source: Source) -> Loaded:
    """The text with `--set` applied. Raises Reported."""
    try:
        overrides = parse_overrides(sets)
    except DiagnosticsError as error:
        report(error.diagnostics, Source(Path("--set"), "\n".join(sets)))
        raise Reported from None
    return load(source.text, source.name, overrides, source.pipeline)


def one_pipeline(source: Source, sets: Sequence[str]) -> tuple[ModuleOp, PipelineOp, Sources]:
    """The verified module of a file's one pipeline, or of the one that was chosen."""
    loaded = load_with(sets, source)
    report(loaded.diagnostics, source)
    assert loaded.module is not None
    found = list(pipelines(loaded.module))
    if len(found) != 1:
        names = " ".join(f"{source.path}:{p.title}" for p in found)
        raise Failure(f"{source.path} holds {len(found)} pipelines; choose one: {names}", USAGE)
    return loaded.module, found[0], loaded.sources


def no_gpus() -> int:
    """For a program that may run elsewhere: as many processes as this machine has cores."""
    return 0


def compile_text(source: Source, choice: Choice, gpus: Callable[[], int] = no_gpus) -> ModuleOp:
    """The verified L3 module of a `.rpeg` text; `gpus` is asked if it matters. Raises Failure."""
    module, pipeline, sources = one_pipeline(source, choice.sets)
    report(source_problems(pipeline, sources, source, choice), source)
    if choice.plan is not None:
        layout = RpegAnnotateParallelismPass(plan=choice.plan)
    else:
        count = choice.processes or default_processes(pipeline, gpus(), _cores())
        layout = RpegAnnotateParallelismPass(dp=count)
    run_passes(module, [*_passes(SIMPLIFY), layout, *_passes(LOWER)], source)
    return module


def _cores() -> int:
    """Processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _passes(spec: str) -> Sequence[ModulePass]:
    return PassPipeline.parse_spec(PASSES, spec).passes


def run_passes(module: ModuleOp, passes: Sequence[ModulePass], source: Source) -> None:
    """Runs passes, each checked by the verifiers. Raises Failure."""
    context = Context()
    for each in passes:
        try:
            each.apply(context, module)
        except PassRefused as refusal:
            refuse(source, [(position_of(op), text) for op, text in refusal.problems])
        broken = [d for d in diagnose(module, Sources(source.name)) if d.severity == "error"]
        if broken:
            report(broken, source)


def source_problems(
    pipeline: PipelineOp, sources: Sources, source: Source, choice: Choice
) -> Iterator[Diagnostic]:
    """User code that is not allowed; files that are not here, which matters where it runs here."""
    missing_is: Severity = "error" if choice.needs_files else "warning"
    for op in pipeline.body.block.ops:
        if not isinstance(op, DeclareOp) or op.uri is None:
            continue
        at = sources.position(op, setting("source"))
        if op.uri.startswith("python:") and not choice.allow_python:
            text = "user code runs only with --allow-python: read it first"
            yield Diagnostic(at, text, "error", source.name)
        elif ":" not in op.uri and isinstance(op, DataOp | ModelOp):
            missing = _missing(source, op.uri)
            if missing is not None:
                yield Diagnostic(at, missing, missing_is, source.name)


def _missing(source: Source, uri: str) -> str | None:
    """Why a path is not found, and what would be; None if it is there or shipped with rpeg."""
    path = source.folder / uri
    shipped = resource("models")
    if path.exists() or (uri.startswith("models/") and (shipped.parent / uri).exists()):
        return None
    if uri.startswith("models/"):
        names = ", ".join(sorted(f"models/{p.name}" for p in shipped.iterdir() if p.is_dir()))
        return f"there is no folder {path}, and no shipped model of this name; shipped: {names}"
    return f"there is no {path}: sources without a scheme are paths relative to the pipeline's file"


def load_programs(source: Source) -> ModuleOp:
    """The verified L3 module of an `.mlir` text. Raises Failure."""
    module, sources, problems = parse_module(source.text, source.name)
    report(problems, source)
    assert module is not None
    report([d for d in diagnose(module, sources) if d.severity == "error"], source)
    count = len(programs(module))
    if count != 1:
        kinds = ", ".join(sorted({op.name for op in module.ops})) or "nothing"
        held = f"{count} programs" if count else kinds
        text = f"compile takes .rpeg text, or .mlir with one rrt.program; this holds {held}"
        report([Diagnostic(Position(1, 1), text, "error", source.name)], source)
    return module
