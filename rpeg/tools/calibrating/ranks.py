"""One process of a calibration: `python ranks.py OUT ROUNDS`, started by torchrun's agent.

Every process does the same at the same time, so that each has the share of memory, caches and links
that it has in training. Process 0 writes what was measured to OUT, as JSON.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from rpeg.ir.clusters import load_cluster
from rpeg.lifetime import die_with_parent
from rpeg.runtime.engine.decoder import Cache, Decoder
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.numerics.memory import keep_freed_memory
from rpeg.tools.calibrating import probe
from rpeg.tools.calibrating.measured import Exchange, Measured, Timed

LEAST_S = 0.02
"""The least length of one round of a measurement, well above the jitter of clocks and schedulers.
"""

ALTERNATIONS = 12
"""Messages of a round."""
MOST_PAIRS = 1024
"""Of operands: there are so many small ones that even a table of them would not fit."""
BESIDE = 256
"""Side of the square product between two messages."""

Work = Callable[[], object]


@dataclass(frozen=True)
class Sizes:
    """What is measured on a kind of device."""

    dtype: torch.dtype
    cubes: tuple[int, ...]
    """Sides of square matmuls."""
    attention: tuple[tuple[int, int, int], ...]
    """Heads, sequence, width of a head."""
    operands_mib: int
    """Of products, all in turn."""
    stream_mib: int
    messages: tuple[int, ...]
    """Bytes of collectives."""


ON_CORES = Sizes(
    dtype=torch.float32,
    cubes=(32, 64, 128, 256, 512, 768),
    attention=((8, 256, 64), (8, 512, 64)),
    operands_mib=16,
    stream_mib=64,
    messages=tuple(4 << power for power in range(10, 23, 2)),
)
ON_GPUS = Sizes(
    dtype=torch.bfloat16,
    cubes=(512, 1024, 2048, 4096, 8192),
    attention=((32, 2048, 128), (32, 4096, 128)),
    operands_mib=0,
    stream_mib=512,
    messages=tuple(4 << power for power in range(10, 27, 2)),
)


@dataclass(frozen=True)
class Bench:
    """Times work on every process at once."""

    device: torch.device
    sizes: Sizes
    rounds: int
    clock: Callable[[], float] = time.perf_counter

    def seconds(self, work: Work) -> float:
        """The median over rounds of one call's seconds, on the slowest process.

        The first calls, which meet cold caches and choose kernels, tell how many fill a round.
        """
        self._round(work, 1)
        calls = max(1, round(LEAST_S / max(self._round(work, 2), 1e-7)))
        calls = int(self._largest(calls))
        return self._largest(statistics.median(self._rounds(work, calls)))

    def seconds_between(self, work: Work, other: Work) -> float:
        """The same of work that each time follows other work, as messages do: whoever waits for
        them has gone to sleep meanwhile, and caches hold something else.
        """
        self._round(work, 1)
        return self._largest(statistics.median(self._apart(work, other)))

    def _apart(self, work: Work, other: Work) -> Iterator[float]:
        for _ in range(self.rounds):
            dist.barrier()
            taken: list[float] = []
            while len(taken) < ALTERNATIONS:
                other()
                self._wait()
                taken.append(self._round(work, 1))
            yield statistics.mean(taken)

    def _rounds(self, work: Work, calls: int) -> Iterator[float]:
        for _ in range(self.rounds):
            dist.barrier()
            yield self._round(work, calls)

    def _round(self, work: Work, calls: int) -> float:
        """Seconds per call of a round."""
        self._wait()
        begin = self.clock()
        for _ in range(calls):
            work()
        self._wait()
        return (self.clock() - begin) / calls

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _largest(self, value: float) -> float:
        found = torch.tensor(value, dtype=torch.float64, device=self.device)
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return float(found)


def matmuls(bench: Bench) -> Iterator[Timed]:
    """Products of square matrices, of as many in turn as the caches next to a core don't hold: in a
    step, too, something else was computed since operands were there.
    """
    for side in bench.sizes.cubes:
        pair = 2 * side**2 * bench.sizes.dtype.itemsize
        count = min(max(bench.sizes.operands_mib * 2**20 // pair, 1), MOST_PAIRS)
        pairs = [(_random(bench, side, side), _random(bench, side, side)) for _ in range(count)]
        yield Timed(2.0 * side**3, bench.seconds(partial(_next_product, cycle(pairs))))


def _next_product(pairs: Iterator[tuple[Tensor, Tensor]]) -> None:
    torch.matmul(*next(pairs))


def attention(bench: Bench) -> Iterator[Timed]:
    """Causal attention, forward; half of the scores count."""
    for heads, length, width in bench.sizes.attention:
        q, k, v = (_random(bench, 1, heads, length, width) for _ in range(3))
        attend = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
        yield Timed(2.0 * heads * length**2 * width, bench.seconds(attend))


def heads(bench: Bench) -> Iterator[Timed]:
    """The same where sequences are so short that their number counts."""
    sequences, count, width = probe.SEQUENCES[-1], probe.HEADS, probe.HEAD_DIM
    shape = (sequences, probe.PAST, count, width)
    q, k, v = (_random(bench, *shape).transpose(1, 2) for _ in range(3))
    attend = partial(F.scaled_dot_product_attention, q, k, v, is_causal=True)
    yield Timed(float(sequences * count), bench.seconds(attend))


def streams(bench: Bench) -> Iterator[Timed]:
    """A triad: two arrays read, one written."""
    elements = bench.sizes.stream_mib * 2**20 // 4
    a, b, c = (torch.ones(elements, device=bench.device) for _ in range(3))
    yield Timed(12.0 * elements, bench.seconds(lambda: torch.add(a, b, alpha=2.0, out=c)))


def host_copies(bench: Bench) -> Iterator[Timed]:
    """Both ways between the device and page-locked memory of the host; on cores, a copy."""
    size = bench.sizes.stream_mib * 2**20
    on_gpu = bench.device.type == "cuda"
    here = torch.ones(size, dtype=torch.uint8, pin_memory=on_gpu)
    there = torch.ones(size, dtype=torch.uint8, device=bench.device)
    yield Timed(size, bench.seconds(lambda: there.copy_(here, non_blocking=True)))
    yield Timed(size, bench.seconds(lambda: here.copy_(there, non_blocking=True)))


def forwards(bench: Bench) -> Iterator[Timed]:
    """Decode steps of a tiny model in the embedded engine, with few sequences and with many."""
    decoder, device = _tiny_decoder(bench), bench.device
    for rows in probe.SEQUENCES:
        ids = torch.ones(rows, 1, dtype=torch.long, device=device)
        caches = cycle([decoder.cache(rows, probe.SLOTS) for _ in range(probe.CHUNKS)])
        bias = torch.zeros(rows, 1, probe.PAST + 1, device=device)
        step = partial(_next_step, decoder, ids, caches, bias)
        yield Timed(rows, bench.seconds(step))


def _next_step(decoder: Decoder, ids: Tensor, caches: Iterator[Cache], bias: Tensor) -> None:
    decoder.step(ids, ids * probe.PAST, next(caches), probe.PAST, bias)


def _tiny_decoder(bench: Bench) -> Decoder:
    shape = ModelShape(
        family="qwen3",
        vocab=probe.VOCABULARY,
        hidden=probe.HIDDEN,
        ffn=probe.FFN,
        layers=probe.LAYERS,
        heads=probe.HEADS,
        kv_heads=probe.HEADS,
        head_dim=probe.HEAD_DIM,
        eps=1e-6,
        rope_theta=1e4,
        rope_factor=None,
        qkv_bias=False,
        qk_norm=True,
        tied=True,
        positions=2 * probe.PAST,
        init_std=0.02,
    )
    weights = {name: _random(bench, *sides) for name, sides in shape.tensors()}
    return Decoder(shape, weights, bench.sizes.dtype)


def collectives(bench: Bench) -> Iterator[Exchange]:
    """What tensor and data parallelism send, small and large, between pieces of other work."""
    ranks = dist.get_world_size()
    a, b = (_random(bench, BESIDE, BESIDE) for _ in range(2))
    product = partial(torch.matmul, a, b)
    for size in bench.sizes.messages if ranks > 1 else ():
        share = size // 4 // ranks
        whole = torch.ones(share * ranks, device=bench.device)
        part = torch.ones(share, device=bench.device)
        works: dict[str, Work] = {
            "all_reduce": partial(dist.all_reduce, whole),
            "all_gather": partial(dist.all_gather_into_tensor, whole, part),
            "reduce_scatter": partial(dist.reduce_scatter_tensor, part, whole),
            "broadcast": partial(dist.broadcast, whole, 0),
        }
        for operation, work in works.items():
            seconds = bench.seconds_between(work, product)
            yield Exchange(operation, 4.0 * share * ranks, seconds)


def _random(bench: Bench, *shape: int) -> Tensor:
    return torch.rand(shape, device=bench.device, dtype=bench.sizes.dtype)


def measure(bench: Bench) -> Measured:
    """Everything, in one order on all processes."""
    gpus = torch.cuda.device_count() if bench.device.type == "cuda" else 0
    host = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    measured = partial(
        Measured,
        matmuls=tuple(matmuls(bench)),
        attention=tuple(attention(bench)),
        heads=tuple(heads(bench)),
        streams=tuple(streams(bench)),
        host_copies=tuple(host_copies(bench)),
        forwards=tuple(forwards(bench)),
        collectives=tuple(collectives(replace(bench, clock=time.perf_counter))),
    )
    memory, reserved = _memory(bench.device, host)
    return measured(
        device=torch.cuda.get_device_name() if gpus else f"{platform.machine()} core",
        backend=dist.get_backend(),
        processes=dist.get_world_size(),
        gpus=gpus,
        cores=load_cluster("cpu").cores,
        memory_bytes=memory,
        reserved_bytes=reserved,
        host_bytes=host,
    )


def _memory(device: torch.device, host: float) -> tuple[float, float]:
    """Bytes of one process, and those of them that its libraries keep."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return float(total), float(total - free - torch.cuda.memory_reserved())
    return host / dist.get_world_size(), _resident_at_start


def _resident() -> float:
    """The most bytes that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak * (1 if sys.platform == "darwin" else 1024))


_resident_at_start = _resident()


def _on_cores(rounds: int) -> Bench:
    """Its clock stands still while other processes have the core; waits for a GPU or a peer do not
    count as work.
    """
    return Bench(torch.device("cpu"), ON_CORES, rounds, time.thread_time)


def main(out: str, rounds: int) -> None:
    """Measures as one of the processes."""
    on_gpu = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if on_gpu:
        torch.cuda.set_device(local)
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    keep_freed_memory()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    on_gpus = Bench(torch.device("cuda", local), ON_GPUS, rounds)
    measured = measure(on_gpus if on_gpu else _on_cores(rounds))
    if dist.get_rank() == 0:
        Path(out).write_text(json.dumps(measured.to_json()), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    die_with_parent()
    main(sys.argv[1], int(sys.argv[2]))
