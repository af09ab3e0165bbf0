"""What other libraries computed on seeded batches; tests/references/make.py makes the files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rpeg.runtime.losses import Aggregation, Totals, token_weights

FOLDER = Path(__file__).parents[2] / "golden" / "references"
BATCHES = ("ragged", "pairs", "extreme")
Outputs = Mapping[str, Tensor]


@cache
def about() -> Mapping[str, Any]:
    """`versions`, `n` by batch, and by case `function` and `settings`."""
    text = (FOLDER / "about.json").read_text(encoding="utf-8")
    parsed: Mapping[str, Any] = json.loads(text)
    return parsed


@cache
def outputs(batch: str, case: str) -> Outputs:
    """Output name -> tensor; empty where the case was not made for the batch."""
    made = load_file(FOLDER / "outputs.safetensors")
    start = f"{batch}/{case}/"
    return {name.removeprefix(start): t for name, t in made.items() if name.startswith(start)}


@dataclass(frozen=True)
class Batch:
    """Inputs of the references, with the settings of one case."""

    name: str
    n: int
    settings: Mapping[str, Any]

    def __getitem__(self, field: str) -> Tensor:
        return _inputs()[f"{self.name}/{field}"]

    @property
    def mask(self) -> Tensor:
        """[samples, tokens] bool."""
        return self["mask"].bool()

    def picked(self, *names: str) -> dict[str, Any]:
        """Some of the settings."""
        return {name: self.settings[name] for name in names if name in self.settings}

    def over_tokens(self, field: Tensor) -> Tensor:
        """A per-response field at every token of the mask."""
        return field.unsqueeze(1) * self["mask"]

    def aggregate(self, loss: Tensor) -> Tensor:
        """The scalar loss, aggregated as the case says."""
        agg: Aggregation = self.settings.get("agg", "token_mean")
        if agg == "constant":
            agg = ("constant", loss.shape[1])
        trained = self.mask.any(dim=1).sum()
        totals = Totals(tokens=int(self.mask.sum()), sequences=int(trained))
        return (token_weights(self.mask, agg, totals) * loss).sum()

    def differentiated(self, loss: Callable[[Tensor], Tensor], wrt: str) -> Outputs:
        """A scalar loss of one field, and its gradient."""
        leaf = self[wrt].clone().requires_grad_()
        value = loss(leaf)
        (gradient,) = torch.autograd.grad(value, leaf)
        return {"loss": value.detach(), "gradient": gradient}


def batch(name: str, case: str) -> Batch:
    """The batch `name` with the settings of `case`."""
    return Batch(name, about()["n"][name], about()["cases"][case]["settings"])


@cache
def _inputs() -> Mapping[str, Tensor]:
    return load_file(FOLDER / "inputs.safetensors")
