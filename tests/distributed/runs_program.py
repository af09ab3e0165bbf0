"""A program of two processes without a model: data, verifier, metrics, checkpoints, a kill.

With DIE set, a process dies in the first attempt inside the fourth step, after a checkpoint of the
second, or while it writes the checkpoint of the fourth; torchrun starts both again.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
from torch import Tensor

from rpeg.runtime.data import PromptData
from rpeg.runtime.evaluate import evaluate
from rpeg.runtime.layout import Layout
from rpeg.runtime.run import Run, start
from rpeg.runtime.state.ledger import consumed
from rpeg.runtime.trajectories import Prompts, Trajectories
from rpeg.runtime.verifiers import Verifier


def dies(run: Run, where: str) -> bool:
    return os.environ.get("DIE") == where and run.record.attempt == 1


class Sum:
    """Replicated state: the sum of the ordinals that all processes were given."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.value = torch.zeros(1, dtype=torch.int64)
        run.attach("sum", self)

    def add(self, ordinals: Tensor) -> None:
        total = ordinals.sum()
        torch.distributed.all_reduce(total)
        self.value += total

    def state_dict(self) -> dict[str, Any]:
        if dies(self.run, "saving") and self.run.step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class EchoEngine:
    """Answers `k` to prompt `k`, and to odd ones with a letter more."""

    version = 0

    def generate(self, prompts: Prompts, *, n: int, **_: object) -> tuple[Trajectories, Tensor]:
        rows = tuple(row for row in prompts.rows for _ in range(n))
        texts = tuple(row.prompt + "x" * (int(row.prompt) % 2) for row in rows)
        lengths = torch.tensor([len(text) for text in texts])
        mask = torch.arange(4)[None, :] < lengths[:, None]
        y = Trajectories(
            rows=rows,
            prompt_ids=((0,),) * len(rows),
            tokens=mask.long(),
            mask=mask,
            versions=mask.int() - 1,
            finished=torch.ones(len(rows), dtype=torch.bool),
            ordinals=prompts.ordinals.repeat_interleave(n),
            samples=torch.arange(n).repeat(len(prompts.rows)),
            texts=texts,
            n=n,
            temperature=1.0,
        )
        return y, torch.zeros(mask.shape)

    def swap_weights(self, register: object) -> None: ...

    def reset_prefix_cache(self) -> None: ...


def main() -> None:
    run = start(pipeline="two", steps=5, processes=2, source_sha256="0")
    groups = run.groups(Layout(dp=int(os.environ["DP"]), tp=2 // int(os.environ["DP"])))
    train = PromptData(run, "train", source="rows.jsonl")
    correct = Verifier(run, "correct", source="python:my_rewards:reward")
    total, engine = Sum(run), EchoEngine()
    run.restore()
    for i in run.loop():
        y, _ = engine.generate(train.batch(size=4), n=2)
        total.add(y.ordinals)
        if dies(run, "in a step") and i == 3 and groups.dp_rank == groups.dp_size - 1:
            while run.folder.ledger.read_bytes().count(b"\n") < i:
                time.sleep(0.01)  # the launcher ends who still writes what this death rolls back
            os._exit(1)
        everything = torch.ones(len(y.rows), dtype=torch.bool)
        note = consumed("nobody", y, y.tokens, y.mask, everything, epochs=1, minibatches=1)
        run.ledger.note(note)
        run.log("share", groups.dp_rank, weight=3 if groups.dp_rank else 1)
        run.log("total", float(total.value))
        run.report(y, acc=correct.score(y))
        if run.every(i, steps=2):
            evaluate(engine, train, correct, name="all", limit=9, max_tokens=4)
            run.checkpoint(keep=1)
    run.finish()


if __name__ == "__main__":
    main()
