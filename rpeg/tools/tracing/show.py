"""The table of `rpeg trace diff`."""

from __future__ import annotations

from rpeg.tools.tracing.compare import Comparison, Gap


def text(found: Comparison) -> str:
    """One line per stage, the whole step below."""
    width = max(len(gap.name) for gap in (*found.stages, found.step))
    head = f"{'stage':{width}}  predicted   measured        gap  ratio"
    lines = [head, *(_line(gap, width) for gap in found.stages), _line(found.step, width)]
    predicted, measured = found.steps
    lines.append(f"seconds per step: medians over {predicted} predicted and {measured} measured")
    return "\n".join(lines) + "\n"


def _line(gap: Gap, width: int) -> str:
    ratio = "     -" if gap.ratio is None else f"{gap.ratio:6.2f}"
    sides = f"{_seconds(gap.predicted)} {_seconds(gap.measured)}"
    return f"{gap.name:{width}} {sides} {gap.seconds:+10.4f} {ratio}"


def _seconds(value: float | None) -> str:
    return f"{'-':>10}" if value is None else f"{value:10.4f}"
