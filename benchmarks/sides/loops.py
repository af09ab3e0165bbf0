"""The two loops of an asynchronous run, without each other: `python loops.py sample|train`.

What `examples/async_two_pools.rpeg` does in a step, on one process: `sample` never gets new
weights, `train` has one batch for all steps. They begin at the same time and go on until both have
done STEPS, by signs that they leave each other in the folder MEETING. RPEG_RUN_DIR and RPEG_ROOT
are as for every program; SOURCE and VERIFIER are the model's and the verifier's.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from torch import Tensor

from rpeg import runtime as rt
from rpeg.runtime.trajectories import Trajectories

STEPS = int(os.environ["STEPS"])
NAMES = ("sample", "train")
FOREVER = 1_000_000
"""Steps: more than there will be."""


class Meeting:
    """Signs in a folder."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = Path(os.environ["MEETING"])

    def leave(self, sign: str) -> None:
        """Says that this loop has come so far."""
        (self._folder / f"{self._name}.{sign}").touch()

    def all_left(self, sign: str) -> bool:
        """Whether both have."""
        return all((self._folder / f"{name}.{sign}").exists() for name in NAMES)

    def wait(self, sign: str) -> None:
        """Until both have."""
        self.leave(sign)
        while not self.all_left(sign):
            time.sleep(0.01)


class Loop:
    """A model, its engine and data, as both loops need them."""

    def __init__(self) -> None:
        self.run = rt.start(pipeline="loop", steps=FOREVER, processes=1, source_sha256="0")
        groups = self.run.groups(rt.Layout())
        self.actor = rt.Trainer(
            self.run,
            "actor",
            role="policy",
            source=os.environ["SOURCE"],
            dtype="fp32",
            optimizer=rt.AdamW(lr=3e-4, beta2=0.99),
            horizon=FOREVER,
            groups=groups,
        )
        self.train = rt.PromptData(self.run, "train", source="data/sort_digits/train.jsonl")
        self.correct = rt.Verifier(self.run, "correct", source=os.environ["VERIFIER"])
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


def main(name: str) -> None:
    """Runs a loop; nothing of it is finished or kept."""
    loop, meeting = Loop(), Meeting(name)
    held = loop.batch()
    meeting.wait("ready")
    for i in loop.run.loop():
        if i >= STEPS:
            meeting.leave("done")
        if meeting.all_left("done"):
            return
        if name == "sample":
            loop.batch()
        else:
            loop.update(*held)


if __name__ == "__main__":
    main(sys.argv[1])
