"""A picture of a run: what it trains for at each step, and what was measured on held-out data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rpeg.runtime.errors import RunFolderFailure
from rpeg.runtime.logs.metrics import TRAINED, Line, main_reward, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMOOTHING = 10
"""Steps of the moving mean."""
_EVALUATION = "eval/"

Curve = tuple[list[float], list[float]]
"""Steps, and the values at them."""


def plot_run(run_dir: Path, out: Path) -> Path:
    """Draws the trained reward of each step, or else losses and accuracies, their moving means and
    the evaluations; writes a PNG to `out`.

    Raises RunFolderFailure if the run logged nothing to draw, or matplotlib is missing.
    """
    lines = read_metrics(run_dir / "metrics.jsonl")
    if not lines:
        raise RunFolderFailure(
            f"{run_dir} holds no metrics: is it the folder of a run that finished a step?"
        )
    found = {name: series(lines, name) for name in (*trained(lines), *evaluations(lines))}
    curves = {name: curve for name, curve in found.items() if curve[1]}
    if not curves:
        raise RunFolderFailure(f"{run_dir} logged no reward, loss or evaluation that can be drawn")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RunFolderFailure("plots need matplotlib: pip install matplotlib") from error
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for number, (name, curve) in enumerate(curves.items()):
        _draw(axes, name, curve, f"C{number}")
    axes.set(title=run_dir.name, xlabel="step")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out, dpi=120)
    return out


def _draw(axes: Axes, name: str, curve: Curve, color: str) -> None:
    """Evaluations as points; what each step reports as a pale line below its moving mean."""
    steps, values = curve
    if name.startswith(_EVALUATION):
        axes.plot(steps, values, color=color, marker="o", linestyle="--", label=name)
        return
    axes.plot(steps, values, color=color, alpha=0.35)
    axes.plot(steps, moving_mean(values), color=color, label=f"{name}, mean of {_SMOOTHING} steps")


def trained(lines: Sequence[Line]) -> list[str]:
    """Names of what the run trains for: the last reward, or else every loss and accuracy."""
    names = _names(lines)
    reward = main_reward(names)
    return [reward] if reward else [name for name in names if TRAINED.fullmatch(name)]


def evaluations(lines: Sequence[Line]) -> list[str]:
    """Names of what was measured on held-out data."""
    return [name for name in _names(lines) if name.startswith(_EVALUATION)]


def _names(lines: Sequence[Line]) -> dict[str, None]:
    """Names of any line, in the order in which they came."""
    return dict.fromkeys(name for line in lines for name in line)


def series(lines: Sequence[Line], name: str) -> Curve:
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
