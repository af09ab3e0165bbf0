"""Matrix products of bfloat16 on CPUs that have no instructions for them.

There, torch's own are several times slower than float32's. Widening the operands, multiplying in
float32 and rounding the result means the same as a bfloat16 product with float32 accumulation,
which is what every unit for it does; only the order of the sums differs.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor


@functools.cache
def has_bf16_units() -> bool:
    """Whether this host multiplies bfloat16 in hardware: on a GPU, by AVX-512 BF16 or AMX."""
    if torch.cuda.is_available():
        return True
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def widens(dtype: torch.dtype) -> bool:
    """Whether products of `dtype` are better done in float32 on this host."""
    return dtype == torch.bfloat16 and not has_bf16_units()


class Weight:
    """A weight that multiplies many inputs: widened once, where that pays."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._dtype = weight.dtype
        self._wide = widens(weight.dtype)
        self._weight = weight.float() if self._wide else weight
        self._bias = bias.float() if self._wide and bias is not None else bias

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., in] to [..., out], in the weight's type."""
        if not self._wide:
            return F.linear(x, self._weight, self._bias)
        return F.linear(x.float(), self._weight, self._bias).to(self._dtype)
