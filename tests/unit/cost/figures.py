"""Shapes, machines and plans that tests of costs share."""

from __future__ import annotations

from dataclasses import replace

from rpeg.cost.architecture import Architecture
from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.hardware import Machine, load_machine
from rpeg.cost.plans import Plans

DENSE: Architecture = load_architecture("Qwen2.5-7B")
MIXTURE: Architecture = load_architecture("Qwen3-30B-A3B")
H100: Machine = load_machine("h100")


def plans(tp: float = 1, pp: float = 1, cp: float = 1, ep: float = 1, **more: float) -> Plans:
    """64 sequences of 4,096 tokens on 32 GPUs, unless told otherwise."""
    given = {"batch": 64.0, "seq": 4096.0, "dp": max(32 / (tp * pp * cp), 1.0), **more}
    return Plans.of(tp=tp, pp=pp, cp=cp, ep=ep, **given)


def faster(
    machine: Machine, flops: float = 1, memory: float = 1, link: float = 1, nic: float = 1
) -> Machine:
    """The machine with some rates multiplied."""
    return replace(
        machine,
        flops={name: value * flops for name, value in machine.flops.items()},
        hbm_bytes_per_s=machine.hbm_bytes_per_s * memory,
        link=replace(machine.link, bytes_per_s=machine.link.bytes_per_s * link),
        nic=replace(machine.nic, bytes_per_s=machine.nic.bytes_per_s * nic),
    )
