"""Memory on CPUs: the next step reuses what a step freed."""

from __future__ import annotations

import ctypes
import functools
import gc
import platform

# <malloc.h> of the GNU C library.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_LARGEST = 2**31 - 1


@functools.cache
def keep_freed_memory() -> bool:
    """Makes the C library keep large blocks that are freed; whether it can.

    By default it gives them back to the kernel, which hands the next ones out page by page, zeroed:
    for activations, that costs several times the arithmetic done on them. The process keeps the
    memory of its largest moment instead, as torch does on GPUs.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST) and mallopt(_M_TRIM_THRESHOLD, _LARGEST))


@functools.cache
def spare_imports() -> None:
    """Exempts all objects that exist now from Python's garbage collection, once per process. A full
    collection would visit everything that torch and Megatron-Core made on import, which takes
    longer than a step of a small model.
    """
    gc.freeze()
