"""The shim changes what Megatron-Core sees, and nothing that anybody else sees."""

from __future__ import annotations

import pytest
import torch

from rpeg.runtime.errors import RuntimeFailure
from rpeg.runtime.megatron import shim

needs_no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="the shim is for CPUs")


@needs_no_gpu
def test_only_megatron_sees_a_cuda_device() -> None:
    before = {name: getattr(torch, name) for name in ("zeros", "tensor", "empty", "arange")}
    current = torch.cuda.current_device
    assert shim.install()
    from megatron.core.optimizer import clip_grads

    assert clip_grads.torch.zeros(1, device="cuda").device.type == "cpu"
    assert clip_grads.torch.cuda.current_device() == torch.device("cpu")
    assert clip_grads.torch.nn is torch.nn
    assert all(getattr(torch, name) is made for name, made in before.items())
    assert torch.cuda.current_device is current
    assert torch.zeros(1).type() == "torch.FloatTensor"
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(1).cuda()
    with pytest.raises((AssertionError, RuntimeError)):
        torch.zeros(1, device="cuda")


@needs_no_gpu
def test_installing_twice_is_installing_once() -> None:
    shim.install()
    methods = torch.Tensor.cuda, torch.Tensor.type
    shim.install()
    assert (torch.Tensor.cuda, torch.Tensor.type) == methods


def test_nothing_is_changed_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(shim, "_scope", lambda _: pytest.fail("scoped"))
    monkeypatch.setattr(shim, "_patch_methods", lambda: pytest.fail("patched"))
    assert not shim.install()


def test_another_megatron_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "version", lambda _: "0.17.0")
    with pytest.raises(RuntimeFailure, match=r"pip install megatron-core==0\.16\.1"):
        shim.install()
