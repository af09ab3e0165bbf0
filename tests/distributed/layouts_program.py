"""Record and replay: the same trajectories through every layout of so many processes.

Run by torchrun with a folder of models and recorded trajectories, and the name of a launch, which
is the name of the results too.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rpeg import runtime as rt
from rpeg.passes.layout_names import parse_layout
from rpeg.runtime import world
from rpeg.runtime.groups import Groups
from rpeg.runtime.losses import Totals
from rpeg.runtime.terms import LossTerm
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

STEPS, SAMPLES = 5, 14
MODELS = ("qwen2", "qwen3", "llama")
"""Biases on q, k and v, tied; norms on q and k; an output layer of its own."""

SMALL = rt.MicroBatch(seqs=3)


@dataclass(frozen=True)
class Case:
    """One replay; `layout` is empty for one process."""

    model: str
    layout: str
    dtype: str = "fp32"
    micro_batch: rt.MicroBatch = SMALL
    few: bool = False
    """Only one row has a loss: other processes, and other minibatches, have nothing to train."""

    @property
    def alone(self) -> Case:
        """The same in one process, a minibatch at once."""
        return Case(self.model, "", self.dtype, rt.MicroBatch(), self.few)

    def __str__(self) -> str:
        bound = f"tokens={self.micro_batch.tokens}" if self.micro_batch.tokens else ""
        return " ".join([self.model, self.layout, self.dtype, bound, "few" * self.few]).strip()


def _each(*layouts: str) -> Iterator[Case]:
    """Every layout, with the models in turn."""
    yield from (Case(MODELS[k % 3], layout) for k, layout in enumerate(layouts))


def _few(*layouts: str) -> Iterator[Case]:
    yield from (Case(MODELS[k % 3], layout, few=True) for k, layout in enumerate(layouts))


def _bf16(*layouts: str) -> Iterator[Case]:
    yield from (Case("qwen3", layout, dtype="bf16") for layout in layouts)


LAUNCHES: dict[str, tuple[int, list[Case]]] = {
    "two": (
        2,
        [
            *_each("dp2", "dp2zero1", "tp2", "pp2", "tp2sp", "pp2vpp2"),
            *_few("dp2", "tp2sp", "pp2vpp2"),
        ],
    ),
    "two, slow": (
        2,
        [
            *_each("pp2full", "tp2spselective"),
            *(Case(model, name) for name in ("tp2sp", "pp2vpp2") for model in MODELS),
            *_few("dp2zero1", "tp2", "pp2"),
            *_bf16("dp2zero1", "tp2sp", "pp2vpp2"),
            Case("llama", "pp2vpp2", micro_batch=rt.MicroBatch(tokens=20)),
        ],
    ),
    "four, slow": (
        4,
        [
            *_each("tp2pp2", "dp2pp2vpp2zero1", "dp2tp2zero1sp", "tp2pp2vpp2sp"),
            *_few("dp2pp2vpp2zero1", "tp2pp2"),
            *_bf16("dp2tp2zero1sp"),
        ],
    ),
}
"""Processes and what they replay, by a name for them."""


class OwnTotals(rt.Trainer):
    """A planted fault: each process divides by its own tokens."""

    def _totals(self, examples: Any, steps: list[torch.Tensor]) -> list[Totals]:
        return [Totals(2 * int(examples.mask[rows].sum()), 2 * len(rows)) for rows in steps]


class OwnGradients(rt.Trainer):
    """A planted fault: gradients stay where they were computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.replica.config.finalize_model_grads_func = None


FAULTS: dict[type[rt.Trainer], Case] = {
    OwnTotals: Case("qwen2", "dp2"),
    OwnGradients: Case("qwen2", "dp2"),
}


def replay(
    run: rt.Run,
    folder: Path,
    y: Trajectories,
    case: Case,
    trainer: type[rt.Trainer] = rt.Trainer,
) -> dict[str, Any]:
    """Trains on recorded trajectories: log-probs before, gradient norms, weights after."""
    groups = Groups.make(rt.Layout(**parse_layout(case.layout or "dp1")))  # type: ignore[arg-type]
    actor = trainer(
        run,
        "actor",
        role="policy",
        source=str(folder / case.model),
        groups=groups,
        dtype=case.dtype,
        optimizer=rt.AdamW(lr=3e-4, grad_clip=0.3, warmup=2, schedule="cosine"),
        horizon=STEPS,
        micro_batch=case.micro_batch,
    )
    mine = torch.arange(len(y.rows)).tensor_split(groups.dp_size)[groups.dp_rank]
    share = y.select(mine)
    old = actor.logprob(share)
    whole = torch.zeros(y.tokens.shape)
    whole[mine] = old
    norms, rates = [], []
    for _ in range(STEPS):
        actor.update(*terms(share, mine, old, case.few), agg="token_mean", minibatches=2)
        own = run.metrics._entries["grad_norm"].value
        found = run.metrics.merge(groups.dp_rank)
        norms.append(world.gather(own))
        rates.append(found["lr"])
    return {
        "logprob": groups.sum_over_data(whole),
        "norms": norms,
        "rates": rates,
        "weights": dict(actor.named_tensors()),
    }


def terms(y: Trajectories, rows: torch.Tensor, old: torch.Tensor, few: bool) -> list[LossTerm]:
    """Losses of rows of the recording; if `few`, of its first row only."""
    if few:
        return [rt.policy_gradient(y, (rows == 0).float())]
    advantages = torch.linspace(-2, 2, SAMPLES)[rows]
    return [
        rt.ppo_clip(y, advantages, old, clip_low=0.1, clip_high=0.1),
        rt.kl_loss(y, old - 0.1, coef=0.1),
        rt.entropy_bonus(y, coef=0.01),
    ]


def sample(run: rt.Run, layout: str) -> dict[str, Any]:
    """Samples of prompts of two length classes, this process its share of them."""
    groups = Groups.make(rt.Layout(**parse_layout(layout)))  # type: ignore[arg-type]
    actor = rt.Trainer(
        run,
        f"sampler_{layout}",
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
    groups.sum_over_data(tokens)
    assert all(torch.equal(tokens, theirs) for theirs in world.gather(tokens)), "peers agree"
    return {"tokens": tokens, "logprobs": groups.sum_over_data(whole)}


SAMPLING = ("dp2", "tp2sp", "pp2")
"""Layouts whose engines sample the same."""


def main() -> None:
    folder, launch = Path(sys.argv[1]), sys.argv[2]
    processes, cases = LAUNCHES[launch]
    recorded = pickle.loads((folder / "recorded").read_bytes())
    run = rt.start(pipeline="replay", steps=1, processes=processes, source_sha256="0")
    found: dict[str, Any] = {str(c): replay(run, folder, recorded[c.model], c) for c in cases}
    if launch == "two":
        found |= {f"samples {layout}": sample(run, layout) for layout in SAMPLING}
        for kind, case in FAULTS.items():
            found[kind.__name__] = replay(run, folder, recorded[case.model], case, kind)
    if world.rank() == 0:
        torch.save(found, folder / launch)
    world.exit_at_once()


if __name__ == "__main__":
    main()
