"""Generated programs train under a layout what they train in one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpeg.tools.rpeg import main

ROOT = Path(__file__).parents[2]
PIPELINE = """rpeg 0.1
pipeline sort {
  model actor = policy("models/tiny-qwen3-digits", optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier short = outcome("rule:overlong", soft=2, max=6)

  step i < 2 {
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)
    r = score(short, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches=2)
  }

  plan mixed on "cpu" {
    pool all = cores(0..0, per_node=2)
    y on all, par(dp=1, tp=2), engine(name=embedded)
    r on all, par(dp=1, tp=2)
    lp_ref on all, par(dp=1, pp=2), mb(seqs=3)
    actor on all, par(dp=1, tp=2, sp=true, recompute=selective), mb(tokens=40),
      publish(all, mode=reshard)
  }
}
"""
CLOSE = 1e-4
"""Relative: the first step moves the weights apart by the order of sums."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("programs")
    rows = [json.dumps({"prompt": f"{k} {k + 3}", "answer": str(k)}) + "\n" for k in range(8)]
    (made / "rows.jsonl").write_text("".join(rows))
    (made / "sort.rpeg").write_text(PIPELINE)
    return made


def compiled(folder: Path, *layout: str) -> Path:
    """The package of this choice of layout."""
    package = folder / f"out_{layout[-1]}"
    assert main(["compile", str(folder / "sort.rpeg"), "-o", str(package), *layout]) == 0
    return package


def metrics(folder: Path, *layout: str, processes: int = 2) -> list[dict[str, Any]]:
    """Compiles, trains, and reads what was logged."""
    package, run_dir = compiled(folder, *layout), folder / f"run_{layout[-1]}"
    command = ["--standalone", f"--nproc-per-node={processes}"]
    environment = {"RPEG_RUN_DIR": str(run_dir), "RPEG_ROOT": str(folder), "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *command, package / "program_all.py"],
        env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
        check=True,
        timeout=300,
    )
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[dict[str, Any]]:
    return metrics(folder, "--layout", "dp1", processes=1)


MIXED = pytest.param(("--plan", "mixed"), marks=pytest.mark.slow, id="--plan mixed")


@pytest.mark.parametrize("layout", [pytest.param(("--layout", "tp2"), id="--layout tp2"), MIXED])
def test_a_program_trains_the_same(
    layout: tuple[str, str], folder: Path, alone: list[dict[str, Any]]
) -> None:
    found = metrics(folder, *layout)
    assert len(found) == 2
    for mine, theirs in zip(found, alone, strict=True):
        same = ["tokens", "reward/r", "loss", "grad_norm", "kl", "lr"]
        assert {k: mine[k] for k in same} == pytest.approx({k: theirs[k] for k in same}, rel=CLOSE)


def test_models_of_one_program_have_layouts_of_their_own(folder: Path) -> None:
    text = (compiled(folder, "--plan", "mixed") / "program_all.py").read_text()
    assert "groups_tp2spselective = run.groups(" in text
    assert "groups_pp2 = run.groups(" in text
    assert "micro_batch=rt.MicroBatch(seqs=3)" in text
    assert "micro_batch=rt.MicroBatch(tokens=40)" in text
