"""From a text to a verified L3 module: what `compile` and `run` share."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import PassPipeline

from rpeg.frontend import Loaded, load
from rpeg.frontend.overrides import parse_overrides
from rpeg.ir.diagnostics import Diagnostic, DiagnosticsError, Position
from rpeg.ir.ops.declare import DataOp, DeclareOp, ModelOp, PipelineOp
from rpeg.ir.parse import parse_module
from rpeg.ir.rrt import ProgramOp
from rpeg.ir.sources import Sources, position_of
from rpeg.ir.verify import diagnose
from rpeg.ir.violations import setting
from rpeg.lowering.package import programs
from rpeg.passes import PASSES
from rpeg.passes.base import PassRefused, pipelines
from rpeg.planner.default import default_processes
from rpeg.tools.console import Failure, Reported, Source, refuse, report

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


def overrides_of(sets: Sequence[str], source: Source) -> Loaded:
    """The text with `--set` applied. Raises Reported."""
    try:
        overrides = parse_overrides(list(sets))
    except DiagnosticsError as error:
        lines = "\n".join(sets)
        report(error.diagnostics, Source(source.path.__class__("--set"), lines))
        raise Reported from None
    return load(source.text, source.name, overrides, source.pipeline)


def one_pipeline(source: Source, sets: Sequence[str]) -> tuple[ModuleOp, PipelineOp, Sources]:
    """The verified module of a file's one pipeline, or of the one that was chosen."""
    loaded = overrides_of(sets, source)
    report(loaded.diagnostics, source)
    assert loaded.module is not None
    found = list(pipelines(loaded.module))
    if len(found) != 1:
        names = " ".join(f"{source.path}:{p.title}" for p in found)
        raise Failure(f"{source.path} holds {len(found)} pipelines; choose one: {names}", 2)
    return loaded.module, found[0], loaded.sources


def compile_text(source: Source, choice: Choice, gpus: int = 0) -> ModuleOp:
    """The verified L3 module of a `.rpeg` text. Raises Failure."""
    module, pipeline, sources = one_pipeline(source, choice.sets)
    problems = list(source_problems(pipeline, sources, source, choice))
    if problems:
        refuse(source, problems)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if choice.plan is not None:
        layout = f'plan="{choice.plan}"'
    else:
        count = choice.processes or default_processes(pipeline, gpus, cores or 1)
        layout = f"dp={count}"
    run_passes(module, f"{SIMPLIFY},rpeg-annotate-parallelism{{{layout}}},{LOWER}", source)
    return module


def run_passes(module: ModuleOp, spec: str, source: Source) -> None:
    """Runs passes, each checked by the verifiers. Raises Failure."""
    context = Context()
    for step in PassPipeline.parse_spec(PASSES, spec).passes:
        try:
            step.apply(context, module)
        except PassRefused as refusal:
            refuse(source, [(position_of(op), text) for op, text in refusal.problems])
        broken = [d for d in diagnose(module, Sources(source.name)) if d.severity == "error"]
        if broken:
            report(broken, source)


def source_problems(
    pipeline: PipelineOp, sources: Sources, source: Source, choice: Choice
) -> list[tuple[Position, str]]:
    """User code that is not allowed, and files that are not here."""
    found: list[tuple[Position, str]] = []
    for op in pipeline.body.block.ops:
        if not isinstance(op, DeclareOp) or op.uri is None:
            continue
        at = sources.position(op, setting("source"))
        if op.uri.startswith("python:") and not choice.allow_python:
            found.append((at, "user code runs only with --allow-python: read it first"))
        elif choice.needs_files and ":" not in op.uri and isinstance(op, DataOp | ModelOp):
            text = _missing(source, op.uri)
            found += [(at, text)] if text else []
    return found


def _missing(source: Source, uri: str) -> str | None:
    from rpeg.resources import resource

    path = source.folder / uri
    if path.exists():
        return None
    shipped = resource("models")
    if uri.startswith("models/"):
        if (shipped / uri.removeprefix("models/")).exists():
            return None
        names = ", ".join(sorted(f"models/{p.name}" for p in shipped.iterdir() if p.is_dir()))
        return f"there is no folder {path}, and no shipped model of this name; shipped: {names}"
    return f"there is no {path}: sources without a scheme are paths relative to the pipeline's file"


def load_programs(source: Source) -> ModuleOp:
    """The verified L3 module of an `.mlir` text. Raises Failure."""
    module, sources, problems = parse_module(source.text, source.name)
    report(problems, source)
    if module is None:
        raise Reported
    report([d for d in diagnose(module, sources) if d.severity == "error"], source)
    if not programs(module):
        kinds = {op.name for op in module.ops if not isinstance(op, ProgramOp)}
        held = f"; it holds {', '.join(sorted(kinds))}" if kinds else ""
        text = f"compile takes .rpeg text, or .mlir with rrt.program{held}"
        report([Diagnostic(Position(1, 1), text, "error", source.name)], source)
    return module
