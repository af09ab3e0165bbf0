"""Sources of a pipeline as this machine has them: files that are missing, models that do not fit
their layout.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from xdsl.dialects.builtin import StringAttr

from rpeg.cost.architecture import Architecture
from rpeg.cost.lengths import LengthsError, listed
from rpeg.cost.profiles.shapes import published
from rpeg.divisibility import Counts, misfits
from rpeg.frontend import load
from rpeg.ir.base import RpegOp
from rpeg.ir.layout import width_of
from rpeg.ir.near import near
from rpeg.ir.ops.declare import DataOp, DeclareOp, ExpectOp, ModelOp, PipelineOp
from rpeg.ir.ops.movement import clause_of, model_of
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.rules.violations import setting
from rpeg.ir.stages import stages
from rpeg.ir.text.diagnostics import Diagnostic, Position, Severity
from rpeg.ir.text.locations import plan_line
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.attributes import RecordAttr
from rpeg.passes.base import pipelines
from rpeg.passes.layouts import layout_of, moves_rows
from rpeg.resources import found, resource
from rpeg.rundir.exports import newest_export
from rpeg.rundir.failures import RuntimeFailure
from rpeg.tools.console import Source
from rpeg.tools.data_files import unusable

SPLITTING = ("tp", "pp", "vpp", "ep")
"""The widths that split a model."""


def source_problems(
    pipeline: PipelineOp,
    sources: Sources,
    source: Source,
    *,
    allow_python: bool,
    needs_files: bool,
    runs: Sequence[Path] = (),
) -> Iterator[Diagnostic]:
    """User code that is not allowed; tasks that reasoning-gym lacks, where it is installed; files
    that are not here or can't be used, which matters where it runs here; exports that none of
    `runs` made.
    """
    missing_is: Severity = "error" if needs_files else "warning"
    for op in pipeline.body.block.ops:
        if not isinstance(op, DeclareOp) or op.uri is None:
            continue
        at = sources.position(op, setting("source"))
        if op.uri.startswith("python:") and not allow_python:
            text = "user code runs only with --allow-python: read it first"
            yield Diagnostic(at, text, "error", source.name)
        elif op.uri.startswith("gym:"):
            unknown = _unknown_task(op.uri.removeprefix("gym:"))
            if unknown is not None:
                yield Diagnostic(at, unknown, "error", source.name)
        elif op.uri.startswith("run:") and runs:
            unmade = _not_exported(runs, op.uri)
            if unmade is not None:
                yield Diagnostic(at, unmade, "error", source.name)
        elif ":" not in op.uri and isinstance(op, DataOp | ModelOp):
            missing = _missing(source, op.uri)
            if missing is None and isinstance(op, ModelOp):
                missing = _no_model(path_of(source, op.uri))
            elif missing is None and isinstance(op, DataOp):
                missing = unusable(pipeline, op, path_of(source, op.uri))
            if missing is not None:
                yield Diagnostic(at, missing, missing_is, source.name)


def _unknown_task(task: str) -> str | None:
    """Why reasoning-gym has no such task; None if it has, or is not installed here."""
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError:
        return None
    if task in DATASETS:
        return None
    close = [f"`gym:{name}`" for name in near(task, DATASETS, most=3)]
    return f"reasoning-gym has no task `{task}`" + (f"; near: {', '.join(close)}" if close else "")


def _not_exported(runs: Sequence[Path], uri: str) -> str | None:
    """Why a `run:` source has no model, None if it has one."""
    try:
        newest_export(runs, uri)
    except RuntimeFailure as error:
        return str(error)
    return None


def _no_model(folder: Path) -> str | None:
    """Why a folder is not a model in Hugging Face's form; None if it looks like one."""
    lacking = [n for n in ("config.json", "tokenizer.json") if not (folder / n).is_file()]
    if lacking:
        return f"{folder} is not a model folder: it has no {' and no '.join(lacking)}"
    try:
        held = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        return f"{folder / 'config.json'} is not a model's configuration: it is not JSON: {error}"
    if not isinstance(held, dict) or "model_type" not in held:
        return f"{folder / 'config.json'} is not a model's configuration: it has no `model_type`"
    return None


def _missing(source: Source, uri: str) -> str | None:
    """Why a path is not found, and what would be; None if it is there or shipped with rpeg."""
    path = path_of(source, uri)
    if path.exists():
        return None
    if uri.startswith("models/"):
        folders = (p.name for p in resource("models").iterdir() if p.is_dir())
        names = ", ".join(f"models/{name}" for name in sorted(folders))
        return f"there is no folder {path}, and no shipped model of this name; shipped: {names}"
    return f"there is no {path}: sources without a scheme are paths relative to the pipeline's file"


def length_problems(pipeline: PipelineOp, sources: Sources, source: Source) -> Iterator[Diagnostic]:
    """Files of `expect` lines that are not here, or list no lengths."""
    for op in pipeline.body.block.ops:
        file = op.distribution.settings.get("file") if isinstance(op, ExpectOp) else None
        if not isinstance(file, StringAttr):
            continue
        try:
            listed(source.folder / file.data)
        except LengthsError as error:
            at = sources.position(op, setting("file"))
            yield Diagnostic(at, str(error), "error", source.name)


def path_of(source: Source, uri: str) -> Path:
    """The path that a source without a scheme means, whether or not it is there."""
    return found(source.folder, uri)


def fit_problems(
    pipeline: PipelineOp, sources: Sources, source: Source, runs: Sequence[Path] = ()
) -> Iterator[Diagnostic]:
    """Models that their layouts can't split, as far as their shapes are known here: by folder, by
    name on Hugging Face, or by what a run in one of `runs` exported.
    """
    models = _models(pipeline)
    known = {name: _counts(_source_of(op, models), source, runs) for name, op in models.items()}
    known_here = {name: counts for name, counts in known.items() if counts is not None}
    for op, line, text in layout_misfits(pipeline, known_here):
        at = line or sources.position(op, setting("source"))
        yield Diagnostic(at, text, "error", source.name)


def layout_misfits(
    pipeline: PipelineOp, known: Mapping[str, Counts]
) -> Iterator[tuple[ModelOp, Position | None, str]]:
    """The models that their layouts can't split, of those whose counts are known by name; where the
    plan's line is that says the layout, if one does.
    """
    placed = list(stages(pipeline).values())
    for op in pipeline.ops_of(ModelOp):
        if op.title in known:
            texts: dict[str, Position | None] = {}
            for layout in _layouts(op.title, placed):
                widths = {a: width_of(layout, a) for a in SPLITTING}
                for text in misfits(known[op.title], **widths):
                    texts.setdefault(text, _line_of(layout, op.title, placed))
            yield from ((op, line, f"`{op.title}`: {text}") for text, line in texts.items())


def _layouts(model: str, placed: Sequence[RpegOp]) -> Iterator[RecordAttr]:
    """That of a model, and those of the stages that it passes through."""
    passed = (op for op in placed if model_of(op) == model and moves_rows(op))
    found = (layout_of(model, placed), *(clause_of(op, "par") for op in passed))
    return (layout for layout in found if layout is not None)


def _line_of(layout: RecordAttr, model: str, placed: Sequence[RpegOp]) -> Position | None:
    """The plan's line that says a layout: one of the model's own stages, if that is so."""
    saying = [op for op in placed if clause_of(op, "par") == layout]
    saying.sort(key=lambda op: (model_of(op) != model, not isinstance(op, UpdateOp)))
    at = plan_line(saying[0]) if saying else None
    return Position(at.line.data, at.column.data) if at is not None else None


def _models(pipeline: PipelineOp) -> dict[str, ModelOp]:
    return {op.title: op for op in pipeline.ops_of(ModelOp)}


def _source_of(op: ModelOp, models: Mapping[str, ModelOp]) -> str | None:
    """Where a model's weights, or those of the model that it starts from, come from."""
    return op.uri if op.initial is None else models[op.initial].uri


def _counts(uri: str | None, source: Source, runs: Sequence[Path]) -> Counts | None:
    """The shape of a source; None where it is not known here, but at launch."""
    if uri is None:
        return None
    if uri.startswith("run:"):
        return _exported(uri, runs) or _trained_here(uri, source)
    if uri.startswith("hf:"):
        name = uri.removeprefix("hf:")
        shape = published(name)
        return _of_folder(source.folder / name) or (counts_of(shape) if shape else None)
    return _of_folder(path_of(source, uri)) if ":" not in uri else None


def _exported(uri: str, runs: Sequence[Path]) -> Counts | None:
    try:
        return _of_folder(newest_export(runs or (Path("runs"),), uri))
    except RuntimeFailure:
        return None


def _trained_here(uri: str, source: Source) -> Counts | None:
    """Of a model that another pipeline of the same file is to export."""
    pipeline, _, name = uri.removeprefix("run:").partition("/")
    module = load(source.text, source.name, pipeline=pipeline).module
    for made in pipelines(module) if module is not None else ():
        models = _models(made)
        first = _source_of(models[name], models) if name in models else None
        if first is not None and not first.startswith("run:"):
            return _counts(first, source, ())
    return None


def counts_of(shape: Architecture) -> Counts:
    """The counts of a model that layouts split."""
    experts = shape.experts.number if shape.experts is not None else 0
    return Counts(shape.layers, shape.heads, shape.kv_heads, shape.ffn, experts)


def _of_folder(folder: Path) -> Counts | None:
    """What a model's configuration says; None where there is none."""
    try:
        return Counts.of_config(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
