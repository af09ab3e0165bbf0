"""Pools: their table, rows between unlike widths, and the threads that carry them."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rpeg.runtime.errors import LayoutFailure, ReplayFailure, RuntimeFailure
from rpeg.runtime.pools.admission import Versions, Window
from rpeg.runtime.pools.choices import Choices
from rpeg.runtime.pools.couriers import Receiver, Sender
from rpeg.runtime.pools.rows import cut, joined, routes
from rpeg.runtime.pools.table import Pools
from rpeg.runtime.pools.wire import pack, unpack
from rpeg.runtime.recordings.recording import Recording, StepRecord
from rpeg.runtime.trajectories import Pairs, Prompts, Row, Trajectories, sample_ids

Make = Callable[[int], Trajectories]


def table(**bounds: tuple[int, int]) -> Pools:
    return Pools.of(bounds, mine="trainer", home="trainer", processes=3)


def test_pools_are_in_the_order_of_their_processes() -> None:
    pools = table(trainer=(1, 3), rollout=(0, 1))
    assert list(pools.ranges) == ["rollout", "trainer"]
    assert (pools.away, pools.at_home, pools.several) == (["rollout"], True, True)
    pools.check(2)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"trainer": (0, 2)}, "the pools of 3 processes must hold each of them once: trainer 0..1"),
        ({"trainer": (0, 2), "b": (1, 3)}, "must hold each of them once: trainer 0..1, b 1..2"),
        ({"trainer": (0, 3), "b": (3, 3)}, "must hold each of them once"),
        ({"a": (0, 3)}, "there is no pool `trainer`, only a"),
    ],
)
def test_pools_that_do_not_fit(bounds: dict[str, tuple[int, int]], message: str) -> None:
    with pytest.raises(LayoutFailure, match=message):
        table(**bounds)


def test_a_process_of_another_pool() -> None:
    with pytest.raises(
        LayoutFailure, match="process 0 belongs to pool `rollout`, and runs the pro"
    ):
        table(trainer=(1, 3), rollout=(0, 1)).check(0)


def shares(width: int, copies: int, first: int) -> dict[int, tuple[int, int]]:
    """Processes from `first` on, `copies` of each share side by side."""
    return {first + k: (k // copies, width) for k in range(width * copies)}


def sent(value: Any, a: int, b: int, copies: tuple[int, int]) -> dict[int, Any]:
    """What each process of width b gets of a batch that is spread over width a."""
    source, target = shares(a, copies[0], 0), shares(b, copies[1], 100)
    whole = cut_evenly(value, a)
    plan = routes(source, target)
    used = {route.src for route in plan}
    assert len(used) == min(len(source), len(plan)), "copies share the work"
    return {
        rank: joined(
            [cut(whole[source[r.src][0]], r, b) for r in plan if r.dst == rank],
        )
        for rank in target
    }


def cut_evenly(value: Any, width: int) -> list[Any]:
    """The shares of a batch: what routes from one process to so many give."""
    plan = routes({0: (0, 1)}, shares(width, 1, 1))
    return [cut(value, route, width) for route in plan]


@pytest.mark.parametrize(("a", "b"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (4, 2)])
@pytest.mark.parametrize("copies", [(1, 1), (2, 1), (1, 2)])
def test_each_share_gets_its_rows(
    a: int, b: int, copies: tuple[int, int], trajectories: Make
) -> None:
    y = trajectories(12 * 4)
    got, fields = sent(y, a, b, copies), sent(y.tokens, a, b, copies)
    each = len(y.rows) // b
    for rank, (index, _) in shares(b, copies[1], 100).items():
        mine = slice(index * each, (index + 1) * each)
        assert sample_ids(got[rank]) == sample_ids(y)[mine]
        assert torch.equal(got[rank].tokens, y.tokens[mine])
        assert torch.equal(fields[rank], y.tokens[mine])


def test_prompts_pairs_and_numbers() -> None:
    rows = tuple(Row(str(k)) for k in range(4))
    prompts = Prompts(rows, torch.arange(4))
    pairs = Pairs(rows, torch.arange(2).repeat_interleave(2))
    halves = sent(prompts, 1, 2, (1, 1))
    assert [half.rows for half in halves.values()] == [rows[:2], rows[2:]]
    assert [h.ordinals.tolist() for h in sent(pairs, 2, 1, (1, 1)).values()] == [[0, 0, 1, 1]]
    assert sent(0.5, 1, 2, (1, 1)) == {100: 0.5, 101: 0.5}


def test_groups_are_never_cut(trajectories: Make) -> None:
    with pytest.raises(LayoutFailure, match="a share of 3 rows does not divide among the 2 data-"):
        sent(trajectories(12), 1, 2, (1, 1))


def choices(monkeypatch: pytest.MonkeyPatch, setting: str | Path) -> Choices:
    monkeypatch.setenv("RPEG_VERSIONS", str(setting))
    return Choices.read(several=True)


def test_versions_are_chosen_by_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RPEG_VERSIONS", raising=False)
    assert Choices.read(several=True).of("actor") == "newest"
    assert Choices.read(several=False).of("actor") == "oldest"
    assert choices(monkeypatch, "oldest").of("actor") == "oldest"
    with pytest.raises(
        RuntimeFailure, match=r"must be newest, oldest or a run's metrics.jsonl, no"
    ):
        choices(monkeypatch, "latest")
    monkeypatch.setenv("RPEG_VERSIONS", "metrics.jsonl")
    with pytest.raises(RuntimeFailure, match=r"must be newest or oldest, not `metrics.jsonl`"):
        Choices.read(several=False)


def test_versions_are_chosen_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    chosen = [0, 0, 2, 2]
    lines = [{"step": i + 1, "version/actor": float(v)} for i, v in enumerate(chosen)]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = choices(monkeypatch, log)
    versions = Versions[str](Window(2), found.of("actor"))
    taken = []
    for i in range(4):
        versions.arrive(i, str(i))
        assert versions.ready(i)
        taken.append(versions.take(i)[0])
    assert taken == chosen
    with pytest.raises(RuntimeFailure, match=r"metrics.jsonl says nothing of step 5"):
        versions.ready(4)
    with pytest.raises(RuntimeFailure, match="has no `version/critic`"):
        found.of("critic")


def test_a_recording_says_which_versions_wrote_it(trajectories: Make) -> None:
    def step(*versions: int) -> StepRecord:
        y = trajectories(4)
        written = torch.tensor(versions).repeat(2).unsqueeze(1)
        y = replace(y, versions=torch.where(y.mask, written, -1))
        return StepRecord(trajectories={"y": y}, makers={"y": "actor"})

    chosen = Choices.recorded_in(Recording("p", [step(0, 0), step(1, 1)]), "here")
    assert chosen.of("actor") == {0: 0, 1: 1}
    with pytest.raises(RuntimeFailure, match="has no `version/critic`"):
        chosen.of("critic")
    with pytest.raises(
        ReplayFailure, match=r"step 2 of the recording.* several versions of `actor`"
    ):
        Choices.recorded_in(Recording("p", [step(0, 0), step(0, 1)]), "here")


class Hose:
    """A wire within one process: whoever sends waits until it is received."""

    def __init__(self) -> None:
        self._held: queue.Queue[Tensor] = queue.Queue()
        self._wanted = threading.Semaphore(0)

    def send_bytes(self, data: Tensor, to: int) -> None:
        self._wanted.acquire()
        self._held.put(data)

    def receive_bytes(self, source: int) -> Tensor:
        self._wanted.release()
        return self._held.get()


class CutHose(Hose):
    """Breaks with the third message."""

    def send_bytes(self, data: Tensor, to: int) -> None:
        if unpack(data) == 2:
            raise ConnectionError("cut")
        super().send_bytes(data, to)


def couriers(capacity: int, hose: Hose) -> tuple[Sender, Receiver]:
    sender = Sender("sender", lambda: (hose, [1]), bound=1)  # type: ignore[arg-type, return-value]
    receiver = Receiver(
        "receiver",
        lambda: (hose, [0]),  # type: ignore[arg-type, return-value]
        capacity=capacity,
    )
    return sender, receiver


@pytest.mark.parametrize("capacity", [1, 2, 3])
def test_at_most_capacity_are_on_the_way(capacity: int) -> None:
    sender, receiver = couriers(capacity, Hose())
    count, events, lock = 20, list[int](), threading.Lock()

    def put_all() -> None:
        for k in range(count):
            sender.put(k)
            with lock:
                events.append(+1)

    putting = threading.Thread(target=put_all)
    putting.start()
    for k in range(count):
        with lock:
            events.append(-1)  # before: a put may return while this one is on its way
        assert receiver.take() == [k]
    putting.join()
    waiting = [sum(events[: k + 1]) for k in range(len(events))]
    assert max(waiting) <= capacity
    assert len(events) == 2 * count
    for courier in (sender, receiver):
        courier.end()
    for courier in (sender, receiver):
        courier.finish()
        assert not courier.is_alive()


def test_the_next_one_is_fetched_while_one_is_worked_on() -> None:
    sender, receiver = couriers(2, Hose())
    first = threading.Timer(0.05, sender.put, [0])
    first.start()
    assert receiver.take() == [0], "it had to wait"
    sender.put(1)
    deadline = time.monotonic() + 10
    while receiver.here < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    assert receiver.here == 1


def test_an_error_comes_up_in_the_next_call() -> None:
    sender, receiver = couriers(3, CutHose())
    with pytest.raises(ConnectionError, match="cut"):
        for k in range(5):
            sender.put(k)
    assert [receiver.take() for _ in range(2)] == [[0], [1]]


def test_nothing_more_comes() -> None:
    sender, receiver = couriers(2, Hose())
    sender.put("last")
    sender.end()
    assert receiver.take() == ["last"]
    with pytest.raises(RuntimeFailure, match="receiver: the other pool's program has ended before"):
        receiver.take()


def test_messages_are_as_they_were_put() -> None:
    values = torch.zeros(2)
    packed = pack(values)
    values += 1
    assert unpack(packed).tolist() == [0, 0]
