"""Lets Megatron-Core run where there is no GPU, by changing what *its* modules see and nothing
else.

Megatron-Core names the CUDA device in some sixty places. On a host without CUDA, its modules get a
stand-in for `torch` in which that device is the CPU, streams are already in order, and the CUDA
random state is the CPU's. Code outside `megatron.core` keeps the real torch: replacing a factory
for everybody breaks other libraries without a word. Where CUDA is there, nothing is changed at all.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor

from rpeg.runtime.errors import RuntimeFailure

VERSION = "0.16.1"
"""The Megatron-Core that this shim was written and tested for."""

_FACTORIES = ("arange", "empty", "empty_like", "full", "ones", "rand", "randn", "tensor", "zeros",
              "zeros_like")  # fmt: skip
_CPU = torch.device("cpu")


def install() -> bool:
    """Makes Megatron-Core usable on this host; True if that took the shim. Safe to call again.

    Raises RuntimeFailure if another Megatron-Core than VERSION is installed.
    """
    found = version("megatron-core")
    if found != VERSION:
        raise RuntimeFailure(
            f"megatron-core {found} is installed, this runtime is tested with {VERSION}: "
            f"pip install megatron-core=={VERSION}"
        )
    # It warns of everything optional that is absent: TransformerEngine, Apex, ...
    warnings.filterwarnings("ignore", module=r"megatron\.core")
    # What it calls of torch.distributed will have other names one day.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    if torch.cuda.is_available():
        return False
    _import_everything_used()
    _scope(_stand_in())
    _patch_methods()
    _patch_random_state()
    return True


def _import_everything_used() -> None:
    import megatron.core.dist_checkpointing.strategies.torch
    import megatron.core.distributed
    import megatron.core.models.gpt
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel.schedules  # noqa: F401


def _scope(stand_in: types.ModuleType) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core") and getattr(module, "torch", None) is torch:
            module.torch = stand_in  # type: ignore[attr-defined]


class _Overlay(types.ModuleType):
    """A module that answers from another one, apart from what is set on it."""

    def __init__(self, under: types.ModuleType, **over: Any) -> None:
        super().__init__(under.__name__)
        self.__dict__.update(over, _under=under)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


@functools.cache
def _stand_in() -> types.ModuleType:
    cuda = _Overlay(
        torch.cuda,
        current_device=lambda: _CPU,
        synchronize=_nothing,
        empty_cache=_nothing,
        Stream=_Stream,
        Event=_Event,
        current_stream=lambda *_: _Stream(),
        default_stream=lambda *_: _Stream(),
        stream=lambda *_: contextlib.nullcontext(),
        nvtx=types.SimpleNamespace(range_push=_nothing, range_pop=_nothing),
        get_rng_state=lambda *_, **__: torch.get_rng_state(),
        set_rng_state=lambda state, *_, **__: torch.set_rng_state(state),
        manual_seed=torch.manual_seed,
    )
    factories = {name: _on_cpu(getattr(torch, name)) for name in _FACTORIES}
    return _Overlay(torch, cuda=cuda, **factories)


def _nothing(*_: Any, **__: Any) -> None:
    """Streams, caches and profiler ranges: there is nothing to do on a CPU."""


def _on_cpu(factory: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(factory)
    def made(*args: Any, **kwargs: Any) -> Tensor:
        kwargs.pop("pin_memory", None)
        if torch.device(kwargs.get("device") or _CPU).type == "cuda":
            kwargs["device"] = _CPU
        return factory(*args, **kwargs)

    return made


class _Stream:
    """Work on a CPU is in order already."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    wait_stream = wait_event = synchronize = _nothing

    def record_event(self, *_: Any) -> _Event:
        return _Event()


class _Event:
    """A point in that order."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at = time.perf_counter()

    wait = synchronize = _nothing

    def record(self, *_: Any) -> None:
        self._at = time.perf_counter()

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: _Event) -> float:
        return (other._at - self._at) * 1e3


def _from_megatron() -> bool:
    """Whether the caller of the patched method is a module of Megatron-Core."""
    return str(sys._getframe(2).f_globals.get("__name__")).startswith("megatron.core")


@functools.cache
def _patch_methods() -> None:
    """Everybody shares tensor methods: the changes hold for calls out of megatron.core only."""
    to_gpu, type_name = Tensor.cuda, Tensor.type

    def cuda(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self if _from_megatron() else to_gpu(self, *args, **kwargs)

    def type_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        name = type_name(self, *args, **kwargs)
        named = isinstance(name, str) and _from_megatron()
        # The optimizer accepts parameters by the name of their CUDA type.
        return name.replace("torch.", "torch.cuda.", 1) if named else name

    Tensor.cuda = cuda  # type: ignore[method-assign, assignment]
    Tensor.type = type_  # type: ignore[method-assign, assignment]


@functools.cache
def _patch_random_state() -> None:
    from megatron.core.tensor_parallel import random

    def fork(tracker: Any, name: str = "model-parallel-rng") -> Iterator[None]:
        outer = torch.get_rng_state()
        torch.set_rng_state(tracker.states_[name])
        try:
            yield
        finally:
            tracker.states_[name] = torch.get_rng_state()
            torch.set_rng_state(outer)

    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    random.CudaRNGStatesTracker.fork = contextlib.contextmanager(fork)
