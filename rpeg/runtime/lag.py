"""How old the tokens of a batch are when they are trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rpeg.runtime.errors import StalenessExceeded
from rpeg.runtime.trajectories import Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


@dataclass(frozen=True)
class LagBound:
    """The lag of a token is step - version when update `step` consumes it.

    Bound `strict`: no trained token's lag exceeds `max_lag`. Bound `head`: `max_lag` bounds
    admission elsewhere; lag is reported.
    """

    max_lag: int
    bound: Literal["strict", "head"] = "strict"

    def consume(self, run: Run, y: Trajectories, step: int) -> None:
        """Logs the lags of a batch. Raises StalenessExceeded if one is beyond the bound."""
        lags = step - y.versions[y.mask]
        if lags.numel():
            self._check(int(lags.max()), step)
            run.log("lag/mean", float(lags.double().mean()), lags.numel())
            run.log("lag/max", float(lags.max()), how="max")

    def _check(self, lag: int, step: int) -> None:
        if self.bound == "strict" and lag > self.max_lag:
            raise StalenessExceeded(
                f"step {step} would train tokens {lag} versions old, the pipeline allows "
                f"{self.max_lag}: widen the window of `generate`, or publish more often"
            )
