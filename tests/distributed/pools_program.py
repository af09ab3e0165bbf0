"""Programs of pools without a model: an echo engine ahead of a pool that keeps the books, with or
without a pool between them.

POOLS names the pools and their processes, `rollout:1,trainer:2`; a process runs its pool's program.
With DIE set to a process's number, it dies in the fourth step of the first attempt. With STOP, the
home pool stops after its third step.
"""

from __future__ import annotations

import os
import time

import torch
from runs_program import EchoEngine

from rpeg import runtime as rt
from rpeg.runtime import world
from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.state.ledger import consumed

STEPS = 6
SIZE = 4


def bounds() -> dict[str, tuple[int, int]]:
    """The pools of the launch."""
    found, first = {}, 0
    for item in os.environ["POOLS"].split(","):
        name, width = item.split(":")
        found[name] = (first, first + int(width))
        first += int(width)
    return found


def start(pool: str) -> tuple[rt.Run, int]:
    pools = bounds()
    processes = max(past for _, past in pools.values())
    run = rt.start(
        pipeline="pools",
        steps=STEPS,
        processes=processes,
        source_sha256="0",
        pools=pools,
        pool=pool,
        home="trainer",
    )
    width = pools[pool][1] - pools[pool][0]
    groups = run.groups(rt.Layout(tp=2) if os.environ.get("TP") == pool else rt.Layout(dp=width))
    return run, groups.dp_size


def channel(run: rt.Run, name: str, source: str = "rollout", target: str = "trainer") -> rt.Channel:
    capacity = int(os.environ.get("CAPACITY", "2"))
    return rt.Channel(run, name, source=source, target=target, capacity=capacity)


def dies(run: rt.Run, i: int) -> None:
    if os.environ.get("DIE") == str(world.process()) and run.record.attempt == 1 and i == 3:
        while not read_metrics(run.folder.metrics):
            time.sleep(0.01)  # an attempt counts once a step is in the books
        os._exit(1)


def rollout() -> None:
    run, _ = start("rollout")
    train = rt.PromptData(run, "train", source="rows.jsonl")
    y_channel, engine = channel(run, "y"), EchoEngine()
    asked = channel(run, "asked", target="ref") if "ref" in bounds() else None
    run.restore()
    for i in run.loop():
        y, lp = engine.generate(train.batch(size=SIZE), n=2)
        dies(run, i)
        run.log("generated", len(y.rows), how="sum")
        run.note("rollout", "hello")
        y_channel.put(y, lp, y.ordinals.double() + i)
        if asked is not None:
            asked.put(y)
    run.finish()


def ref() -> None:
    run, _ = start("ref")
    answered = channel(run, "answered", source="ref")
    asked = channel(run, "asked", target="ref")
    seen = channel(run, "seen", source="trainer", target="ref")
    run.restore()
    for i in run.loop():
        (y,) = asked.take(step=i)
        assert seen.take(step=i) == (i,)
        answered.put(y.ordinals + 100, i)
    run.finish()


def trainer() -> None:
    run, shares = start("trainer")
    y_channel = channel(run, "y")
    answered = channel(run, "answered", source="ref") if "ref" in bounds() else None
    seen = channel(run, "seen", source="trainer", target="ref") if "ref" in bounds() else None
    run.restore()
    for i in run.loop():
        y, lp, ordinals = y_channel.take(step=i)
        if seen is not None:
            seen.put(i)
        assert len(y.rows) == 2 * SIZE // shares == len(lp), (len(y.rows), shares)
        assert torch.equal(ordinals, y.ordinals.double() + i)
        if answered is not None:
            hundreds, number = answered.take(step=i)
            assert torch.equal(hundreds, y.ordinals + 100)
            assert number == i
        dies(run, i)
        everything = torch.ones(len(y.rows), dtype=torch.bool)
        run.ledger.note(
            consumed("nobody", y, y.tokens, y.mask, everything, epochs=1, minibatches=1)
        )
        run.report(y, r=torch.ones(len(y.rows)))
        if run.every(i, steps=2):
            run.checkpoint(keep=1)
        if os.environ.get("STOP") and i == 2:
            run.stop(1.0, above=0.0)
    run.finish()


def pool_of_process() -> str:
    rank = int(os.environ.get("RANK", "0"))
    (pool,) = (name for name, (first, past) in bounds().items() if first <= rank < past)
    return pool


if __name__ == "__main__":
    {"rollout": rollout, "ref": ref, "trainer": trainer}[pool_of_process()]()
