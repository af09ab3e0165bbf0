"""Held-out means: every row once, weighted by what it counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import Tensor

from rpeg.runtime.data import DemoData, PromptData
from rpeg.runtime.evaluate import evaluate, evaluate_loss
from rpeg.runtime.interfaces import Engine
from rpeg.runtime.layout import Layout
from rpeg.runtime.run import Run
from rpeg.runtime.trajectories import Demos, Prompts, Trajectories
from rpeg.runtime.verifiers import Verifier


@pytest.fixture
def rows(run: Run) -> str:
    """300 rows: prompt `p0`, answer and completion `k`."""
    lines = [
        json.dumps({"prompt": f"p{k}", "answer": str(k), "completion": str(k)}) for k in range(300)
    ]
    (run.root / "rows.jsonl").write_text("\n".join(lines) + "\n")
    return "rows.jsonl"


def test_mean_over_rows_and_samples(
    run: Run, rows: str, completions: Callable[..., Trajectories]
) -> None:
    asked: list[int] = []

    class EveryOther:
        """The first sample of each prompt is right."""

        def generate(self, prompts: Prompts, *, n: int, **_: object) -> tuple[Trajectories, Tensor]:
            answers = [row.answer for row in prompts.rows for _ in range(n)]
            texts = [a if k % n == 0 else "x" for k, a in enumerate(answers)]
            asked.extend(prompts.ordinals.tolist())
            return completions(texts, answers, n=n), torch.zeros(len(texts), 1)

    data = PromptData(run, "heldout", source=rows)
    correct = Verifier(run, "correct", source="rule:exact_match")
    engine = cast(Engine, EveryOther())
    assert evaluate(engine, data, correct, name="acc", n=4, max_tokens=4) == 0.25
    assert asked == list(range(300))
    assert run.metrics.merge()["eval/acc"] == 0.25


def test_loss_weighs_by_tokens(run: Run, rows: str) -> None:
    class TwoNats:
        """Two nats a row and one token a digit."""

        def demo_nll(self, demos: Demos) -> tuple[Tensor, Tensor]:
            lengths = [len(row.completion or "") for row in demos.rows]
            return torch.full((len(lengths),), 2.0), torch.tensor(lengths)

    demos = DemoData(run, "warm", source=rows)
    assert evaluate_loss(TwoNats(), demos, name="val", limit=20) == 2 * 20 / (10 + 2 * 10)


def test_the_first_layout_says_how_batches_are_split(run: Run) -> None:
    groups = run.groups(Layout())
    assert run.crossing(groups) is None
    run.data_parallel = (1, 2)
    run.groups(Layout())
    assert run.data_parallel == (1, 2), "a later one says nothing of it"
