"""The whole of it: from a pipeline's text to a verdict on each layout."""

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

from rpeg.fit import Counts
from rpeg.frontend import load
from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.interp import InterpreterError, World
from rpeg.ir.ops.declare import ModelOp, PipelineOp
from rpeg.passes.base import tidied
from rpeg.runtime.errors import RuntimeFailure
from rpeg.runtime.models.shape import read_shape
from rpeg.runtime.recordings.recording import Recording, save
from rpeg.tools.compiling import Ahead, Choice, compile_text, one_pipeline, run_ahead
from rpeg.tools.console import Failure, Source, report
from rpeg.tools.output import refuse_folder
from rpeg.tools.verifying.harden import Folders, Hardening, Size
from rpeg.tools.verifying.judge import Verdict, judge
from rpeg.tools.verifying.layouts import ONE_PROCESS, check_names, chosen, rows_divisor
from rpeg.tools.verifying.models import ModelFolders
from rpeg.tools.verifying.placing import Placing
from rpeg.tools.verifying.record import Recorded, record
from rpeg.tools.verifying.replay import Prepare, ProgramFailed, Replaying

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
    keep: Path | None = None
    """Where to leave everything; None: nowhere."""
    allow_python: bool = False
    level: Literal["L1", "L3"] = "L3"
    """What is executed of a layout: its program, or in one process its L1."""
    ahead: Ahead | None = None
    """How far generation runs ahead; None: as the text says."""


@dataclass(frozen=True)
class Report:
    """What came of it."""

    pipeline: str
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    """What was hardened."""

    @property
    def ok(self) -> bool:
        """Whether every layout computes what the pipeline says."""
        return all(verdict.ok for verdict in self.verdicts)


def verify(request: Request, say: Say, prepare: Prepare | None = None) -> Report:
    """Verifies a pipeline; `say` hears of the progress, `prepare` sees each package before launch.

    Raises Failure for what can't be hardened, interpreted or compiled.
    """
    check_names(request.layouts or ())
    with _workplace(request.keep) as folder:
        try:
            return _Verification(request, folder, say, prepare).run()
        except (RuntimeFailure, InterpreterError) as error:
            raise Failure(str(error)) from None


@contextmanager
def _workplace(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with TemporaryDirectory(prefix="rpeg-verify-") as folder:
            yield Path(folder)
        return
    refuse_folder(keep)
    if keep.exists() and any(keep.iterdir()):
        raise Failure(f"{keep} is not empty: name a new folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


@dataclass(frozen=True)
class _Hardened:
    pipeline: str
    source: Source
    layouts: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Verification:
    request: Request
    folder: Path
    say: Say
    prepare: Prepare | None

    def run(self) -> Report:
        hardened = self._harden()
        (self.folder / "pipeline.rpeg").write_text(hardened.source.text, encoding="utf-8")
        recorded = self._record(hardened)
        notes = (*hardened.notes, *recorded.notes)
        for note in notes:
            self.say(f"note: {note}")
        execute = self._executor(hardened, recorded)
        verdicts = tuple(self._judge(execute, name, recorded) for name in hardened.layouts)
        return Report(hardened.pipeline, verdicts, notes)

    def _executor(self, hardened: _Hardened, recorded: Recorded) -> Callable[[str], Recording]:
        """What executes a layout on the recorded trajectories."""
        asked, source = self.request, hardened.source
        if asked.level == "L1":
            module, title = self._load(source), hardened.pipeline
            return Placing(module, title, source.folder, asked.seed, recorded.recording).run
        return Replaying(source, self.folder, asked.seed, asked.allow_python, self.prepare).run

    def _harden(self) -> _Hardened:
        asked = self.request
        choice = Choice(
            asked.sets, layout=ONE_PROCESS, allow_python=asked.allow_python, ahead=asked.ahead
        )
        compile_text(asked.source, choice)  # refuses with places in the user's own text
        module, pipeline, sources = one_pipeline(asked.source, asked.sets)
        run_ahead(module, sources, asked.source, asked.ahead)
        models = ModelFolders(asked.source, self.folder / "models", asked.seed, asked.model)
        layouts, left_out = chosen(asked.layouts, _counts(pipeline, models))
        size = Size(steps=asked.steps)
        scoring = partial(models.perturbed, scores=True)
        folders = Folders(models.of_source, models.perturbed, scoring)
        with tidied(module):
            hardening = Hardening(pipeline, folders, size, rows_divisor(layouts))
            hardening.run()
        text = render(lift(module, sources))
        path = asked.source.path.with_suffix(".hardened.rpeg")
        notes = (*hardening.notes, *left_out, *([ONE_STEP] if asked.steps == 1 else []))
        return _Hardened(pipeline.title, Source(path, text), tuple(layouts), notes)

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
        self.say(f"{layout}: {'same' if verdict.ok else 'DIFFERS'} ({verdict.seconds:.0f} s)")
        return verdict


def _counts(pipeline: PipelineOp, models: ModelFolders) -> list[Counts]:
    """What layouts split, of each model with a folder of its own."""
    declared = (op for op in pipeline.body.block.ops if isinstance(op, ModelOp))
    shapes = [read_shape(models.of_source(op.uri)) for op in declared if op.uri is not None]
    return [Counts(s.layers, s.heads, s.kv_heads, s.ffn) for s in shapes]
