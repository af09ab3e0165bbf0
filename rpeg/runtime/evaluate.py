"""Held-out measurements: means over all rows of a data set, each row once, whatever the layout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from rpeg.runtime import losses, world
from rpeg.runtime.data import DemoData, PairData, PromptData
from rpeg.runtime.interfaces import Engine, Host
from rpeg.runtime.trajectories import Demos, Pairs, Prompts, Trajectories
from rpeg.runtime.verifiers import Verifier

CHUNK = 256
"""Completions, or demonstrations, that a process works on at once."""


class DemoScorer(Protocol):
    """A model that can be tested on demonstrations."""

    def demo_nll(self, demos: Demos | Pairs) -> tuple[Tensor, Tensor]:
        """([rows] summed negative log-likelihood in nats, [rows] completion tokens)."""
        ...


class PairScorer(DemoScorer, Protocol):
    """A model that can be tested on pairs."""

    def pair_scores(self, pairs: Pairs) -> Tensor:
        """[2 pairs] scores of chosen and rejected responses, side by side."""
        ...


def evaluate(
    engine: Engine,
    data: PromptData,
    verifier: Verifier,
    *,
    name: str,
    n: int = 1,
    max_tokens: int,
    temperature: float = 0.0,
    max_turns: int = 1,
    limit: int | None = None,
    seed: int = 0,
) -> float:
    """Mean reward over the first `limit` rows (default: all), n completions each, greedy by
    default.

    Logged as `eval/<name>`; the same on every process. Collective.
    """
    prompts, counted = data.all(limit)
    with data.run.clock.stage(f"eval_{name}"):
        parts = in_parts(
            engine,
            prompts,
            n=n,
            max_tokens=max_tokens,
            temperature=temperature,
            max_turns=max_turns,
            seed=seed,
        )
        scores = torch.cat([verifier.score(y) for y, _ in parts])[: n * counted]
    total = _sum_and_count(scores, torch.ones_like(scores))
    return _log_mean(data.run, name, total)


def in_parts(
    engine: Engine, prompts: Prompts, *, n: int, **settings: Any
) -> Iterator[tuple[Trajectories, Tensor]]:
    """`engine.generate` on all prompts, a bounded number at a time, which bounds memory."""
    size = max(1, CHUNK // n)
    for first in range(0, len(prompts.rows), size):
        part = slice(first, first + size)
        few = Prompts(prompts.rows[part], prompts.ordinals[part])
        yield engine.generate(few, n=n, **settings)


def evaluate_loss(
    trainer: DemoScorer, demos: DemoData, *, name: str, limit: int | None = None
) -> float:
    """Mean cross-entropy in nats per completion token; logged as `eval/<name>`. Collective."""
    everything, counted = demos.all(limit)
    total = torch.zeros(2, dtype=torch.float64)
    with demos.run.clock.stage(f"eval_{name}"):
        for first in range(0, len(everything.rows), CHUNK):
            part = slice(first, first + CHUNK)
            nll, tokens = trainer.demo_nll(Demos(everything.rows[part], everything.ordinals[part]))
            kept = max(0, counted - first)
            total += _sum_and_count(nll[:kept], tokens[:kept])
    return _log_mean(demos.run, name, total)


def evaluate_pairs(
    model: PairScorer,
    pairs: PairData,
    *,
    name: str,
    limit: int | None = None,
    reference: DemoScorer | None = None,
    beta: float = 1.0,
) -> float:
    """Mean per-pair loss of a reward model, or of a policy against its reference (DPO's). Logged as
    `eval/<name>`, and as `eval/<name>_accuracy` how often the chosen response is ahead. Collective.
    """
    everything, counted = pairs.all(limit)
    loss, right = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    with pairs.run.clock.stage(f"eval_{name}"):
        for first in range(0, len(everything.rows), CHUNK):
            part = slice(first, first + CHUNK)
            few = Pairs(everything.rows[part], everything.ordinals[part])
            scores = _scores(model, few, reference, beta)
            kept = max(0, counted - first // 2)
            each, ahead = losses.reward_model(scores)[:kept], losses.margin(scores)[:kept] > 0
            loss += _sum_and_count(each, torch.ones_like(each))
            right += _sum_and_count(ahead, torch.ones_like(each))
    _log_mean(pairs.run, f"{name}_accuracy", right)
    return _log_mean(pairs.run, name, loss)


def _scores(model: PairScorer, pairs: Pairs, reference: DemoScorer | None, beta: float) -> Tensor:
    """[2 pairs] a reward model's scores, or a policy's implicit rewards."""
    if reference is None:
        return model.pair_scores(pairs)
    return beta * (reference.demo_nll(pairs)[0] - model.demo_nll(pairs)[0])


def _sum_and_count(values: Tensor, counts: Tensor) -> Tensor:
    return torch.stack([values.double().sum(), counts.double().sum()]).cpu()


def _log_mean(run: Host, name: str, total: Tensor) -> float:
    """The mean over the world; replicas of a share weigh the same, so they do not change it."""
    value, count = torch.stack(world.gather(total)).sum(dim=0).tolist()
    run.log(f"eval/{name}", value / count)
    return float(value / count)
