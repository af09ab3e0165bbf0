"""How old tokens are when an update consumes them, and what becomes of those past the bound.

The lag of a token is the step that trains on it less the version of the weights that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rpeg.runtime.interfaces import Host
from rpeg.runtime.pools.admission import Bound, Certificate, Window
from rpeg.runtime.trajectories import Trajectories

OldSpans = Literal["mask", "drop"]


class LagBound:
    """What a window says of the tokens that an update consumes.

    Bound `strict`: no token that trains is older than the window. `head`: that held where its
    sample was admitted; here the lag is only logged, unless `quiet` is set, when another pool logs
    it for the same tokens. `old_spans` is what becomes of older tokens: they don't train (mask),
    nor does their group (drop).
    """

    def __init__(
        self,
        max_lag: int,
        bound: Bound = "strict",
        old_spans: OldSpans | None = None,
        *,
        quiet: bool = False,
    ) -> None:
        self.window = Window(max_lag)
        self.old_spans = old_spans
        self.quiet = quiet
        self.certificate = Certificate(self.window, bound)

    def consumed(self, run: Host, y: Trajectories, step: int) -> Trajectories:
        """What of y update `step` trains on; its lag and versions are in the step's metrics.

        Raises StalenessExceeded if a token that trains is older than the bound allows.
        """
        if self.old_spans is not None:
            trained = self._trained(y, step)
            if not self.quiet:
                run.log("lag/old", int(y.mask.sum() - trained.sum()), how="sum")
            y = replace(y, mask=trained)
        lags = _lags(y.versions[y.mask], step)
        self.certificate.consume(step, lags)
        if lags and not self.quiet:
            _report(run, lags, step)
        return y

    def _trained(self, y: Trajectories, step: int) -> Tensor:
        """[samples, max_tokens] bool: the tokens that train."""
        fresh = y.mask & (y.versions >= self.window.oldest(step))
        if self.old_spans == "mask":
            return fresh
        groups = (fresh == y.mask).view(-1, y.n * y.mask.shape[1])
        return y.mask & groups.all(dim=1).repeat_interleave(y.n).unsqueeze(1)


def _lags(versions: Tensor, step: int) -> dict[int, int]:
    """Lag -> tokens, oldest first, of the versions [k] of tokens that train in `step`."""
    if not len(versions):
        return {}
    oldest = int(versions.min())
    counts = torch.bincount(versions - oldest).tolist()
    return {step - oldest - k: count for k, count in enumerate(counts) if count}


def _report(run: Host, lags: Mapping[int, int], step: int) -> None:
    """Mean, greatest and all lags (lag -> tokens), and the versions behind them."""
    tokens = sum(lags.values())
    run.log("lag/mean", sum(lag * n for lag, n in lags.items()) / tokens, tokens)
    run.log("lag/max", max(lags), how="max")
    for lag in sorted(lags):
        run.log(f"lag/histogram/{lag}", lags[lag], how="sum")
    run.log("version/min", step - max(lags), how="min")
    run.log("version/max", step - min(lags), how="max")
