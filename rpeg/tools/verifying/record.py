"""The recording that every layout replays: the interpreter's own run of a hardened pipeline."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

from rpeg.interp import Greedy, Interpreter, Place, Sampling, World
from rpeg.interp.judge import Scorer
from rpeg.runtime.recordings.recording import Recording
from rpeg.runtime.trajectories import Trajectories


@dataclass(frozen=True)
class Recorded:
    """What the interpreter computed."""

    recording: Recording
    greedy: dict[str, Greedy]
    """By the name of trajectories: what the final weights say, and how clearly."""
    notes: tuple[str, ...]


def record(module: ModuleOp, pipeline: str, world: World, seed: int) -> Recorded:
    """Runs a pipeline to its end, in double precision: what a layout is away from it is the
    layout's own rounding. Raises InterpreterError and RuntimeFailure.
    """
    oracle = Rewarding(seed)
    interpreter = Interpreter(module, pipeline, world, seed, oracle, dtype=torch.float64)
    recording = interpreter.run()
    return Recorded(recording, interpreter.greedy(recording), tuple(oracle.notes.values()))


@dataclass
class Rewarding(Sampling):
    """Samples, and sees to it that the samples of a prompt don't all earn the same.

    Rewards that are all equal have no advantage, so that the policy's loss would be zero whatever
    the layout computes. An untrained model earns such rewards. What an oracle answers does not
    matter to parity: these are drawn.
    """

    seed: int
    notes: dict[str, str] = field(default_factory=dict[str, str])

    def score(self, place: Place, verifier: Scorer, y: Trajectories) -> Tensor:
        """The verifier's rewards, or drawn ones from [0, 1)."""
        rewards = super().score(place, verifier, y)
        groups = rewards.view(-1, y.n)
        if not bool((groups == groups[:, :1]).all()):
            return rewards
        self.notes[place.name] = (
            f"`{place.name}` is drawn in some steps: `{verifier.name}` tells no samples apart"
        )
        key = zlib.crc32(f"{self.seed}/{place.step}/{place.name}".encode())
        return torch.rand(rewards.shape, generator=torch.Generator().manual_seed(key))
