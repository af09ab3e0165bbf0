"""A picture of a run: reward a step, and what was measured on held-out data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rpeg.runtime.errors import RunFolderFailure
from rpeg.runtime.logs.metrics import Line, main_reward, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMOOTHING = 10
"""Steps of the moving mean."""


def plot_run(run_dir: Path, out: Path) -> Path:
    """Draws the trained reward of each step, its moving mean and the evaluations; writes a PNG to
    `out`.

    Raises RunFolderFailure if the run logged nothing, or matplotlib is missing.
    """
    lines = read_metrics(run_dir / "metrics.jsonl")
    if not lines:
        raise RunFolderFailure(
            f"{run_dir} holds no metrics: is it the folder of a run that finished a step?"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RunFolderFailure("plots need matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    _draw_trained(axes, lines)
    _draw_evaluations(axes, lines)
    axes.set(title=run_dir.name, xlabel="step")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120)
    return out


def _draw_trained(axes: Axes, lines: list[Line]) -> None:
    name = main_reward(lines[-1]) or "loss"
    steps, values = series(lines, name)
    axes.plot(steps, values, color="C0", alpha=0.35, label=name)
    axes.plot(steps, moving_mean(values), color="C0", label=f"mean of {_SMOOTHING} steps")


def _draw_evaluations(axes: Axes, lines: list[Line]) -> None:
    names = dict.fromkeys(n for line in lines for n in line if n.startswith("eval/"))
    for number, name in enumerate(names, start=1):
        steps, values = series(lines, name)
        axes.plot(steps, values, color=f"C{number}", marker="o", linestyle="--", label=name)


def series(lines: list[Line], name: str) -> tuple[list[float], list[float]]:
    """(steps, values) of the lines that hold a value of `name`."""
    points = [
        (float(step), float(value))
        for step, value in ((line["step"], line.get(name)) for line in lines)
        if isinstance(step, float | int) and isinstance(value, float | int)
    ]
    return [step for step, _ in points], [value for _, value in points]


def moving_mean(values: list[float], width: int = _SMOOTHING) -> list[float]:
    """Mean of each value and up to width - 1 before it."""
    windows = [values[max(0, k - width + 1) : k + 1] for k in range(len(values))]
    return [sum(window) / len(window) for window in windows]
