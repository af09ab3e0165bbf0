"""A cluster file from what was measured: `clusters/*.toml`'s own form, one node."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from rpeg.cost.hardware import GIGA, MICRO, SOLD_GIGA, TERA
from rpeg.cost.kernels import WIDTHS
from rpeg.tools.calibrating import probe
from rpeg.tools.calibrating.fit import Line, Wire, line, wire
from rpeg.tools.calibrating.measured import Measured

DIGITS = 4
"""Significant digits; measurements have no more."""


@dataclass(frozen=True)
class Figure:
    """One line of the file."""

    key: str
    value: float
    cite: str
    source: str = "measured"

    def __str__(self) -> str:
        value = f"{self.value:.{DIGITS}g}" if self.value < 10**DIGITS else f"{self.value:.0f}"
        cite = json.dumps(self.cite)
        return (
            f'{self.key} = {{ value = {float(value):g}, source = "{self.source}", cite = {cite} }}'
        )


@dataclass(frozen=True)
class Fits:
    """The constants of the cost model that explain the measurements."""

    matmul: Line
    attention: Line
    stream: Line
    host: Line
    wire: Wire | None
    """None where one process measured alone."""

    @classmethod
    def of(cls, found: Measured) -> Fits:
        """Fits each."""
        return cls(
            matmul=line(found.matmuls),
            attention=line(found.attention),
            stream=line(found.streams),
            host=line(found.host_copies),
            wire=wire(found) if found.collectives else None,
        )


def cluster_file(name: str, found: Measured, date: str) -> str:
    """The text of the file; `date` says when it was measured."""
    fits = Fits.of(found)
    unit = "one GPU" if found.gpus else "one process on a core of its own"
    head = (
        f"# {found.device}: measured on {date}, {found.processes} processes at once.\n"
        f"# A device is {unit}. rpeg calibrate wrote this file.\n"
        f"# Each figure is {{ value, source, cite }}; source is datasheet, measured or default.\n"
    )
    called = f"name = {json.dumps(found.device)}"
    sections = [
        _lines(head, f"name = {json.dumps(name)}", *_top(found)),
        _lines("[device]", called, *_device(found, fits)),
        _lines("[gpu_link]", *_link(found, fits)),
        _lines("[nic]", *_nic(found, fits)),
        _lines("[host]", *_host(found, fits)),
        _lines("[constants]", *_constants(found, fits)),
    ]
    return "\n".join(sections)


def _lines(*lines: str | Figure) -> str:
    return "".join(f"{line}\n" for line in lines)


def _top(found: Measured) -> Iterator[Figure]:
    yield Figure("max_nodes", 1, "this machine alone")
    yield Figure("gpus_per_node", found.gpus, "those that torch sees")
    yield Figure("cores_per_node", found.cores, "cores that a process may run on")
    yield Figure("usd_per_gpu_hour", 0, "not known: what an hour of a device costs", "default")


def _device(found: Measured, fits: Fits) -> Iterator[Figure]:
    memory = found.memory_bytes / SOLD_GIGA
    usual = "bf16_tflops" if found.gpus else "fp32_tflops"
    error = fits.matmul.error(found.matmuls)
    sides = ", ".join(f"{round((one.work / 2) ** (1 / 3))}" for one in found.matmuls)
    yield Figure("memory_gb", memory, "of a GPU" if found.gpus else "a process's share")
    yield Figure(
        usual,
        fits.matmul.rate / TERA,
        f"reached by square matmuls of {sides}; fits them within {100 * error:.0f} % (median)",
    )
    yield Figure("hbm_gb_per_s", fits.stream.rate / GIGA, "reached by a triad")
    yield Figure("host_gb_per_s", fits.host.rate / GIGA, "copies of page-locked memory, one way")


def _link(found: Measured, fits: Fits) -> Iterator[Figure]:
    rate, latency, cite = _reached(found, fits)
    yield Figure("gb_per_s", rate / GIGA, cite)
    yield Figure("gpus", found.processes, "processes that were measured")
    yield Figure("latency_us", latency / MICRO, cite)
    yield Figure("reduces_in_switch", 0, "part of the rate reached")


def _nic(found: Measured, fits: Fits) -> Iterator[Figure]:
    rate, latency, _ = _reached(found, fits)
    cite = "not crossed on one node: as between its processes"
    yield Figure("gb_per_s", rate / GIGA, cite, "default")
    yield Figure("latency_us", latency / MICRO, cite, "default")
    yield Figure("reduces_in_switch", 0, cite, "default")


def _host(found: Measured, fits: Fits) -> Iterator[Figure]:
    width = WIDTHS["bf16" if found.gpus else "fp32"]
    reached = probe.Reached(fits.matmul.rate, fits.stream.rate, width)
    host = probe.launching(found.forwards, reached)
    yield Figure("memory_gb", found.host_bytes / SOLD_GIGA, "physical memory")
    cite = "a tiny decode step of one sequence, over its launches"
    yield Figure("launch_us", host.launch_s / MICRO, cite)
    cite = "what more sequences add to it, beyond FLOPs and bytes"
    yield Figure("product_us", host.product_s / MICRO, cite)
    cite = "a head of a short sequence in fused attention"
    yield Figure("attend_us", probe.attending(found.heads, fits.attention.rate) / MICRO, cite)


def _reached(found: Measured, fits: Fits) -> tuple[float, float, str]:
    """Bytes per second, seconds and where they come from; one process alone crosses no link."""
    if fits.wire is None:
        return fits.stream.rate, 0.0, "one process alone: as its memory"
    error = f"fits them within {100 * fits.wire.error:.0f} % (median)"
    return (
        fits.wire.bytes_per_s,
        fits.wire.latency_s,
        f"{len(found.collectives)} {found.backend} collectives of {found.processes}; {error}",
    )


def _constants(found: Measured, fits: Fits) -> Iterator[Figure]:
    reached = "the figure above is what was reached"
    yield Figure("gemm_efficiency", 1, reached)
    share = min(fits.attention.rate / fits.matmul.rate, 1.0)
    yield Figure("attention_efficiency", share, "causal, forward, over matmuls; at most 1")
    yield Figure("hbm_efficiency", 1, reached)
    yield Figure(
        "kernel_us", fits.matmul.head / MICRO, "what small matmuls take beyond their FLOPs"
    )
    yield Figure("gpu_link_efficiency", 1, reached)
    yield Figure("nic_efficiency", 1, reached)
    what = "context, buffers and libraries" if found.gpus else "a process before it computes"
    yield Figure("reserved_gb", found.reserved_bytes / GIGA, what)
