"""Record and replay: the same trajectories through every layout of two processes.

Run by torchrun with the paths of the recorded trajectories and of the results.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import torch

from rpeg import runtime as rt
from rpeg.runtime.groups import Groups
from rpeg.runtime.losses import Totals
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

STEPS = 5
MODEL, NORMED = "tiny-qwen2", "tiny-qwen3-digits"

Layouts = dict[str, tuple[rt.Layout, rt.MicroBatch]]
WHOLE, SMALL = rt.MicroBatch(), rt.MicroBatch(seqs=3)
LAYOUTS: Layouts = {
    "dp": (rt.Layout(dp=2), WHOLE),
    "dp, micro-batches": (rt.Layout(dp=2), SMALL),
    "dp, zero": (rt.Layout(dp=2, zero=1), WHOLE),
    "tp": (rt.Layout(tp=2), SMALL),
    "tp, sp": (rt.Layout(tp=2, sp=True), SMALL),
    "pp": (rt.Layout(pp=2), SMALL),
    "pp, recompute": (rt.Layout(pp=2, recompute="full"), WHOLE),
}
CASES = [*((MODEL, name) for name in LAYOUTS), (NORMED, "tp, sp"), (NORMED, "pp")]
"""Norms on q and k are replicated over tp: layouts that could miss their gradients."""


class OwnTotals(rt.Trainer):
    """A planted fault: each process divides by its own tokens."""

    def _totals(self, examples: Any, steps: list[torch.Tensor]) -> list[Totals]:
        return [Totals(2 * int(examples.mask[rows].sum()), 2 * len(rows)) for rows in steps]


class OwnGradients(rt.Trainer):
    """A planted fault: gradients stay where they were computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.replica.config.finalize_model_grads_func = None


FAULTS = {"own totals": OwnTotals, "own gradients": OwnGradients}


def replay(
    run: rt.Run,
    y: Trajectories,
    groups: Groups,
    *,
    model: str,
    micro_batch: rt.MicroBatch,
    trainer: type[rt.Trainer] = rt.Trainer,
) -> dict[str, Any]:
    """Trains on recorded trajectories: log-probs before, gradient norms, weights after."""
    actor = trainer(
        run,
        "actor",
        role="policy",
        source=f"models/{model}",
        groups=groups,
        dtype="fp32",
        optimizer=rt.AdamW(lr=3e-4, grad_clip=0.3, warmup=2, schedule="cosine"),
        horizon=STEPS,
        micro_batch=micro_batch,
    )
    mine = torch.arange(len(y.rows)).tensor_split(groups.dp_size)[groups.dp_rank]
    share, advantages = y.select(mine), torch.linspace(-2, 2, len(y.rows))[mine]
    old = actor.logprob(share)
    whole = torch.zeros(y.tokens.shape)
    whole[mine] = old
    norms = []
    for _ in range(STEPS):
        actor.update(
            rt.ppo_clip(share, advantages, old, clip_low=0.1, clip_high=0.1),
            rt.kl_loss(share, old - 0.1, coef=0.1),
            rt.entropy_bonus(share, coef=0.01),
            agg="token_mean",
            minibatches=2,
        )
        norms.append(run.metrics.merge(groups.dp_rank)["grad_norm"])
    return {
        "logprob": groups.sum_over_data(whole),
        "norms": norms,
        "weights": dict(actor.named_tensors()),
    }


def sample(run: rt.Run, groups: Groups) -> dict[str, Any]:
    """Samples of prompts of two length classes, this process its share of them."""
    actor = rt.Trainer(
        run,
        "sampler",
        role="policy",
        source="models/tiny-qwen2",
        groups=groups,
        dtype="fp32",
        optimizer=rt.AdamW(lr=1e-3),
        horizon=1,
    )
    engine, register = rt.EmbeddedEngine(run, actor, groups=groups), rt.LatestWeights(run, actor)
    register.publish(actor)
    engine.swap_weights(register)
    rows = tuple(Row("x" * (3 * k + 1)) for k in range(8))
    mine = torch.arange(8).tensor_split(groups.dp_size)[groups.dp_rank]
    share = Prompts(tuple(rows[k] for k in mine), mine)
    y, logprobs = engine.generate(share, n=4, max_tokens=6, temperature=1.0, seed=3)
    tokens, whole = torch.zeros(8, 24, dtype=torch.long), torch.zeros(8, 24)
    tokens[mine], whole[mine] = y.tokens.view(-1, 24), logprobs.view(-1, 24)
    return {"tokens": groups.sum_over_data(tokens), "logprobs": groups.sum_over_data(whole)}


def main() -> None:
    recorded, results = map(Path, sys.argv[1:])
    trajectories = pickle.loads(recorded.read_bytes())
    run = rt.start(pipeline="replay", steps=1, processes=2, source_sha256="0")
    found: dict[Any, Any] = {}
    for model, name in CASES:
        layout, micro_batch = LAYOUTS[name]
        groups, y = Groups.make(layout), trajectories[model]
        found[model, name] = replay(run, y, groups, model=model, micro_batch=micro_batch)
    found["samples"] = sample(run, Groups.make(rt.Layout(dp=2)))
    for name, kind in FAULTS.items():
        groups = Groups.make(rt.Layout(dp=2))
        y = trajectories[MODEL]
        found[MODEL, name] = replay(run, y, groups, model=MODEL, micro_batch=WHOLE, trainer=kind)
    if torch.distributed.get_rank() == 0:
        torch.save(found, results)


if __name__ == "__main__":
    main()
