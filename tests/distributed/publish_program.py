"""A generator and a trainer in pools of their own: GRPO on a tiny model, weights sent as training
goes on.

LAYOUT is the trainer's, ENGINES the generator's data-parallel width, WINDOW how far it may be
ahead. With RENEW, samples in flight go on under new weights. With DIE set to a process's number, it
dies in the fourth step of the first attempt. Each process writes the versions that it published, or
sampled from, with their digests.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from rpeg import runtime as rt
from rpeg.passes.layout_names import parse_layout
from rpeg.runtime import world
from rpeg.runtime.logs.metrics import read_metrics

STEPS, SIZE, N = 6, 4, 4
LAYOUT = rt.Layout(**parse_layout(os.environ["LAYOUT"]))  # type: ignore[arg-type]
ENGINES = int(os.environ.get("ENGINES", "1"))
WINDOW = int(os.environ.get("WINDOW", "2"))
TOKENS = int(os.environ.get("TOKENS", "6"))


def start(pool: str) -> rt.Run:
    processes = ENGINES + LAYOUT.processes
    return rt.start(
        pipeline="publish",
        steps=STEPS,
        processes=processes,
        source_sha256="0",
        pools={"rollout": (0, ENGINES), "trainer": (ENGINES, processes)},
        pool=pool,
        home="trainer",
    )


def channel(run: rt.Run) -> rt.Channel:
    return rt.Channel(
        run,
        "y",
        source="rollout",
        target="trainer",
        capacity=max(1, WINDOW),
        max_lag=WINDOW,
    )


def record(run: rt.Run, **what: Any) -> None:
    """Adds a line to what this process says of itself."""
    with Path(f"process-{world.process()}.jsonl").open("a") as file:
        file.write(json.dumps({"attempt": run.record.attempt, **what}) + "\n")


def dies(run: rt.Run, i: int, sampled: int = 1) -> None:
    """An attempt counts once a step is in the books, and with the step of a version the trainer has
    said what it published: whom the launcher ends says no more.
    """
    if os.environ.get("DIE") == str(world.process()) and run.record.attempt == 1 and i == 3:
        while len(read_metrics(run.folder.metrics)) < sampled:
            time.sleep(0.01)
        os._exit(1)


def rollout() -> None:
    run = start("rollout")
    groups = run.groups(layout=rt.Layout(dp=ENGINES))
    actor = rt.SampledModel(run, "actor", source="model")
    train = rt.PromptData(run, "train", source="rows.jsonl")
    actor_weights = rt.ReceivedWeights(run, actor, source="trainer", window=WINDOW)
    actor_engine = rt.EmbeddedEngine(run, actor, groups=groups)
    y_channel = channel(run)
    renew = actor_weights if "RENEW" in os.environ else None
    run.restore()
    for i in run.loop():
        actor_weights.wait(step=i)
        actor_engine.swap_weights(actor_weights)
        actor_engine.reset_prefix_cache()
        record(run, step=i, version=actor_engine.version, digest=actor_weights.checksum)
        q = train.batch(size=SIZE)
        y, lp = actor_engine.generate(q, n=N, max_tokens=TOKENS, temperature=1.0, renew=renew)
        dies(run, i, actor_engine.version)
        y_channel.put(y, lp)
    run.finish()


def trainer() -> None:
    run = start("trainer")
    groups = run.groups(layout=LAYOUT)
    actor = rt.Trainer(
        run,
        "actor",
        role="policy",
        source="model",
        dtype=os.environ.get("DTYPE", "fp32"),
        optimizer=rt.AdamW(lr=1e-3),
        horizon=STEPS,
        groups=groups,
    )
    actor_weights = rt.SentWeights(run, actor, target="rollout")
    y_channel = channel(run)
    run.restore()
    actor_weights.publish(actor)
    record(run, version=actor_weights.version, digest=actor_weights.checksum)
    for i in run.loop():
        y, lp = y_channel.take(step=i)
        r = (y.sampled_lengths % 3).double()
        adv = rt.group_advantage(y, r, baseline="mean", scale="std")
        prox = actor.logprob(y)
        w = rt.importance(run, y, prox, lp, cap=5.0)
        pg = rt.ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
        actor.update(pg, agg="token_mean")
        dies(run, i)
        actor_weights.publish(actor)
        record(run, version=actor_weights.version, digest=actor_weights.checksum)
        run.report(y, r=r)
        if run.every(i, steps=2):
            run.checkpoint(keep=1)
    run.finish()


def main() -> None:
    if world.process() < ENGINES:
        rollout()
    else:
        trainer()


if __name__ == "__main__":
    main()
