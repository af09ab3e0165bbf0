"""What a run shows while it trains: a live bar on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

import atexit
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from rpeg.runtime.logs.metrics import TRAINED, main_reward, named

_SHOWN = (("loss", "loss", "{:.4f}"), ("kl", "kl", "{:.4f}"), ("length/mean", "len", "{:.1f}"))
_FAILED = re.compile("verifier/.*/failed")
_QUIET_SECONDS = 1.0
"""Plain lines come at most this often, save the last one and those with an evaluation."""


class StepView(Protocol):
    """Shows the steps of a run."""

    def show(self, line: Mapping[str, float]) -> None:
        """Shows one step's metrics."""
        ...

    def note(self, text: str) -> None:
        """Shows a line of text."""
        ...

    def close(self) -> None:
        """Leaves the terminal as it was found."""
        ...


@dataclass(frozen=True)
class Plan:
    """What a launch is to train."""

    title: str
    steps: int
    done: int = 0
    """Finished before."""
    may_stop: bool = False
    """A condition may end it before its last step."""


def make_view(plan: Plan) -> StepView:
    """The view that suits standard output."""
    console = Console()
    return LiveView(console, plan) if console.is_terminal else PlainView(console, plan)


class Eta:
    """Remaining time from an exponential mean of the steps' seconds, over some fifty steps. The
    first step of a launch, in which things warm up, counts only until there is another.
    """

    _DECAY = 0.98

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._seen = 0
        self._seconds = self._weight = 0.0

    def after(self, step: int, seconds: float) -> str:
        """Remaining time, for example `1m20s` or `at most 1m20s`, once a step took `seconds`."""
        decay = 0.0 if self._seen == 1 else self._DECAY
        self._seen += 1
        self._seconds = decay * self._seconds + seconds
        self._weight = decay * self._weight + 1.0
        left = self._plan.steps - step
        text = format_duration(left * self._seconds / self._weight)
        return f"at most {text}" if self._plan.may_stop and left else text


class PlainView:
    """One line per step."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console = console
        self._steps = plan.steps
        self._eta = Eta(plan)
        self._last = float("-inf")
        self.note(f"training {plan.title} from step {plan.done + 1} of {plan.steps}")

    def show(self, line: Mapping[str, float]) -> None:
        """Prints the step's line, unless one was printed a moment ago."""
        step = int(line["step"])
        eta = self._eta.after(step, line["seconds"])
        due = time.monotonic() - self._last >= _QUIET_SECONDS
        if due or step == self._steps or any(name.startswith("eval/") for name in line):
            self._last = time.monotonic()
            text = f"step {step}/{self._steps}  {format_figures(line)}  eta {eta}"
            self._console.print(text, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Prints a line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Nothing to put back."""


class LiveView:
    """A bar with the newest figures; evaluations stay above it."""

    def __init__(self, console: Console, plan: Plan) -> None:
        columns = (
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
        )
        figures = TextColumn("{task.fields[figures]}  [dim]eta {task.fields[eta]}")
        self._progress = Progress(*columns, figures, console=console)
        self._eta = Eta(plan)
        self._task: TaskID = self._progress.add_task(
            plan.title, total=plan.steps, completed=plan.done, figures="first step", eta="?"
        )
        self._progress.start()
        atexit.register(self.close)  # an error must not leave the cursor hidden

    def show(self, line: Mapping[str, float]) -> None:
        """Moves the bar."""
        step = int(line["step"])
        eta = self._eta.after(step, line["seconds"])
        self._progress.update(self._task, completed=step, figures=format_figures(line), eta=eta)
        for name, value in named(line, "eval/"):
            self._progress.console.print(f"step {step}  {name} {value:.4f}", highlight=False)

    def note(self, text: str) -> None:
        """Prints a line above the bar."""
        self._progress.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        """Stops the live display."""
        self._progress.stop()


def format_figures(line: Mapping[str, float]) -> str:
    """A step's main figures: `reward 0.410  loss 0.0123  len 6.1  1,234 tok/s`."""
    parts = []
    if reward := main_reward(line):
        parts.append(f"reward {line[reward]:.3f}")
    parts += [f"{label} {form.format(line[name])}" for name, label, form in _SHOWN if name in line]
    also = {name: value for name, value in line.items() if TRAINED.fullmatch(name)}
    parts += [f"{name} {value:.4f}" for name, value in also.items() if name != "loss"]
    failed = sum(n for name, n in line.items() if _FAILED.fullmatch(name))
    if failed:
        parts.append(f"failed {failed:.0f}")
    if "tokens_per_s" in line:
        parts.append(f"{line['tokens_per_s']:,.0f} tok/s")
    if line.get("lag/max"):
        parts.append(f"lag {line['lag/mean']:.1f}")
    parts += [f"{name} {value:.0%} busy" for name, value in named(line, "busy/")]
    parts += [f"{name} {value:.3f}" for name, value in named(line, "eval/")]
    return "  ".join(parts)


def format_duration(seconds: float) -> str:
    """`45s`, `1m20s`, `3h05m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
