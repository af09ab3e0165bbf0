"""The whole of it: from the texts of pipelines to a verdict on each layout of each."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from xdsl.dialects.builtin import ModuleOp

from rpeg.divisibility import Counts
from rpeg.frontend import load
from rpeg.interp import InterpreterError, World
from rpeg.ir.ops.declare import ModelOp, PipelineOp
from rpeg.passes.base import tidied
from rpeg.runtime.errors import RuntimeFailure
from rpeg.runtime.models.shape import read_shape
from rpeg.runtime.recordings.recording import Recording, save
from rpeg.tools.ahead import Ahead
from rpeg.tools.compiling import Choice, compile_text, one_pipeline, run_ahead
from rpeg.tools.console import Failure, Source, report
from rpeg.tools.output import refuse_folder
from rpeg.tools.verifying.harden import Folders, Hardening, Size
from rpeg.tools.verifying.judge import Verdict, judge
from rpeg.tools.verifying.layouts import (
    ONE_PROCESS,
    Chosen,
    check_names,
    chosen,
    refuse_useless,
    rows_divisor,
)
from rpeg.tools.verifying.models import ModelFolders
from rpeg.tools.verifying.placing import Placing
from rpeg.tools.verifying.record import Recorded, record
from rpeg.tools.verifying.replay import Prepare, ProgramFailed, Replaying
from rpeg.tools.verifying.show import Report
from rpeg.tools.verifying.written import written

ONE_STEP = (
    "one step proves little: no step after it runs with the weights and the optimizer's state that "
    "it leaves; --steps 2 or more compares those too"
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Request:
    """What is to be verified."""

    source: Source
    sets: Sequence[str] = ()
    layouts: Sequence[str] | None = None
    """Names; None: the usual ones that fit."""
    steps: int = 5
    seed: int = 0
    model: Path | None = None
    """A folder to take for every model."""
    allow_python: bool = False
    level: Literal["L1", "L3"] = "L3"
    """What is executed of a layout: its program, or in one process its L1."""
    ahead: Ahead | None = None
    """How far generation runs ahead; None: as the text says."""


def verify(request: Request, say: Say, prepare: Prepare | None = None) -> Report:
    """Verifies a pipeline; `say` hears of the progress, `prepare` sees each package before launch.

    Raises Failure for what can't be hardened, interpreted or compiled.
    """
    return verify_all([request], say, prepare=prepare)[0]


def verify_all(
    requests: Sequence[Request],
    say: Say,
    *,
    keep: Path | None = None,
    prepare: Prepare | None = None,
) -> list[Report]:
    """Verifies pipelines under the same layouts: one that can't be made of some of them is refused
    there by name. All are hardened before any runs. `keep` is a new folder to leave everything in.

    Raises Failure for what can't be hardened, interpreted or compiled, and for layouts that can be
    made of none.
    """
    check_names(requests[0].layouts or ())
    with _workplace(keep) as folder:
        works = [
            _Verification(request, folder if len(requests) == 1 else folder / str(k), say, prepare)
            for k, request in enumerate(requests, 1)
        ]
        try:
            hardened = [work.harden() for work in works]
            refuse_useless([each.chosen for each in hardened])
            return [work.run(each) for work, each in zip(works, hardened, strict=True)]
        except (RuntimeFailure, InterpreterError) as error:
            raise Failure(str(error)) from None


@contextmanager
def _workplace(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with TemporaryDirectory(prefix="rpeg-verify-") as folder:
            yield Path(folder)
        return
    refuse_folder(keep, [])  # it must be empty
    if keep.exists() and any(keep.iterdir()):
        raise Failure(f"{keep} is not empty: name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


@dataclass(frozen=True)
class _Hardened:
    pipeline: str
    source: Source
    chosen: Chosen
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Verification:
    """Of one pipeline, in a folder of its own."""

    request: Request
    folder: Path
    say: Say
    prepare: Prepare | None

    def run(self, hardened: _Hardened) -> Report:
        """Records it, replays it under each layout and compares."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "pipeline.rpeg").write_text(hardened.source.text, encoding="utf-8")
        recorded = self._record(hardened)
        notes = (*hardened.notes, *recorded.notes)
        for note in notes:
            self.say(f"note: {note}")
        execute, chosen = self._executor(hardened, recorded), hardened.chosen
        verdicts = [self._judge(execute, name, recorded) for name in chosen.layouts]
        verdicts += [Verdict(name, refused=why) for name, why in chosen.refused.items()]
        return Report(hardened.pipeline, tuple(verdicts), notes)

    def _executor(self, hardened: _Hardened, recorded: Recorded) -> Callable[[str], Recording]:
        """What executes a layout on the recorded trajectories."""
        asked, source = self.request, hardened.source
        if asked.level == "L1":
            module, title = self._load(source), hardened.pipeline
            return Placing(module, title, source.folder, asked.seed, recorded.recording).run
        return Replaying(source, self.folder, asked.seed, asked.allow_python, self.prepare).run

    def harden(self) -> _Hardened:
        """The pipeline that is recorded, and the layouts that can be made of it."""
        asked = self.request
        choice = Choice(
            asked.sets, layout=ONE_PROCESS, allow_python=asked.allow_python, ahead=asked.ahead
        )
        compile_text(asked.source, choice)  # refuses with places in the user's own text
        module, pipeline, sources = one_pipeline(asked.source, asked.sets)
        run_ahead(module, sources, asked.source, asked.ahead)
        models = ModelFolders(asked.source, self.folder / "models", asked.seed, asked.model)
        found = chosen(asked.layouts, _counts(pipeline, models))
        size = Size(steps=asked.steps)
        scoring = partial(models.perturbed, scores=True)
        folders = Folders(models.of_source, models.perturbed, scoring, models.of_data)
        with tidied(module):
            hardening = Hardening(pipeline, folders, size, rows_divisor(found.layouts))
            hardening.run()
        path = asked.source.path.with_suffix(".hardened.rpeg")
        text, without = written(module, sources, path.name)
        notes = (
            *hardening.notes,
            *without,
            *found.notes,
            *([ONE_STEP] if asked.steps == 1 else []),
        )
        return _Hardened(pipeline.title, Source(path, text), found, notes)

    def _record(self, hardened: _Hardened) -> Recorded:
        source, title = hardened.source, hardened.pipeline
        module = self._load(source)
        if self.request.allow_python:
            os.environ["RPEG_ALLOW_PYTHON"] = "1"
        start = time.monotonic()
        recorded = record(module, title, World(source.folder), self.request.seed)
        save(recorded.recording, self.folder / "recording")
        count, seconds = len(recorded.recording.steps), time.monotonic() - start
        steps = f"{count} step{'s' * (count > 1)}"
        self.say(f"recorded {steps} by the interpreter ({seconds:.0f} s)")
        return recorded

    def _load(self, source: Source) -> ModuleOp:
        loaded = load(source.text, source.name)
        report([d for d in loaded.diagnostics if d.severity == "error"], source)
        assert loaded.module is not None
        return loaded.module

    def _judge(
        self, execute: Callable[[str], Recording], layout: str, recorded: Recorded
    ) -> Verdict:
        start = time.monotonic()
        try:
            verdict = judge(layout, recorded, execute(layout))
        except ProgramFailed as failure:
            verdict = Verdict(layout, f"its program failed: {failure}")
        verdict = replace(verdict, seconds=time.monotonic() - start)
        self.say(f"{layout}: {verdict.word} ({verdict.seconds:.0f} s)")
        return verdict


def _counts(pipeline: PipelineOp, models: ModelFolders) -> dict[str, Counts]:
    """What layouts split, of each model; one that starts as another has its counts."""
    found: dict[str, Counts] = {}
    for op in pipeline.body.block.ops:
        if isinstance(op, ModelOp) and op.initial is not None:
            found[op.title] = found[op.initial]
        elif isinstance(op, ModelOp) and op.uri is not None:
            s = read_shape(models.of_source(op.uri))
            found[op.title] = Counts(s.layers, s.heads, s.kv_heads, s.ffn)
    return found
