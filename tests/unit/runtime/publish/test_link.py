"""A model crosses between processes, bit by bit, in every layout; damage is caught."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from rpeg.runtime.pools.wire import Wire
from rpeg.runtime.publish.digest import checksum, nothing, shown
from rpeg.runtime.publish.link import Inbox, Outbox, connect
from rpeg.runtime.publish.plan import Share, plan
from rpeg.sharding.boxes import Held, Sharding
from rpeg.sharding.decoder import Split
from tests.unit.runtime.publish.models import SHAPE, after, cut, weights, whole
from tests.unit.runtime.publish.processes import as_processes

LAYOUTS = {
    "tp2": Split(SHAPE, tp=2).sharding(),
    "pp2": Split(SHAPE, pp=2).sharding(),
    "dp2": Split(SHAPE).sharding(2),
    "tp2pp2": Split(SHAPE, tp=2, pp=2).sharding(),
    "tp2pp2vpp2dp2": Split(SHAPE, tp=2, pp=2, vpp=2).sharding(2),
}
VERSIONS = 3


def sender(ranks: range, held: list[Held], dtype: torch.dtype) -> list[object]:
    """Sends three versions; what it counted of each."""
    types = {part.tensor: dtype for part in held}
    box = Outbox(connect(Wire("w", ranks), Share(holds=held), types, bucket_bytes=512))
    parts: list[object] = []
    for version in range(VERSIONS):
        parts.append(box.fill(cut(held, weights(version, dtype))))
        box.send(version)
    box.end()
    return parts


def receiver(ranks: range, held: list[Held], dtype: torch.dtype) -> list[tuple[int, list[Tensor]]]:
    """What arrives: versions and arrays."""
    box = Inbox(connect(Wire("w", ranks), Share(wants=held), {}, bucket_bytes=512))
    found = []
    while (version := box.next_version()) is not None:
        arrays = [torch.zeros(part.box.shape, dtype=dtype) for part in held]
        digest = box.receive(arrays)
        if held == whole():
            assert shown(digest) == checksum(weights(version, dtype).items())
        found.append((version, arrays))
    return found


def launch(
    patch: pytest.MonkeyPatch, source: Sharding, target: Sharding, dtype: torch.dtype
) -> list[object]:
    """What each process found."""
    ranks = range(len(source) + len(target))
    bodies: list[Callable[[], object]] = [
        *(partial(sender, ranks, list(held), dtype) for held in source.values()),
        *(partial(receiver, ranks, list(held), dtype) for held in target.values()),
    ]
    return as_processes(patch, bodies)


@pytest.mark.parametrize("engines", [1, 2])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_from_any_layout_to_engines(
    layout: str, engines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dtype = torch.bfloat16 if layout == "dp2" else torch.float32
    source = LAYOUTS[layout]
    found = launch(monkeypatch, source, dict.fromkeys(range(engines), whole()), dtype)
    for versions in found[len(source) :]:
        assert isinstance(versions, list) and [v for v, _ in versions] == list(range(VERSIONS))
        for version, arrays in versions:
            expected = weights(version, dtype)
            assert all(map(torch.equal, arrays, expected.values()))
    for version in range(VERSIONS):  # the trainer's own count is the engine's
        parts = [p[version] for p in found[: len(source)] if isinstance(p, list)]
        assert shown(sum(parts, nothing())) == checksum(weights(version, dtype).items())


@pytest.mark.parametrize(("source", "target"), [("tp2", "pp2"), ("tp2pp2", "dp2"), ("dp2", "tp2")])
def test_from_any_layout_to_any_other(
    source: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = launch(monkeypatch, LAYOUTS[source], LAYOUTS[target], torch.float32)
    wanted = after(len(LAYOUTS[source]), LAYOUTS[target])
    for rank, held in wanted.items():
        versions = found[rank]
        assert isinstance(versions, list)
        for version, arrays in versions:
            assert all(map(torch.equal, arrays, cut(held, weights(version))))


def test_damage_on_the_way_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    start, sent = Wire.start_sending, list[Tensor]()
    shares = {rank: Share(holds=held) for rank, held in LAYOUTS["tp2"].items()}
    widths = {name: 4 for name, _ in SHAPE.tensors()}
    found = plan(shares | {2: Share(wants=whole())}, widths, 512)
    buckets_each = sum(bucket.source == 1 for bucket in found)

    def damaging(self: Wire, tensor: Tensor, to: int) -> object:
        if tensor.dtype == torch.uint8 and self.place == 1:
            sent.append(tensor)
            tensor[0] ^= 4 * (len(sent) == buckets_each + 1)
        return start(self, tensor, to)

    def wary() -> list[bool]:
        box = Inbox(connect(Wire("w", range(3)), Share(wants=whole()), {}, bucket_bytes=512))
        arrays, same = {part.tensor: torch.zeros(part.box.shape) for part in whole()}, []
        while box.next_version() is not None:
            sent = box.receive(list(arrays.values()))
            same.append(checksum(arrays.items()) == shown(sent))
        return same

    monkeypatch.setattr(Wire, "start_sending", damaging)
    sending = [partial(sender, range(3), list(h), torch.float32) for h in LAYOUTS["tp2"].values()]
    assert as_processes(monkeypatch, [*sending, wary])[-1] == [True, False, True]
