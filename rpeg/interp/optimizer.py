"""AdamW by torch, its learning rate by formula, and the optimizer steps of one update."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class AdamW:
    """Settings of `adamw(...)`."""

    lr: float
    beta1: float
    beta2: float
    weight_decay: float
    grad_clip: float
    warmup: int
    schedule: str

    def rate(self, step: int, horizon: int) -> float:
        """The learning rate of step 0, 1, ..., horizon - 1.

        lr (step + 1) / warmup while step < warmup; then, with t the part done of what is left,
        lr, lr (1 - t) or lr (1 + cos pi t) / 2.
        """
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        t = min(1.0, (step - self.warmup) / max(1, horizon - self.warmup))
        shape = {
            "constant": 1.0,
            "linear": 1.0 - t,
            "cosine": (1.0 + math.cos(math.pi * t)) / 2.0,
        }
        return self.lr * shape[self.schedule]


class Session:
    """Optimizer steps on copies of weights and moments."""

    def __init__(
        self, tensors: Mapping[str, Tensor], moments: Mapping[str, Any], settings: AdamW
    ) -> None:
        self.parameters = {name: torch.nn.Parameter(t.clone()) for name, t in tensors.items()}
        self._clip = settings.grad_clip
        self._optimizer = torch.optim.AdamW(
            self._groups(settings.weight_decay),
            lr=settings.lr,
            betas=(settings.beta1, settings.beta2),
        )
        if moments:
            self._optimizer.load_state_dict(copy.deepcopy(dict(moments)))

    def _groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Matrices decay; biases and norms don't."""
        every = list(self.parameters.values())
        matrices, vectors = ([p for p in every if (p.dim() > 1) == wide] for wide in (True, False))
        return [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]

    def step(self, losses: Iterable[Tensor], lr: float) -> float:
        """One step down the gradient of the sum of `losses`, each of which is made when those
        before it are forgotten; returns its global norm before clipping.
        """
        self._optimizer.zero_grad()
        for loss in losses:
            loss.backward()
        bound = self._clip if self._clip > 0 else math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), bound)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        self._optimizer.step()
        return float(norm)

    def tensors(self) -> dict[str, Tensor]:
        """The weights by now."""
        return {name: parameter.detach() for name, parameter in self.parameters.items()}

    def moments(self) -> dict[str, Any]:
        """The moments by now."""
        return self._optimizer.state_dict()
