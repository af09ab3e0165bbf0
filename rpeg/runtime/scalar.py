"""Numbers that cross steps, such as an adaptive KL coefficient."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rpeg.runtime.groups import Groups
from rpeg.runtime.losses import adapted_coef, summed_kl
from rpeg.runtime.trajectories import Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run


class Scalar:
    """One number, the same on every process; it belongs to every checkpoint and to the metrics."""

    def __init__(self, run: Run, name: str, *, init: float) -> None:
        self.run = run
        self.name = name
        self.value = init
        """What it is now."""
        run.attach(f"state-{name}", self)

    def kl_controller(
        self,
        y: Trajectories,
        policy: Tensor,
        reference: Tensor,
        *,
        target: float,
        horizon: int,
        groups: Groups,
    ) -> None:
        """Makes the next value from the KL, in nats per token, of the whole batch of y.

        Logs the value that this step used, and that KL. Collective over the data-parallel groups.
        See `losses.adapted_coef`.
        """
        total, responses = summed_kl(policy, reference, y.mask)
        shares = torch.tensor([total, responses, len(y.rows)], dtype=torch.float64)
        total, responses, samples = groups.sum_over_data(shares).tolist()
        kl = total / max(responses, 1)
        self.run.log(f"state/{self.name}", self.value)
        self.run.log(f"state/{self.name}/kl", kl)
        self.value = adapted_coef(self.value, kl, int(samples), target=target, horizon=horizon)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts `state_dict` back."""
        self.value = state["value"]
