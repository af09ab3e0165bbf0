"""Arrays of numbers, one per plan: their type, and element-wise comparisons that keep it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def larger(a: Array | float, b: Array | float) -> Array:
    """The larger of both, element by element."""
    result: Array = np.maximum(a, b)
    return result


def smaller(a: Array | float, b: Array | float) -> Array:
    """The smaller of both, element by element."""
    result: Array = np.minimum(a, b)
    return result
