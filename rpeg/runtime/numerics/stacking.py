"""Concatenating tensors by rows, without a copy where they are adjacent in memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor


def stacked(tensors: Sequence[Tensor]) -> Tensor:
    """`torch.cat` of tensors [rows, ...]; a view of them if each begins where the one before ends,
    as the parts of a split do.
    """
    if not all(_follows(a, b) for a, b in pairwise(tensors)):
        return torch.cat(list(tensors))
    first = tensors[0]
    return first.as_strided((sum(map(len, tensors)), *first.shape[1:]), first.stride())


def _follows(a: Tensor, b: Tensor) -> bool:
    """Whether b lies right behind a, in the same memory."""
    same = a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    fits = a.shape[1:] == b.shape[1:] and a.dtype == b.dtype
    whole = a.is_contiguous() and b.is_contiguous()
    return same and fits and whole and b.storage_offset() == a.storage_offset() + a.numel()
