"""Everything that process 0 logs while a run trains, and rolls back when it resumes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rpeg.rundir import jsonl
from rpeg.rundir.appending import Appender
from rpeg.rundir.exports import drop_exports_after
from rpeg.rundir.folder import RunFolder
from rpeg.runtime.logs.clock import Span
from rpeg.runtime.logs.metrics import MetricsFile, TensorBoardLog, read_metrics
from rpeg.runtime.logs.progress import Plan, StepView, make_view
from rpeg.runtime.logs.rollouts import Line, drop_rollouts_after, write_rollouts
from rpeg.runtime.logs.trace import TraceFile


class Logbook:
    """Metrics, trace and rollouts of a run's folder; `processes` holds the names of all."""

    def __init__(self, folder: RunFolder, pipeline: str, processes: Sequence[str]) -> None:
        self._folder = folder
        self._appender = Appender()
        self.append: jsonl.Append = self._appender.append
        """Adds lines to a file of the run: by a thread, so that training need not wait."""
        self._metrics = MetricsFile(folder.metrics, self.append)
        self._trace = TraceFile(folder.trace, pipeline, processes, self.append)
        self._live: _Live | None = None
        self._noted: set[str] = set()

    def rewind(self, step: int) -> None:
        """Forgets what was written past `step`."""
        self._metrics.drop_after(step)
        self._trace.drop_after(step)
        drop_rollouts_after(self._folder.rollouts, step)
        drop_exports_after(self._folder.exports, step)

    def open(self, plan: Plan) -> None:
        """Starts to show progress."""
        board = TensorBoardLog(self._folder.tensorboard, plan.done)
        self._live = _Live(board, make_view(plan))

    def write(
        self,
        line: dict[str, float],
        digests: Mapping[str, str],
        spans_by_process: Sequence[list[Span]],
    ) -> None:
        """One finished step: figures, which are shown too, and digests."""
        self._metrics.append(line, digests)
        self._trace.append(spans_by_process)
        if self._live is not None:
            self._live.board.append(line)
            self._live.view.show(line)

    def note(self, topics: Mapping[str, str]) -> None:
        """Shows what is said about topics that are new to this launch."""
        fresh = {topic: text for topic, text in topics.items() if topic not in self._noted}
        self._noted |= fresh.keys()
        if self._live is not None:
            for topic, text in fresh.items():
                self._live.view.note(f"note: {topic}: {text}")

    def write_rollouts(self, step: int, lines: Iterable[Line]) -> None:
        """Completions of a step."""
        write_rollouts(self._folder.rollouts, step, lines, self.append)

    def settle(self) -> None:
        """Waits until all files hold what was written: before a checkpoint, and at the end."""
        self._appender.settle()

    def close(self) -> None:
        """Ends the trace, settles, and stops showing progress."""
        self._trace.close()
        self.settle()
        if self._live is not None:
            self._live.board.close()
            self._live.view.close()

    def last_figures(self) -> dict[str, float | None]:
        """Rewards, evaluations and loss of the last step."""
        lines = read_metrics(self._folder.metrics)
        last = lines[-1] if lines else {}
        figures = {n: v for n, v in last.items() if not isinstance(v, str)}
        return {n: v for n, v in figures.items() if n.startswith(("reward/", "eval/", "loss"))}


@dataclass(frozen=True)
class _Live:
    """What shows a run while it trains."""

    board: TensorBoardLog
    view: StepView
