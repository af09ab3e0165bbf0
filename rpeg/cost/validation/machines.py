"""From what a record calls its GPUs to one of our machines, with the record's node and network."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from rpeg.cost.hardware import Machine, load_machine
from rpeg.cost.validation.rows import Row, Unknown, loaded

MACHINES = (
    (r"gb300", "gb300"),
    (r"gb200", "gb200"),
    (r"gh200", "gh200"),
    (r"b300", "b300"),
    (r"b200", "b200"),
    (r"h200", "h200"),
    (r"h100", "h100"),
    (r"h800", "h800"),
    (r"h20\b", "h20"),
    (r"a100.*\b40 ?g", "a100_40gb"),
    (r"a100", "a100"),
    (r"a800", "a800"),
    (r"mi300", "mi300x"),
    (r"mi325", "mi325x"),
    (r"mi350", "mi350x"),
    (r"mi355", "mi355x"),
    (r"l40s", "l40s"),
    (r"a6000", "a6000"),
    (r"v100", "v100"),
)
"""What a record's GPU is called, and our machine; the first that is found counts."""


@dataclass(frozen=True)
class Variant:
    """A card whose datasheet differs from that of the module with the same name."""

    named: str
    """What its name has."""
    machine: str
    bf16_flops: float
    hbm_bytes_per_s: float
    memory_bytes: float
    switched: bool
    """Whether it has the module's links; a card for PCIe has that bus."""


PCIE_BYTES_PER_S = {"h100": 64e9, "a100": 32e9}
"""Of a direction: PCIe 5 and PCIe 4 with 16 lanes."""

VARIANTS = (
    Variant("pcie", "h100", 756e12, 2.04e12, 80 * 2.0**30, switched=False),
    Variant("nvl", "h100", 835e12, 3.9e12, 94 * 2.0**30, switched=False),
    Variant("pcie", "a100", 312e12, 1.94e12, 80 * 2.0**30, switched=False),
    Variant("hbm2e", "h100", 989e12, 2.4e12, 96 * 2.0**30, switched=True),
)
"""NVIDIA's datasheets of H100 and A100; the last is the card that Meta's Grand Teton has."""

WATTS = {"h100": 700.0, "h200": 700.0, "h800": 700.0, "a100": 400.0, "a800": 400.0, "b200": 1000.0}
"""What a module may draw, by its datasheet."""


def machine(row: Row) -> Machine:
    """The record's machine, with its own node size and network. Raises Unknown."""
    if named := row.file("hardware", "machine"):
        return loaded(load_machine, named)
    hardware = row.table("hardware")
    name = f"{hardware.get('gpu_class', '')} {hardware.get('gpu', '')}".lower()
    if not name.strip():
        raise Unknown("no hardware.gpu")
    found = next((ours for theirs, ours in MACHINES if re.search(theirs, name)), None)
    if found is None:
        raise Unknown(f"no machine for {hardware.get('gpu')}")
    known = load_machine("alps" if _system(row, "alps") else found)
    return _own_network(_capped(_variant(known, found, name), found, name), row)


def _system(row: Row, word: str) -> bool:
    return word in str(row.table("hardware").get("system", "")).lower()


def _variant(known: Machine, found: str, name: str) -> Machine:
    """The card that the name tells of."""
    named = (v for v in VARIANTS if v.machine == found and v.named in name)
    variant = next(named, None)
    if variant is None:
        return known
    share = variant.bf16_flops / known.flops["bf16"]
    link = known.link
    if not variant.switched:
        bus = PCIE_BYTES_PER_S[found]
        link = replace(link, bytes_per_s=bus, reduces_in_switch=0.0)
    return replace(
        known,
        flops={precision: share * rate for precision, rate in known.flops.items()},
        hbm_bytes_per_s=variant.hbm_bytes_per_s,
        memory_bytes=variant.memory_bytes,
        link=link,
    )


def _capped(known: Machine, found: str, name: str) -> Machine:
    """Slower clocks where the name tells a limit of power: it goes with the cube of the clock."""
    told = re.search(r"(\d{3,4}) ?w\b", name)
    watts = float(told[1]) if told else 0.0
    if not 0 < watts < WATTS.get(found, 0.0):
        return known
    share = (watts / WATTS[found]) ** (1.0 / 3.0)
    return replace(known, flops={kind: share * rate for kind, rate in known.flops.items()})


def _own_network(known: Machine, row: Row) -> Machine:
    node = int(row.number("hardware", "gpus_per_node") or known.gpus_per_node)
    link = known.link
    if link.gpus <= 16:
        link = replace(link, gpus=min(node, 8))
    told = str(row.table("hardware").get("interconnect", ""))
    rate = _card_rate(told)
    nic = replace(known.nic, bytes_per_s=rate / node) if rate else known.nic
    if "EFA" in told or "TCPX" in told or _system(row, "a3 mega"):
        nic = replace(nic, latency_s=CLOUD_LATENCY_S)
    return replace(known, gpus_per_node=node, link=link, nic=nic)


CLOUD_LATENCY_S = 50e-6
"""A hop through Elastic Fabric Adapters, or GPUDirect-TCPX, takes several times that of
InfiniBand."""


def _card_rate(text: str) -> float | None:
    """Bytes per second of a node's cards together, where the text tells."""
    if found := re.search(r"(\d+)\s*x\s*(?:[A-Z]+ )?([\d.]+)\s*Gb/s", text):
        return int(found[1]) * float(found[2]) / 8 * 1e9
    if found := re.search(r"([\d.]+)\s*Gb/s per node", text):
        return float(found[1]) / 8 * 1e9
    if found := re.search(r"(\d+)\s*x\s*([\d.]+)\s*GB/s (?:EFA|RoCE|IB)", text):
        return int(found[1]) * float(found[2]) * 1e9
    return None
