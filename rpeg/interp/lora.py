"""Low-rank adapters: W + (alpha / rank) B A beside frozen weights W (LoRA, arXiv:2106.09685).

Adapters stand beside the weights under their names, `NAME.lora_A` [rank, inputs] and `NAME.lora_B`
[outputs, rank]. B starts at zero, so that the model starts as its base.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from rpeg.runtime.models.model_source import fresh

A, B = ".lora_A", ".lora_B"
TARGETS: Mapping[str, tuple[str, ...]] = {
    "attention": ("self_attn.",),
    "all_linear": ("self_attn.", "mlp."),
}
"""By the word of `targets`: parts of the names of matrices that get an adapter."""


@dataclass(frozen=True)
class Lora:
    """Settings of `lora(...)`."""

    rank: int
    alpha: int
    targets: str

    def adapters(self, weights: Mapping[str, Tensor], seed: int) -> dict[str, Tensor]:
        """Fresh adapters of the weights."""
        made: dict[str, Tensor] = {}
        for name, weight in weights.items():
            if weight.dim() == 2 and any(part in name for part in TARGETS[self.targets]):
                outputs, inputs = weight.shape
                shape, std = (self.rank, inputs), self.rank**-0.5
                made[name + A] = fresh(name + A, shape, std, seed).to(weight.dtype)
                made[name + B] = weight.new_zeros(outputs, self.rank)
        return made

    def merged(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The weights with their adapters added, under the weights' names."""
        scale = self.alpha / self.rank
        return {
            name: weight + scale * tensors[name + B] @ tensors[name + A]
            if name + A in tensors
            else weight
            for name, weight in tensors.items()
            if not is_adapter(name)
        }


def is_adapter(name: str) -> bool:
    """Whether a tensor belongs to an adapter rather than to the base."""
    return name.endswith((A, B))
