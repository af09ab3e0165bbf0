"""RPEG's side: the body of a generated program, a reward function of its own in it.

python rpeg_side.py JOB FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from job import CLIP_GRADIENT, LEARNING_RATE, VOCAB, Job, reward, write_model
from stopwatch import Stopwatch, Turns

from rpeg import runtime as rt


def main(job: Job, folder: Path) -> None:
    """Runs steps as they are asked for."""
    prepare(job, folder)
    watch = Stopwatch()
    turns = Turns(watch)
    run = rt.start(pipeline="step", steps=job.steps, processes=1, source_sha256="0")
    groups = run.groups(layout=rt.Layout())
    actor = rt.Trainer(
        run,
        "actor",
        role="policy",
        source="model",
        dtype=job.dtype,
        optimizer=rt.AdamW(lr=LEARNING_RATE, grad_clip=CLIP_GRADIENT),
        horizon=job.steps,
        groups=groups,
    )
    train = rt.PromptData(run, "train", source="prompts.jsonl", seed=0)
    weights = rt.LatestWeights(run, actor)
    engine = rt.EmbeddedEngine(run, actor, groups=groups)
    buffer = rt.TrajectoryBuffer(run, "y", capacity=1, max_lag=0, bound="strict")
    run.restore()
    weights.publish(actor)
    engine.swap_weights(weights)
    observe(watch, actor, engine, weights)

    for i in in_turns(run, turns):
        q = train.batch(size=job.prompts, order="shuffle", seed=0)
        y, lp = engine.generate(
            q, n=job.completions, max_tokens=job.tokens, temperature=1.0, dtype=job.dtype, seed=0
        )
        buffer.put(y, lp)
        y, lp = buffer.take(step=i)
        with watch.stage("reward"):
            r = torch.tensor([reward(text) for text in y.texts])
        adv = rt.group_advantage(y, r, baseline="mean", scale="std")
        pg = rt.ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2, ratio="token")
        actor.update(pg, agg="token_mean")
        weights.publish(actor)
        engine.swap_weights(weights)
        engine.reset_prefix_cache()
        run.report(y, r=r)
    run.finish()


def prepare(job: Job, folder: Path) -> None:
    """Writes the model and the prompts, and names the folders to the runtime."""
    write_model(folder / "model", end=VOCAB)
    lines = (f'{{"prompt": "{text}"}}\n' for text in job.texts())
    (folder / "prompts.jsonl").write_text("".join(lines), encoding="utf-8")
    os.environ |= {"RPEG_ROOT": str(folder), "RPEG_RUN_DIR": str(folder / "run")}


def observe(
    watch: Stopwatch, actor: rt.Trainer, engine: rt.EmbeddedEngine, weights: rt.LatestWeights
) -> None:
    """Counts the stages where the runtime goes through them."""
    from megatron.core.pipeline_parallel import schedules

    from rpeg.runtime.engine.decoder import Decoder

    watch.watch(engine, "generate", "decode")
    watch.watch(Decoder, "prefill", "prefill")
    watch.watch(actor, "update", "other")
    watch.watch(schedules, "forward_step", "forward")
    watch.watch(schedules, "backward_step", "backward")
    watch.watch(actor._optimizer, "step", "optimizer")
    watch.watch(actor._optimizer, "zero_grad", "optimizer")
    watch.watch(weights, "publish", "publish")
    watch.watch(engine, "swap_weights", "publish")


def in_turns(run: rt.Run, turns: Turns) -> Iterator[int]:
    """The run's steps; the end of each belongs to it."""
    started = False
    for i in run.loop():
        if started:
            turns.answer()
        turns.wait()
        started = True
        yield i
    turns.answer()


if __name__ == "__main__":
    main(Job.read(sys.argv[1]), Path(sys.argv[2]))
