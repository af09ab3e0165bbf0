"""The runtime's trainer on recorded trajectories, as a generated program would drive it.

Run by torchrun with a folder: `MODEL/record` holds a recording of the interpreter, and what two
processes make of it is written as `MODEL/CASE`. Models are folders beside them, `models/MODEL`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rpeg import runtime as rt
from rpeg.runtime import world
from rpeg.runtime.groups import Groups
from rpeg.runtime.recordings import recording as storage
from rpeg.runtime.recordings.recording import Recording, StepRecord

STEPS = 5
MODELS = ("qwen2", "qwen3", "llama")


@dataclass(frozen=True)
class Case:
    """A way to train on the recording; all but the defaults are planted faults."""

    agg: str = "token_mean"
    kl: float = 0.2
    seed: int = 0


FAULTS = {
    "wrong normaliser": Case(agg="seq_mean_token_mean"),
    "kl dropped": Case(kl=0.0),
    "other minibatches": Case(seed=1),
}


class Replayed:
    """Trains on one recording, step by step."""

    def __init__(self, run: rt.Run, model: str, case: Case, groups: Groups) -> None:
        settings: dict[str, Any] = {"role": "policy", "groups": groups, "dtype": "fp32"}
        self.actor = rt.Trainer(
            run,
            "actor",
            source=f"models/{model}",
            optimizer=rt.AdamW(lr=3e-4, warmup=2, schedule="cosine", weight_decay=0.1),
            horizon=STEPS,
            micro_batch=rt.MicroBatch(seqs=3),
            **settings,
        )
        self.ref = rt.FrozenModel(run, "ref", source=f"models/{model}-ref", **settings)
        self._case = case
        self._groups = groups
        self._norms: list[float] = []
        self._listen(run)

    def _listen(self, run: rt.Run) -> None:
        """Notes each optimizer step's gradient norm: the run's metrics keep their mean only."""
        log = run.log

        def listening(name: str, value: float, *rest: Any, **more: Any) -> None:
            if name == "grad_norm":
                self._norms.append(value)
            log(name, value, *rest, **more)

        run.log = listening  # type: ignore[method-assign]

    def step(self, recorded: StepRecord) -> StepRecord:
        """One step of the pipeline, on this process's share of the samples."""
        whole = recorded.trajectories["y"]
        mine = torch.arange(len(whole.rows)).tensor_split(self._groups.dp_size)
        here = mine[self._groups.dp_rank]
        y, rewards = whole.select(here), recorded.rewards["short"][here]
        adv = rt.group_advantage(y, rewards, baseline="mean", scale="std")
        old, reference = self.actor.logprob(y), self.ref.logprob(y)
        self._norms.clear()
        self.actor.update(
            rt.ppo_clip(y, adv, old, clip_low=0.2, clip_high=0.2),
            rt.kl_loss(y, reference, coef=self._case.kl),
            agg=self._case.agg,
            minibatches=2,
            seed=self._case.seed,
        )
        logprobs = {"lp_old": self._gather(here, old), "lp_ref": self._gather(here, reference)}
        return StepRecord(logprobs=logprobs, grad_norms={"actor": list(self._norms)})

    def _gather(self, here: Tensor, field: Tensor) -> Tensor:
        whole = field.new_zeros(len(field) * self._groups.dp_size, field.shape[1])
        whole[here] = field
        return self._groups.sum_over_data(whole)


def replay(
    run: rt.Run, recording: Recording, model: str, layout: rt.Layout, case: Case
) -> Recording:
    """What the trainer makes of a recording under a layout."""
    made = Replayed(run, model, case, Groups.make(layout))
    steps = [made.step(recorded) for recorded in recording.steps]
    return Recording(recording.pipeline, steps, {"actor": dict(made.actor.named_tensors())})


def main() -> None:
    folder = Path(sys.argv[1])
    run = rt.start(pipeline="parity", steps=1, processes=2, source_sha256="0")
    cases = {model: {"dp2": Case()} for model in MODELS}
    cases[MODELS[0]] |= FAULTS
    for model, named in cases.items():
        recording = storage.load(folder / model / "record")
        for name, case in named.items():
            found = replay(run, recording, model, rt.Layout(dp=2), case)
            if torch.distributed.get_rank() == 0:
                storage.save(found, folder / model / name)
    world.exit_at_once()


if __name__ == "__main__":
    main()
