"""Programs that train a model up to two steps behind: in one pool, or in a pool that samples and
one that trains.

POOLS names the pools (`all:1`, or `rollout:1,trainer:2`), TP the pool whose processes share the
model. With DIE, that process is killed in step DIE_IN of the first attempt. DELAYS is a seed of
random waits. With OVERFLOW, batches come in completion order; WINDOW, BOUND, OLD_SPANS, N
and MAX_TOKENS are theirs, and TOO_WIDE is how much older than the window samples are let grow.
"""

from __future__ import annotations

import os
import random
import signal
import time

import torch
from pools_program import bounds, pool_of_process
from torch import Tensor

from rpeg import runtime as rt
from rpeg.runtime import world
from rpeg.runtime.trajectories import Prompts, Trajectories

STEPS = int(os.environ.get("STEPS", "8"))
WINDOW = int(os.environ.get("WINDOW", "2"))
OVERFLOW = os.environ.get("OVERFLOW")
BOUND = os.environ.get("BOUND", "strict")
OLD_SPANS = os.environ.get("OLD_SPANS")
SAMPLING = {
    "n": int(os.environ.get("N", "4")),
    "max_tokens": int(os.environ.get("MAX_TOKENS", "6")),
    "temperature": 1.0,
}
SOURCE = "models/tiny-qwen3-digits"


def start(pool: str) -> tuple[rt.Run, rt.Groups]:
    pools = bounds()
    run = rt.start(
        pipeline="pooled",
        steps=STEPS,
        processes=max(past for _, past in pools.values()),
        source_sha256="0",
        pools=pools,
        pool=pool,
        home="all" if "all" in pools else "trainer",
    )
    width = len(range(*pools[pool]))
    return run, run.groups(
        rt.Layout(tp=width) if os.environ.get("TP") == pool else rt.Layout(dp=width)
    )


def dies(run: rt.Run, i: int) -> None:
    wanted = (os.environ.get("DIE"), os.environ.get("DIE_IN"))
    if wanted == (str(world.process()), str(i)) and run.record.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def delay(pool: str, i: int) -> None:
    """With DELAYS, a seed: mostly short, now and then long."""
    if seed := os.environ.get("DELAYS"):
        draw = random.Random(f"{seed} {pool} {i}")
        time.sleep(min(1.0, 0.03 * draw.paretovariate(0.8)))


def trained(run: rt.Run, groups: rt.Groups) -> rt.Trainer:
    return rt.Trainer(
        run,
        "actor",
        role="policy",
        source=SOURCE,
        dtype="fp32",
        optimizer=rt.AdamW(lr=1e-3),
        horizon=STEPS,
        groups=groups,
    )


def sample(engine: rt.EmbeddedEngine, q: Prompts) -> tuple[Trajectories, Tensor]:
    return engine.generate(q, **SAMPLING)


def train_on(run: rt.Run, actor: rt.Trainer, y: Trajectories, lp: Tensor) -> None:
    r = torch.tensor(
        [len(set(row.prompt) & set(t)) for row, t in zip(y.rows, y.texts, strict=True)]
    )
    adv = rt.group_advantage(y, r.float(), baseline="mean", scale="std")
    prox = actor.logprob(y)
    w = rt.importance(run, y, prox, lp, cap=5.0)
    pg = rt.ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    actor.update(pg, agg="token_mean")
    run.report(y, r=r.float())


def rollout() -> None:
    run, groups = start("rollout")
    actor = rt.SampledModel(run, "actor", source=SOURCE)
    train = rt.PromptData(run, "train", source="rows.jsonl")
    weights = rt.ReceivedWeights(run, actor, source="trainer", window=WINDOW)
    engine = rt.EmbeddedEngine(run, actor, groups=groups)
    y_channel = rt.Channel(run, "y", source="rollout", target="trainer", capacity=max(1, WINDOW))
    flight = in_completion_order(run, engine, weights) if OVERFLOW else None
    run.restore()
    for i in run.loop():
        weights.wait(step=i)
        engine.swap_weights(weights)
        engine.reset_prefix_cache()
        dies(run, i)
        delay("rollout", i)
        if flight is None:
            y_channel.put(*sample(engine, train.batch(size=4)))
            continue
        for _ in flight.ahead(i):
            flight.offer(train.batch(size=4))
        y_channel.put(*flight.generate(**SAMPLING))
    run.finish()


def in_completion_order(
    run: rt.Run, engine: rt.EmbeddedEngine, weights: rt.ReceivedWeights
) -> rt.Rollouts:
    return rt.Rollouts(
        run,
        "y",
        engine=engine,
        weights=weights,
        size=4,
        max_lag=WINDOW + int(os.environ.get("TOO_WIDE", "0")),
        bound=BOUND,
        overflow=OVERFLOW,
        again=OLD_SPANS == "regenerate",
    )


def trainer() -> None:
    run, groups = start("trainer")
    actor = trained(run, groups)
    weights = rt.SentWeights(run, actor, target="rollout")
    y_channel = rt.Channel(
        run,
        "y",
        source="rollout",
        target="trainer",
        capacity=max(1, WINDOW),
        max_lag=WINDOW,
        bound=BOUND,
        old_spans=OLD_SPANS if OLD_SPANS in ("mask", "drop") else None,
    )
    run.restore()
    weights.publish(actor)
    for i in run.loop():
        y, lp = y_channel.take(step=i)
        assert BOUND == "head" or (i - y.versions[y.mask] <= WINDOW).all()
        dies(run, i)
        delay("trainer", i)
        train_on(run, actor, y, lp)
        weights.publish(actor)
        if run.every(i, steps=2):
            run.checkpoint(keep=2)
    run.finish()


def alone() -> None:
    run, groups = start("all")
    actor = trained(run, groups)
    train = rt.PromptData(run, "train", source="rows.jsonl")
    weights = rt.LatestWeights(run, actor)
    engine = rt.EmbeddedEngine(run, actor, groups=groups)
    buffer = rt.TrajectoryBuffer(run, "y", capacity=WINDOW + 1, max_lag=WINDOW, bound="strict")
    run.restore()
    weights.publish(actor)
    engine.swap_weights(weights)
    for i in run.loop():
        for _ in buffer.ahead(i):
            buffer.put(*sample(engine, train.batch(size=4)))
        y, lp = buffer.take(step=i)
        train_on(run, actor, y, lp)
        weights.publish(actor)
        engine.swap_weights(weights)
        if run.every(i, steps=2):
            run.checkpoint(keep=2)
    run.finish()


if __name__ == "__main__":
    {"rollout": rollout, "trainer": trainer, "all": alone}[pool_of_process()]()
