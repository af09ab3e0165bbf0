"""Generated programs of several pools train what those of one pool train."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg.runtime.state.checkpoint import load_weights, verified
from rpeg.runtime.state.ledger import committed, expand
from rpeg.tools.rpeg import main

ROOT = Path(__file__).parents[2]
STEPS = 4
PIPELINE = """rpeg 0.1
pipeline sort {
  param staleness = 0
  model actor = policy("models/tiny-qwen3-digits", optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  data heldout = prompts("more.jsonl")
  verifier short = outcome("rule:overlong", soft=2, max=6)

  step i < 4 {
    q = batch(train, size=4)
    y, lp = generate(actor@[i-$staleness..i], q, n=4, max_tokens=6, dtype=fp32)
    r = score(short, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    lp_ref = logprob(ref, y)
    prox = logprob(actor@i, y)
    w = importance(prox, lp, cap=5.0)
    pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches=2)
    every(steps=2) {
      acc = eval(actor@i+1, heldout, short, max_tokens=6)
      checkpoint()
    }
  }

  plan two on "cpu" {
    pool rollout = cores(0..0, per_node=1)
    pool trainer = cores(0..0, per_node=1)
    y on rollout, par(dp=1)
    r on rollout
    lp_ref on trainer, par(dp=1)
    prox on trainer, par(dp=1)
    actor on trainer, par(dp=1), publish(rollout, mode=reshard), publish(trainer, mode=reshard)
    acc on trainer, par(dp=1)
  }

  plan three on "cpu" {
    pool trainer = cores(0..0, per_node=2)
    pool checkers = cores(0..0, per_node=1)
    pool rollout = cores(0..0, per_node=1)
    y on rollout, par(dp=1)
    r on checkers, par(dp=1)
    lp_ref on checkers, par(dp=1)
    prox on trainer, par(dp=2)
    actor on trainer, par(dp=2), publish(rollout, mode=reshard), publish(trainer, mode=reshard)
    acc on trainer, par(dp=2)
  }
}
"""
PPO = PIPELINE
for old, new in {
    "  model ref": "  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)\n  model ref",
    "    adv = group_advantage(r, baseline=mean, scale=std)\n": "",
    "    w = importance": """    v = values(critic@i, y)
    rt = kl_penalty(r, prox, lp_ref, coef=0.1)
    raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)
    adv = whiten(raw)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean, minibatches=2)
    w = importance""",
    "    actor on trainer, par(dp=1)": """    v on trainer, par(dp=1)
    critic on trainer, par(dp=1)
    actor on trainer, par(dp=1)""",
}.items():
    assert old in PPO
    PPO = PPO.replace(old, new)
APART = """  plan apart on "cpu" {
    pool rollout = cores(0..0, per_node=1)
    pool trainer = cores(0..0, per_node=1)
    pool critics = cores(0..0, per_node=1)
    y on rollout, par(dp=1)
    r on rollout
    lp_ref on critics, par(dp=1)
    prox on trainer, par(dp=1)
    v on critics, par(dp=1)
    critic on critics, par(dp=1)
    actor on trainer, par(dp=1), publish(rollout, mode=reshard), publish(trainer, mode=reshard)
    acc on trainer, par(dp=1)
  }

  plan beside on "cpu" {
    pool all = cores(0..0, per_node=1)
    pool critics = cores(0..0, per_node=1)
    y on all, par(dp=1)
    r on all
    lp_ref on all, par(dp=1)
    prox on all, par(dp=1)
    v on critics, par(dp=1)
    critic on critics, par(dp=1)
    actor on all, par(dp=1), publish(all, mode=reshard)
    acc on all, par(dp=1)
  }
}
"""
PPO = PPO[: PPO.index("  plan three")] + APART
TEXTS = {"grpo": PIPELINE, "ppo": PPO}
SAME = ("hash/samples", "hash/weights", "loss", "grad_norm", "reward/r", "lag/max")
OF_CRITIC = ("critic/loss", "critic/grad_norm")
CLOSE = 1e-4
"""Relative: the first step moves the weights apart by the order of sums."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pools")
    rows = [json.dumps({"prompt": f"{k} {k + 3}", "answer": str(k)}) + "\n" for k in range(16)]
    (made / "rows.jsonl").write_text("".join(rows))
    (made / "more.jsonl").write_text("".join(rows[:4]))
    for name, text in TEXTS.items():
        (made / f"{name}.rpeg").write_text(text)
    return made


def trained(folder: Path, text: str, staleness: int, *layout: str) -> list[dict[str, Any]]:
    """Compiles, trains from the oldest weights that the window allows, reads what was logged."""
    name = f"{text}_{layout[-1]}_{staleness}"
    package, run_dir = folder / f"out_{name}", folder / f"run_{name}"
    command = ["compile", str(folder / f"{text}.rpeg"), "-o", str(package), *layout]
    assert main([*command, "--set", f"staleness={staleness}"]) == 0
    settings = {"RPEG_RUN_DIR": str(run_dir), "RPEG_VERSIONS": "oldest", "PYTHONPATH": str(ROOT)}
    settings["PYTHON"] = sys.executable
    run = subprocess.run(
        ["bash", str(package / "launch.sh")],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def held(line: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Figures of a step; of the weights, those that the engine samples from."""
    found = {name: line[name] for name in names}
    return found | {"hash/weights": line["hash/weights"].partition("-")[0]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "staleness", "plan"),
    [
        ("grpo", 0, "two"),
        ("grpo", 2, "two"),
        ("ppo", 0, "two"),
        ("ppo", 0, "beside"),
        ("ppo", 2, "apart"),
    ],
)
def test_pools_train_what_one_does(folder: Path, text: str, staleness: int, plan: str) -> None:
    """Bit by bit: the same samples of the same weights, whoever made them when. Without staleness,
    one pool runs step after step, and others through channels, registers and the admission of
    batches.
    """
    one = trained(folder, text, staleness, "--processes", "1")
    several = trained(folder, text, staleness, "--plan", plan)
    same = (*SAME, *(OF_CRITIC if text == "ppo" else ()))
    assert [line["step"] for line in several] == list(range(1, STEPS + 1))
    assert [held(line, same) for line in several] == [held(line, same) for line in one]
    assert [line["lag/max"] for line in several] == [min(i, staleness) for i in range(STEPS)]
    assert several[-1]["eval/acc"] == one[-1]["eval/acc"]
    runs = [folder / f"run_{text}_{layout}_{staleness}" for layout in ("1", plan)]
    for model in ("actor", "critic") if text == "ppo" else ("actor",):
        ours, theirs = (weights(run, model) for run in runs)
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), model
    assert trained_on(runs[0]) == trained_on(runs[1])


def weights(run: Path, model: str) -> dict[str, torch.Tensor]:
    """What the last checkpoint of a run has of a model, which is sound."""
    checkpoint = run / "checkpoints" / f"step-{STEPS:06d}"
    assert verified(checkpoint) == []
    return dict(load_weights(checkpoint, model))


def trained_on(run: Path) -> list[tuple[Any, ...]]:
    """Every update of a run: its step, model and samples."""
    lines = committed(run / "ledger.jsonl")
    return sorted((line["step"], line["model"], tuple(expand(line["ids"]))) for line in lines)


@pytest.mark.slow
def test_a_pool_between_and_unlike_widths(folder: Path) -> None:
    one = trained(folder, "grpo", 0, "--processes", "1")
    three = trained(folder, "grpo", 0, "--plan", "three")
    for ours, theirs in zip(three, one, strict=True):
        for name in ("loss", "grad_norm", "kl", "reward/r"):
            assert ours[name] == pytest.approx(theirs[name], rel=CLOSE, abs=1e-6), name
