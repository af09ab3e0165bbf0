"""The trainer is held to the interpreter by record and replay; planted faults must be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rpeg import runtime as rt
from rpeg.frontend import load
from rpeg.interp import Interpreter, Parity, World, compare
from rpeg.runtime.recordings import recording as storage
from tests.distributed.parity_program import FAULTS, MODELS, STEPS, Case, replay
from tests.unit.interp.pipelines import FAMILIES, write_model, write_rows

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("parity_program.py")
BOUND = Parity(logprob=1e-5, grad_norm=1e-5, weights=1e-6)

PIPELINE = """rpeg 0.1
pipeline p {{
  model actor = policy(
    "models/{model}", dtype=fp32,
    optim=adamw(lr=3e-4, warmup=2, schedule=cosine, weight_decay=0.1),
  )
  model ref = policy("models/{model}-ref", dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=8)

  step i < {steps} {{
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=8, dtype=fp32)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.2)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches=2)
  }}
}}
"""


def record(model: str, folder: Path) -> None:
    """The interpreter's own run of the pipeline."""
    loaded = load(PIPELINE.format(model=model, steps=STEPS), "p.rpeg")
    assert loaded.module is not None, loaded.diagnostics
    recording = Interpreter(loaded.module, "p", World(folder)).run()
    storage.save(recording, folder / model / "record")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recordings: `MODEL/record` by the interpreter, `MODEL/CASE` by the trainer."""
    folder = tmp_path_factory.mktemp("parity")
    (folder / "models").mkdir()
    write_rows(folder / "rows.jsonl")
    for model, changes in FAMILIES.items():
        write_model(folder / "models" / model, **changes)
        # Another model: at the actor's own weights the KL term's gradient would be rounding noise,
        # which Adam blows up to the learning rate.
        write_model(folder / "models" / f"{model}-ref", **changes, initializer_range=0.25)
        record(model, folder)
    environment = os.environ | {"RPEG_ROOT": str(folder), "PYTHONPATH": str(ROOT)}
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(PROGRAM)]
    subprocess.run(
        [sys.executable, *command, str(folder)],
        env=environment | {"RPEG_RUN_DIR": str(folder / "two")},
        check=True,
        timeout=500,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RPEG_ROOT", str(folder))
        patch.setenv("RPEG_RUN_DIR", str(folder / "one"))
        run = rt.start(pipeline="parity", steps=1, processes=1, source_sha256="0")
    for model in MODELS:
        recording = storage.load(folder / model / "record")
        alone = replay(run, recording, model, rt.Layout(), Case())
        storage.save(alone, folder / model / "one process")
    return folder


def parity(folder: Path, model: str, case: str) -> Parity:
    recorded = storage.load(folder / model / "record")
    return compare(recorded, storage.load(folder / model / case))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("case", ["one process", "dp2"])
def test_trainer_and_interpreter_agree(folder: Path, model: str, case: str) -> None:
    found = parity(folder, model, case)
    assert found.within(BOUND), found


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_seen(folder: Path, fault: str) -> None:
    found = parity(folder, MODELS[0], fault)
    assert found.grad_norm > 10 * BOUND.grad_norm, found
    assert found.weights > 10 * BOUND.weights, found
