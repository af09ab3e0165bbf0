"""What a machine can do: rates, latencies and prices, read from `clusters/*.toml`.

`rpeg.ir.clusters` reads how many nodes and GPUs there are; this reads how fast they are. Rates are
per GPU and direction. At most eight constants of a device are not in its datasheet: `CONSTANTS`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

from rpeg.ir.clusters import KEYS, MEMORIES, ClusterError, gpus_of, known_clusters
from rpeg.ir.figures import AT_LEAST_0, AT_LEAST_1, SHARE, SIZE, TOP, FigureError, Figures, up_to
from rpeg.resources import resource

CONSTANTS = KEYS["constants"]
"""Names of a device's fitted constants, in the order they are printed in."""

MICRO, GIGA, TERA = 1e-6, 1e9, 1e12

LAUNCH_US = 10.0
"""Of a kernel launched from Python, where the file doesn't tell: servers take 5 to 15."""
LATENCY = up_to(1e6, AT_LEAST_0)
"""Microseconds: nothing starts later than a second after it may."""
RATIO = up_to(1e3, AT_LEAST_0)

SOLD_GIGA = 2.0**30
"""Memory is sold in powers of two: an H100 of "80 GB" reports 85.5e9 bytes."""


class NoSpeedsError(ClusterError):
    """A file that tells how large a cluster is and nothing of how fast."""


@dataclass(frozen=True)
class Link:
    """One level of the network, as one GPU sees it."""

    bytes_per_s: float
    """Per GPU and direction, as the datasheet says."""
    gpus: int
    """How many GPUs one domain joins; 0 where nothing bounds it."""
    latency_s: float
    reduces_in_switch: float
    """How fast the switch adds up beside Hopper's; 0 where it doesn't."""
    efficiency: float
    """Share of the rate that large messages reach."""

    @property
    def reached(self) -> float:
        """Bytes per second that large messages reach."""
        return self.bytes_per_s * self.efficiency


@dataclass(frozen=True)
class Machine:
    """GPUs, their links and hosts. FLOP/s, bytes/s, bytes, seconds, dollars."""

    name: str
    device: str
    gpus_per_node: int
    memory_bytes: float
    flops: dict[str, float]
    """Peak dense FLOP/s: "bf16", and "fp8" and "fp4" where the device has them; "fp32" alone where
    that is what it computes in, as cores do."""
    hbm_bytes_per_s: float
    host_bytes_per_s: float
    host_memory_bytes: float
    link: Link
    nic: Link
    nodes_per_rack: float
    oversubscription: float
    usd_per_gpu_hour: float
    gemm_efficiency: float
    gemm_efficiency_fp8: float
    attention_efficiency: float
    hbm_efficiency: float
    kernel_s: float
    """Head and tail of a kernel beyond its FLOPs and bytes."""
    reserved_bytes: float
    """Memory of a GPU that no tensor of the model gets."""
    launch_s: float
    """Host time of one kernel that Python launches by itself, in no graph."""
    product_s: float
    """What one of many small products in a kernel takes beyond its bytes; GPUs take nothing."""
    attend_s: float
    """What a fused attention kernel takes for one head of one sequence beyond its FLOPs."""

    @property
    def memory_rate(self) -> float:
        """Bytes per second that streaming kernels reach."""
        return self.hbm_bytes_per_s * self.hbm_efficiency

    @property
    def usual(self) -> str:
        """What it computes in where nothing narrower is asked for: "bf16", or "fp32" on cores."""
        return "bf16" if "bf16" in self.flops else "fp32"

    @property
    def launches_itself(self) -> bool:
        """Whether launches and work share one processor, as on cores: neither hides the other."""
        return self.usual == "fp32"

    def matmul_rate(self, precision: str) -> float:
        """FLOP/s that large matmuls reach; a precision the device lacks runs in its usual one."""
        if precision == self.usual or precision not in self.flops:
            return self.flops[self.usual] * self.gemm_efficiency
        return self.flops[precision] * self.gemm_efficiency_fp8

    @property
    def attention_rate(self) -> float:
        """FLOP/s that a fused attention kernel reaches, which no narrower matmuls speed up."""
        return self.flops[self.usual] * self.attention_efficiency


def load_machine(name: str) -> Machine:
    """The machine `clusters/NAME.toml`, or of a path that ends in .toml.

    Raises:
        NoSpeedsError: the file of that path gives no speeds.
        FigureError: no such machine, or one of its figures is missing or wrong.
    """
    return _machine(Figures.read(Path(name), KEYS)) if name.endswith(".toml") else _shipped(name)


def known_machines() -> tuple[str, ...]:
    """Names of the shipped machines that have GPUs."""
    return tuple(name for name in known_clusters() if name != "cpu")


@cache
def _shipped(name: str) -> Machine:
    if name not in known_machines():
        raise FigureError(f'no machine "{name}": known are {", ".join(known_machines())}')
    return _machine(Figures.read(resource(f"clusters/{name}.toml"), KEYS))


def _gives_speeds(file: Figures) -> bool:
    sizes = {TOP, "device", "host"}
    return not sizes.issuperset(file.sections) or any(
        key not in ("name", "memory_gb") for key in file.section("device")
    )


def _machine(file: Figures) -> Machine:
    if not _gives_speeds(file):
        raise NoSpeedsError(
            f"{file.path} gives no speeds: write them as clusters/h100.toml does, "
            "or measure this machine with `rpeg calibrate`"
        )

    def efficiency(of: str) -> float:
        return file.number("constants", f"{of}_efficiency", SHARE)

    return Machine(
        name=file.words(TOP, "name"),
        device=file.words("device", "name"),
        gpus_per_node=gpus_of(file),
        memory_bytes=file.number("device", "memory_gb", MEMORIES["device"]) * SOLD_GIGA,
        flops=_peaks(file),
        hbm_bytes_per_s=file.number("device", "hbm_gb_per_s", SIZE) * GIGA,
        host_bytes_per_s=file.number("device", "host_gb_per_s", SIZE) * GIGA,
        host_memory_bytes=file.number("host", "memory_gb", MEMORIES["host"]) * SOLD_GIGA,
        link=_link(file, "gpu_link", file.whole("gpu_link", "gpus", AT_LEAST_1)),
        nic=_link(file, "nic", 0),
        nodes_per_rack=file.number("rack", "nodes", AT_LEAST_1, default=float("inf")),
        oversubscription=file.number("rack", "oversubscription", up_to(1e3), default=1.0),
        usd_per_gpu_hour=file.number(TOP, "usd_per_gpu_hour"),
        gemm_efficiency=efficiency("gemm"),
        gemm_efficiency_fp8=file.number(
            "constants", "gemm_efficiency_fp8", SHARE, default=efficiency("gemm")
        ),
        attention_efficiency=efficiency("attention"),
        hbm_efficiency=efficiency("hbm"),
        kernel_s=file.number("constants", "kernel_us", LATENCY) * MICRO,
        reserved_bytes=_reserved(file) * GIGA,
        launch_s=file.number("host", "launch_us", LATENCY, default=LAUNCH_US) * MICRO,
        product_s=file.number("host", "product_us", LATENCY, default=0.0) * MICRO,
        attend_s=file.number("host", "attend_us", LATENCY, default=0.0) * MICRO,
    )


def _reserved(file: Figures) -> float:
    """GB of a device that no tensor gets. Raises FigureError where that is all of it."""
    gb = file.number("constants", "reserved_gb")
    memory = file.number("device", "memory_gb", MEMORIES["device"])
    if gb * GIGA < memory * SOLD_GIGA:
        return gb
    text = f"reserved_gb is {gb:g}, and memory_gb of [device] {memory:g}: write less"
    raise file.at("constants", "reserved_gb", text)


def _peaks(file: Figures) -> dict[str, float]:
    present = file.section("device")
    usual = "fp32" if "bf16_tflops" not in present and "fp32_tflops" in present else "bf16"
    return {
        precision: file.number("device", f"{precision}_tflops", SIZE) * TERA
        for precision in (usual, "fp8", "fp4")
        if precision == usual or f"{precision}_tflops" in present
    }


def _link(file: Figures, section: str, gpus: int) -> Link:
    return Link(
        bytes_per_s=file.number(section, "gb_per_s", SIZE) * GIGA,
        gpus=gpus,
        latency_s=file.number(section, "latency_us", LATENCY) * MICRO,
        reduces_in_switch=file.number(section, "reduces_in_switch", RATIO),
        efficiency=file.number("constants", f"{section}_efficiency", SHARE),
    )


def constants_of(machine: Machine) -> dict[str, float]:
    """The fitted constants of a device, by the names they have in its file."""
    known = {field.name: getattr(machine, field.name) for field in fields(machine)}
    known |= {
        "kernel_us": machine.kernel_s / MICRO,
        "gpu_link_efficiency": machine.link.efficiency,
        "nic_efficiency": machine.nic.efficiency,
        "reserved_gb": machine.reserved_bytes / GIGA,
    }
    return {name: known[name] for name in CONSTANTS}
