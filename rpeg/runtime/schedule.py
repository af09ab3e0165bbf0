"""The learning rate over the steps of a run."""

from __future__ import annotations

import math

from rpeg.runtime.layout import AdamW


def learning_rate(settings: AdamW, step: int, horizon: int) -> float:
    """The rate in step `step` = 0, 1, ..., horizon - 1.

    A linear rise over `warmup` steps, the first of them at lr / warmup, meets the schedule:
    constant; linear: lr (1 - t); cosine: lr (1 + cos(pi t)) / 2, with t from 0 after the warm-up
    towards 1 at the horizon.
    """
    if step < settings.warmup:
        return settings.lr * (step + 1) / settings.warmup
    t = min(1.0, (step - settings.warmup) / max(1, horizon - settings.warmup))
    match settings.schedule:
        case "constant":
            return settings.lr
        case "linear":
            return settings.lr * (1.0 - t)
        case "cosine":
            return settings.lr * 0.5 * (1.0 + math.cos(math.pi * t))
