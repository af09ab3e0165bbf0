"""Pairs of responses in the runtime: rows, micro-batches, scores, what an update reports."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg import runtime as rt
from rpeg.interp.judge import Judge as Referee
from rpeg.interp.network import Network, initial_tensors
from rpeg.interp.values import Model, Weights
from rpeg.runtime.batches.batching import microbatches, together
from rpeg.runtime.batches.examples import Examples
from rpeg.runtime.batches.spelling import spelled
from rpeg.runtime.errors import DataFailure, ModelFailure
from rpeg.runtime.groups import Groups
from rpeg.runtime.models.export import export_model
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.run import Run
from rpeg.runtime.trainer import WHOLE
from rpeg.runtime.trajectories import Pairs, Row, Trajectories
from rpeg.runtime.verifiers.answers import filled, last_number
from tests.unit.interp.pipelines import DIGITS, write_model


@pytest.fixture
def model(run: Run, tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model"))


@pytest.fixture
def data(run: Run, tmp_path: Path) -> str:
    rows = [{"prompt": f"{k}=", "chosen": f"{k}{k}", "rejected": f"{k}"} for k in range(6)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_both_responses_side_by_side(run: Run, data: str) -> None:
    batch = rt.PairData(run, "p", source=data).batch(size=2, order="sequential")
    assert [row.completion for row in batch.rows] == ["00", "0", "11", "1"]
    assert [row.prompt for row in batch.rows] == ["0=", "0=", "1=", "1="]
    assert batch.ordinals.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "1", "chosen": "2"}', ":2: no field `rejected`, but `p` holds pairs"),
        ('{"prompt": "1", "rejected": "2"}', ":2: no field `chosen`, but `p` holds pairs"),
        (
            '{"prompt": "1", "chosen": ["2"], "rejected": "3"}',
            ":2: `chosen` must be a text, not list",
        ),
        ('{"chosen": "1", "rejected": "2"}', ":2: no field `prompt`"),
        ("[1]", ":2: a row must be a JSON object, not list"),
        ('{"prompt": ', ":2:12: no valid JSON"),
    ],
)
def test_rows_that_are_no_pairs(run: Run, tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"prompt": "1", "chosen": "2", "rejected": "3"}}\n{line}\n')
    with pytest.raises(DataFailure, match=r"bad\.jsonl") as caught:
        rt.PairData(run, "p", source=str(path))
    assert message in str(caught.value)


@pytest.mark.parametrize("bound", [{"seqs": 1}, {"seqs": 3}, {"tokens": 7}, {}])
def test_no_micro_batch_parts_a_pair(bound: dict[str, int]) -> None:
    rows = together(torch.tensor([4, 0, 2]), 2)
    parts = microbatches(rows, torch.tensor([3, 2, 9, 9, 1, 1, 9, 9, 5, 6]), bound_of(bound), 1, 2)
    assert sorted(row for part in parts for row in part) == [0, 1, 4, 5, 8, 9]
    assert all(part[k + 1] == part[k] + 1 for part in parts for k in range(0, len(part), 2))
    assert len(parts) == (1 if not bound else 3 if "seqs" in bound else 2)


def bound_of(bound: dict[str, int]) -> rt.MicroBatch:
    return rt.MicroBatch(tokens=bound.get("tokens"), seqs=bound.get("seqs"))


def test_what_a_model_says_behind_tokens() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]]).bool()
    examples = Examples(((5,), (6,)), torch.tensor([[7, 8, 0], [7, 8, 9]]), mask, 1.0)
    assert examples.behind(whole=False).mask.int().tolist() == [[0, 1, 1, 0], [0, 1, 1, 1]]
    whole = examples.behind(whole=True)
    assert whole.mask.int().tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]
    assert whole.inputs([0, 1]).input_ids.tolist() == [[5, 7, 8, 6, 7, 8, 9]]


def trained(
    run: Run,
    groups: Groups,
    model: str,
    data: str,
    *,
    updates: int = 2,
    minibatches: int = 1,
    micro_batch: rt.MicroBatch = WHOLE,
) -> tuple[rt.Trainer, rt.PairData]:
    """A reward model after some updates on the pairs."""
    rm = rt.Trainer(
        run, "rm", role="reward", source=model, groups=groups, dtype="fp32",
        optimizer=rt.AdamW(lr=1e-2), horizon=8, micro_batch=micro_batch,
    )  # fmt: skip
    pairs = rt.PairData(run, "p", source=data)
    for _ in range(updates):
        loss = rt.reward_loss(pairs.batch(size=4))
        rm.update(loss, agg="pair_mean", minibatches=minibatches)
    return rm, pairs


def exported(
    run: Run, groups: Groups, model: str, data: str, out: Path
) -> tuple[rt.Trainer, rt.PairData]:
    """A trained reward model that was written to `out`."""
    rm, pairs = trained(run, groups, model, data)
    export_model(rm, out)
    return rm, pairs


def test_scores_of_pairs_are_those_of_trajectories(
    run: Run, groups: Groups, model: str, data: str
) -> None:
    """A response is scored at its last token, whatever it is packed with."""
    micro = rt.MicroBatch(seqs=2)
    rm, pairs = trained(run, groups, model, data, updates=3, minibatches=2, micro_batch=micro)
    few = pairs.batch(size=3)
    alone = [rm.pair_scores(Pairs(few.rows[k : k + 2], few.ordinals[k : k + 2])) for k in (0, 2, 4)]
    assert torch.allclose(rm.pair_scores(few), torch.cat(alone), atol=1e-6)
    assert torch.allclose(rm.score(as_trajectories(few, rm.tokenizer)), torch.cat(alone), atol=1e-6)
    assert rm.pair_scores(few).abs().min() > 1e-4
    report = run.metrics.merge(shard=0)
    assert {"rm/accuracy", "rm/margin", "rm/loss", "rm/grad_norm"} <= set(report)
    with pytest.raises(ModelFailure, match="`rm` is a reward, which has no log-probs"):
        rm.logprob(few)


def as_trajectories(pairs: Pairs, tokenizer: Tokenizer) -> Trajectories:
    examples = Examples.of(pairs, tokenizer)
    return Trajectories(
        rows=pairs.rows,
        prompt_ids=examples.prompt_ids,
        tokens=examples.tokens,
        mask=examples.mask,
        versions=examples.mask.int() - 1,
        finished=torch.ones(len(pairs.rows), dtype=torch.bool),
        ordinals=pairs.ordinals,
        samples=torch.zeros_like(pairs.ordinals),
        texts=tuple(row.completion or "" for row in pairs.rows),
        n=1,
        temperature=1.0,
    )


def test_a_reward_model_leaves_a_run_and_comes_back(
    run: Run, groups: Groups, model: str, data: str, tmp_path: Path
) -> None:
    rm, pairs = exported(run, groups, model, data, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["Qwen3ForSequenceClassification"]
    few = pairs.batch(size=3)
    again = rt.FrozenModel(
        run, "again", role="reward", source=str(tmp_path / "out"), groups=groups, dtype="fp32"
    )
    assert torch.equal(again.pair_scores(few), rm.pair_scores(few))


def test_transformers_reads_the_same_scores(
    run: Run, groups: Groups, model: str, data: str, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification

    rm, pairs = exported(run, groups, model, data, tmp_path / "out")
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    few = pairs.batch(size=2)
    examples = Examples.of(few, rm.tokenizer)
    for row, score in enumerate(rm.pair_scores(few)):
        ids = [*examples.prompt_ids[row], *examples.tokens[row][examples.mask[row]].tolist()]
        with torch.no_grad():
            assert torch.allclose(theirs(torch.tensor([ids])).logits[0, 0], score, atol=1e-5)


def test_dpo_reports_and_moves_the_margin(run: Run, groups: Groups, model: str, data: str) -> None:
    settings = {"role": "policy", "source": model, "groups": groups, "dtype": "fp32"}
    actor = rt.Trainer(run, "actor", optimizer=rt.AdamW(lr=1e-3), horizon=8, **settings)  # type: ignore[arg-type]
    ref = rt.FrozenModel(run, "ref", **settings)  # type: ignore[arg-type]
    pairs = rt.PairData(run, "p", source=data)
    for _ in range(4):
        b = pairs.batch(size=6, order="sequential")
        actor.update(rt.dpo(b, ref.logprob(b), beta=0.1), agg="pair_mean")
    loss = rt.evaluate_pairs(actor, pairs, name="held", reference=ref, beta=0.1)
    report = run.metrics.merge(shard=0)
    assert report["eval/held"] == pytest.approx(loss)
    assert 0.0 < loss < math.log(2.0)
    assert report["eval/held_accuracy"] == 1.0
    assert report["dpo/margin"] == pytest.approx(report["dpo/chosen"] - report["dpo/rejected"])
    assert 0.0 < report["dpo/accuracy"] <= 1.0


def test_ids_of_the_same_tokenizer_stay(
    trajectories: Callable[[int], Trajectories],
) -> None:
    tokenizer = Tokenizer(DIGITS)
    rows = tuple(Row(prompt=f"{k}=") for k in range(3))
    batch = Pairs(tuple(replace(row, completion="12") for row in rows), torch.arange(3))
    y = as_trajectories(batch, tokenizer)
    assert spelled(y, tokenizer) is y
    other = replace(y, prompt_ids=tuple((3, *ids) for ids in y.prompt_ids))
    assert torch.equal(spelled(other, tokenizer).tokens, y.tokens)
    assert spelled(other, tokenizer).prompt_ids == y.prompt_ids


def test_a_template_is_filled_once() -> None:
    row = Row(prompt="{response}?", answer="{prompt}")
    assert filled("{prompt} {response} {answer} {x}", row, "{answer}") == (
        "{response}? {answer} {prompt} {x}"
    )


@pytest.mark.parametrize(
    ("text", "number"),
    [("10 of 10: 7", 7.0), ("-0.5.", -0.5), ("no", None), ("", None), ("8/10\n", 10.0)],
)
def test_a_judges_answer(text: str, number: float | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize("alone", [True, False], ids=["of a source", "of a trained model"])
def test_a_judge_says_what_the_interpreters_says(
    run: Run, groups: Groups, model: str, data: str, alone: bool
) -> None:
    """One that starts from a model that is trained keeps the weights of before."""
    start: str | rt.InitialWeights = model
    if not alone:
        settings = {"role": "policy", "source": model, "groups": groups, "dtype": "fp32"}
        actor = rt.Trainer(run, "actor", optimizer=rt.AdamW(lr=1e-2), horizon=8, **settings)  # type: ignore[arg-type]
        b = rt.PairData(run, "p", source=data).batch(size=3, order="sequential")
        actor.update(rt.dpo(b, actor.logprob(b), beta=0.1), agg="pair_mean")
        start = rt.InitialWeights(actor)
    judge = rt.Judge(
        run, "judge", source=start, dtype="fp32", groups=groups,
        template="{response}={prompt}", max_tokens=4,
    )  # fmt: skip
    source = ModelSource(Path(model), run.seed)
    network = Model("judge", "policy", Network(source), None)
    theirs = Referee(Weights(network, initial_tensors(source), 0), "{response}={prompt}", 4)
    rows = tuple(Row(prompt=f"{k}=", completion=f"{k}{k}") for k in range(6))
    y = as_trajectories(Pairs(rows, torch.arange(6)), source.tokenizer)
    assert torch.equal(judge.score(y), theirs.score(y))
    assert len(set(judge.score(y).tolist())) > 1
