"""One reference: a public function of another library, the settings it ran with, what it gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """`settings` are the ones of our function, in our names."""

    name: str
    function: Callable[..., Any]
    outputs: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where the function lies."""
        return f"{self.function.__module__}.{self.function.__qualname__}"


def with_gradient(loss: Callable[[Tensor], Tensor], x: Tensor) -> dict[str, Tensor]:
    """A scalar loss of `x`, and its gradient."""
    leaf = x.clone().requires_grad_()
    value = loss(leaf)
    (gradient,) = torch.autograd.grad(value, leaf)
    return {"loss": value.detach(), "gradient": gradient}
