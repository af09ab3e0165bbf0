"""Wall seconds of a publish: against a raw gloo broadcast of the same bytes in the same buckets.

    python benchmarks/publish.py [--layers 12] [--hidden 512] [--dtype fp32] [--rounds 7]

Two processes on this machine, a trainer's and a generator's. A publish copies the trainer's
parameters, takes their digest, sends them and puts them together as whole tensors on the other
side, whose engine compares digests when it uses them; the broadcast sends buffers that lie ready.
They take turns. Prints the medians and their ratio.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import torch
from torch import Tensor

from rpeg.runtime import world
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.pools.wire import Wire
from rpeg.runtime.publish.link import Inbox, Link, Outbox, connect
from rpeg.runtime.publish.plan import MIB, Share
from rpeg.sharding.decoder import Split

TRAINER, GENERATOR = 0, 1
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def main() -> None:
    """Runs the benchmark, in two processes that this one starts."""
    options = parse()
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        side(options)
        return
    launcher = [sys.executable, "-m", "rpeg.runtime.launch", "--standalone", "--nproc-per-node=2"]
    path = os.environ.get("PYTHONPATH", "")
    root = str(Path(__file__).resolve().parents[1])
    subprocess.run(
        [*launcher, __file__, *sys.argv[1:]],
        env=os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{path}"},
        check=True,
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--dtype", choices=DTYPES, default="fp32")
    parser.add_argument("--bucket-mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def side(options: argparse.Namespace) -> None:
    """One of the two processes."""
    shape, dtype = shape_of(options), DTYPES[options.dtype]
    (whole,) = Split(shape).sharding().values()
    wire = Wire("publish", [TRAINER, GENERATOR])
    trains = wire.place == TRAINER
    share = Share(holds=whole) if trains else Share(wants=whole)
    types = {held.tensor: dtype for held in whole} if trains else {}
    link = connect(wire, share, types, bucket_bytes=options.bucket_mib * MIB)
    arrays = [torch.randn(held.box.shape).to(dtype) for held in whole]
    publish, broadcast = publishing(link, arrays), broadcasting(link)
    seconds = [(timed(wire, publish), timed(wire, broadcast)) for _ in range(options.rounds + 1)]
    if trains:
        print("\n".join(report(shape, link, seconds[1:])))  # the first one meets cold memory
    world.exit_at_once()


def shape_of(options: argparse.Namespace) -> ModelShape:
    """A Qwen3 of that depth and width."""
    return ModelShape(
        family="qwen3",
        vocab=32768,
        hidden=options.hidden,
        ffn=3 * options.hidden,
        layers=options.layers,
        heads=options.hidden // 64,
        kv_heads=max(1, options.hidden // 256),
        head_dim=64,
        eps=1e-6,
        rope_theta=1e6,
        rope_factor=None,
        qkv_bias=False,
        qk_norm=True,
        tied=True,
        positions=4096,
        init_std=0.02,
    )


def publishing(link: Link, arrays: list[Tensor]) -> Callable[[], None]:
    """One publish, as this process takes part in it."""
    if link.me == GENERATOR:
        inbox = Inbox(link)

        def receive() -> None:
            assert inbox.next_version() == 0
            inbox.receive(arrays)

        return receive
    outbox = Outbox(link)

    def send() -> None:
        thread = Thread(target=outbox.send, args=(0,))
        thread.start()
        outbox.fill(arrays)
        thread.join()

    return send


def broadcasting(link: Link) -> Callable[[], None]:
    """The same bytes, by gloo alone."""
    messages = [torch.zeros(bucket.size, dtype=torch.uint8) for bucket in link.buckets]

    def broadcast() -> None:
        for message in messages:
            link.wire.broadcast(message, TRAINER)

    return broadcast


def timed(wire: Wire, work: Callable[[], None]) -> float:
    """Wall seconds until both processes are through."""
    wire.gather(None)
    begin = time.perf_counter()
    work()
    wire.gather(None)
    return time.perf_counter() - begin


def report(shape: ModelShape, link: Link, seconds: list[tuple[float, float]]) -> Iterator[str]:
    """What was measured."""
    size = sum(bucket.size for bucket in link.buckets)
    publish, broadcast = (statistics.median(times) for times in zip(*seconds, strict=True))
    ratios = sorted(there / here for here, there in seconds)
    millions, mebibytes = shape.parameters / 1e6, size / MIB
    yield f"{millions:.1f} M parameters, {mebibytes:.0f} MiB, {len(link.buckets)} buckets"
    yield f"publish    {publish:7.3f} s {size / publish / 1e9:6.2f} GB/s"
    yield f"broadcast  {broadcast:7.3f} s {size / broadcast / 1e9:6.2f} GB/s"
    yield (
        f"ratio      {broadcast / publish:7.2f}   of pairs {statistics.median(ratios):.2f} "
        f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )


if __name__ == "__main__":
    main()
