"""What the processes of a calibration measure: times of kernels, copies and collectives."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Timed:
    """Some work and the seconds it took, on the slowest process."""

    work: float
    """FLOPs of a kernel, bytes of a copy."""
    seconds: float


@dataclass(frozen=True)
class Exchange:
    """A collective; `bytes` is its count, as `rpeg.cost.collectives.collective` takes it."""

    operation: str
    bytes: float
    seconds: float


@dataclass(frozen=True)
class Measured:
    """One machine, all of its processes working at once."""

    device: str
    """The GPU's name, or the kind of core."""
    backend: str
    """Of collectives: nccl or gloo."""
    processes: int
    gpus: int
    """Of this machine; 0 where processes compute on cores."""
    cores: int
    memory_bytes: float
    """Of a GPU; on cores, a process's share of the host's."""
    reserved_bytes: float
    """The part of it that no tensor can have."""
    host_bytes: float
    matmuls: tuple[Timed, ...]
    attention: tuple[Timed, ...]
    heads: tuple[Timed, ...]
    """Attention over short sequences; work is their number times heads."""
    streams: tuple[Timed, ...]
    """Reads and writes of the device's memory."""
    host_copies: tuple[Timed, ...]
    """Between the device's memory and the host's."""
    forwards: tuple[Timed, ...]
    """Decode steps of a tiny model, launched by Python; work is their sequences."""
    collectives: tuple[Exchange, ...]
    """None with one process."""

    @classmethod
    def of_json(cls, table: dict[str, Any]) -> Measured:
        """What `to_json` made."""
        timed = ("matmuls", "attention", "heads", "streams", "host_copies", "forwards")
        lists = {name: tuple(Timed(**one) for one in table[name]) for name in timed}
        exchanges = tuple(Exchange(**one) for one in table["collectives"])
        return cls(**{**table, **lists, "collectives": exchanges})

    def to_json(self) -> dict[str, Any]:
        """Plain lists and objects."""
        return asdict(self)
