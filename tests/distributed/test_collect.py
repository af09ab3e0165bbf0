"""Dynamic sampling in compiled programs: what the interpreter says, on one process and on two."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rpeg.frontend import load
from rpeg.interp import Interpreter, Parity, World, compare
from rpeg.runtime.recordings import recording as storage
from rpeg.runtime.recordings.recording import Recording
from rpeg.runtime.state.ledger import committed, expand
from tests.unit.interp.small import write_world

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
STEPS = 3
PIPELINE = f"""rpeg 0.1
pipeline dapo {{
  model actor = policy("tiny", dtype=fp32, optim=adamw(lr=3e-4))
  data train = prompts("prompts.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=6)

  step i < {STEPS} {{
    acc, y, lp = collect(groups=4, max_rounds=8) {{
      q = batch(train, size=4)
      ys, lps = generate(actor@i, q, n=2, max_tokens=6, dtype=fp32)
      accs = score(brief, ys)
      keep(accs, ys, lps, where=mixed)
    }}
    adv = group_advantage(acc, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.28)
    actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
    every(steps=1) {{
      checkpoint()
    }}
  }}
}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_world(tmp_path_factory.mktemp("collect"))
    (folder / "p.rpeg").write_text(PIPELINE)
    module = load(PIPELINE, "p.rpeg").module
    assert module is not None
    storage.save(Interpreter(module, "dapo", World(folder)).run(), folder / "record")
    return folder


@pytest.fixture(scope="module", params=[1, 2])
def run(request: pytest.FixtureRequest, folder: Path) -> Path:
    """The run folder of a program that replayed the interpreter's recording."""
    out = folder / f"run{request.param}"
    command = ["-m", "rpeg.tools.rpeg", "run", "p.rpeg", "--processes", str(request.param)]
    environment = os.environ | {"RPEG_REPLAY": str(folder / "record"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command, "--run-dir", str(out)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def recorded(folder: Path) -> Recording:
    return storage.load(folder / "record")


def test_it_trains_as_the_interpreter_does(run: Path, recorded: Recording) -> None:
    assert compare(recorded, storage.load(run / "replayed")).within(Parity())


def test_the_ledger_has_every_sample_once(run: Path, recorded: Recording) -> None:
    lines = committed(run / "ledger.jsonl")
    for step, record in enumerate(recorded.steps, start=1):
        here = [line for line in lines if line["step"] == step]
        dropped = [
            (reason, pair)
            for line in here
            if "collect" in line
            for reason, ids in line["dropped"].items()
            for pair in expand(ids)
        ]
        trained = [pair for line in here if "model" in line for pair in expand(line["ids"])]
        sampled = torch.cat([y.ordinals for y in record.trajectories.values()]).tolist()
        pairs = [pair for _, pair in dropped] + trained
        assert len(trained) == 8
        assert sorted(pairs) == sorted(zip(sampled, [0, 1] * (len(sampled) // 2), strict=True))
        assert {reason for reason, _ in dropped} <= {"equal rewards", "surplus"}
    assert any("equal rewards" in line["dropped"] for line in lines if "collect" in line)
