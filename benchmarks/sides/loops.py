"""The two loops of an asynchronous run, without each other: `python loops.py sample|train`.

What `examples/async_two_pools.rpeg` does in a step, on one process: `sample` never gets new
weights, `train` has one batch for all STEPS. RPEG_RUN_DIR and RPEG_ROOT are as for every program.
"""

from __future__ import annotations

import os
import sys

from torch import Tensor

from rpeg import runtime as rt
from rpeg.runtime.trajectories import Trajectories

STEPS = int(os.environ.get("STEPS", "20"))
SOURCE = "models/tiny-qwen3-digits"


class Loop:
    """A model, its engine and data, as both loops need them."""

    def __init__(self) -> None:
        self.run = rt.start(pipeline="loop", steps=STEPS, processes=1, source_sha256="0")
        groups = self.run.groups(rt.Layout())
        self.actor = rt.Trainer(
            self.run,
            "actor",
            role="policy",
            source=SOURCE,
            dtype="fp32",
            optimizer=rt.AdamW(lr=3e-4, beta2=0.99),
            horizon=STEPS,
            groups=groups,
        )
        self.train = rt.PromptData(self.run, "train", source="data/sort_digits/train.jsonl")
        self.correct = rt.Verifier(self.run, "correct", source="rule:exact_match")
        self.weights = rt.LatestWeights(self.run, self.actor)
        self.engine = rt.EmbeddedEngine(self.run, self.actor, groups=groups)
        self.run.restore()
        self.weights.publish(self.actor)
        self.engine.swap_weights(self.weights)

    def batch(self) -> tuple[Trajectories, Tensor, Tensor]:
        """Samples, their log-probs and rewards."""
        y, lp = self.engine.generate(self.train.batch(size=32), n=8, max_tokens=9, temperature=1.0)
        return y, lp, self.correct.score(y)

    def update(self, y: Trajectories, lp: Tensor, r: Tensor) -> None:
        """Trains on a batch."""
        adv = rt.group_advantage(y, r, baseline="mean", scale="std")
        prox = self.actor.logprob(y)
        w = rt.importance(self.run, y, prox, lp, cap=5.0)
        pg = rt.ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
        self.actor.update(pg, agg="token_mean", minibatches=2)
        self.weights.publish(self.actor)
        self.run.report(y, r=r)


def sample(loop: Loop) -> None:
    """Samples and scores."""
    for _ in loop.run.loop():
        loop.engine.swap_weights(loop.weights)
        loop.batch()


def train(loop: Loop) -> None:
    """Trains and publishes."""
    held = loop.batch()
    for _ in loop.run.loop():
        loop.update(*held)


if __name__ == "__main__":
    started = Loop()
    {"sample": sample, "train": train}[sys.argv[1]](started)
    started.run.finish()
