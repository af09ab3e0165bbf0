"""What the interpreter recorded is replayed by programs of several pools, over gloo.

Whoever samples, trains the policy and trains the critic, in pools of their own: what all of them
compute is what one pool computes, to the bit, and what the interpreter computed, within rounding.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rpeg.frontend import load
from rpeg.interp import Interpreter, Parity, World, compare
from rpeg.interp.parity import EXACT, gaps
from rpeg.interp.versions import Oldest, Place, VersionOracle, Window
from rpeg.runtime.recordings.recording import Recording, save
from rpeg.runtime.recordings.recording import load as load_recording
from rpeg.tools.rpeg import main
from tests.documented import unexplained

ROOT = Path(__file__).parents[2]
STEPS = 4
POOLS = """
  plan NAME on "cpu" {
    pool rollout = cores(0..0, per_node=1)
    pool trainer = cores(0..0, per_node=1)
    pool critics = cores(0..0, per_node=WIDTH)
    y on rollout, par(dp=1)
    r on rollout
    lp_ref on trainer, par(dp=1)
    prox on trainer, par(dp=1)
    v on critics, par(LAYOUT)
    critic on critics, par(LAYOUT)
    actor on trainer, par(dp=1), publish(rollout, mode=reshard)
  }
"""
LAYOUTS = {"apart": "dp=1", "tp2": "dp=1, tp=2", "pp2": "dp=1, pp=2", "dp2": "dp=2, zero=1"}
"""Of the critic, by the name of the plan."""
PLANS = "".join(
    POOLS.replace("NAME", name)
    .replace("WIDTH", "1" if name == "apart" else "2")
    .replace("LAYOUT", layout)
    for name, layout in LAYOUTS.items()
)
PIPELINE = f"""rpeg 0.1
pipeline ppo {{
  model actor = policy("models/tiny-qwen3-digits", optim=adamw(lr=3e-4, warmup=4), dtype=fp32)
  model critic = value(actor@0, optim=adamw(lr=3e-4, warmup=4), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier short = outcome("rule:overlong", soft=2, max=6)

  step i < {STEPS} {{
    q = batch(train, size=4)
    y, lp = generate(actor@[i-2..i], q, n=4, max_tokens=6, dtype=fp32)
    r = score(short, y)
    v = values(critic@i, y)
    lp_ref = logprob(ref, y)
    prox = logprob(actor@i, y)
    rt = kl_penalty(r, prox, lp_ref, coef=0.1)
    raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)
    adv = whiten(raw)
    w = importance(prox, lp, cap=5.0)
    pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean, minibatches=2)
    actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
  }}
{PLANS}}}
"""


STOPPING = (
    PIPELINE.replace(f"i < {STEPS}", "i < 20")
    .replace("  verifier", '  data told = demos("rows.jsonl")\n  verifier')
    .replace(
        "  }\n\n  plan",
        """    every(steps=3) {
      nll = eval_loss(actor@i+1, told)
      stop(nll, above=0.0)
    }
  }

  plan""",
        1,
    )
    .replace("    v on critics", "    nll on trainer, par(dp=1)\n    v on critics", 1)
)
"""It ends after three steps."""


class Irregular:
    """Versions of each step as a free run may choose them."""

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> torch.Tensor:
        """0, 1, 1, 3."""
        return torch.full((samples, tokens), (0, 1, 1, 3)[place.step])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("replays")
    rows = [json.dumps({"prompt": f"{k} {k + 3}", "completion": "1"}) + "\n" for k in range(16)]
    (made / "rows.jsonl").write_text("".join(rows))
    return made


def recorded(
    folder: Path, name: str, text: str = PIPELINE, oracle: VersionOracle | None = None
) -> Recording:
    """What the interpreter makes of a pipeline, which is written down."""
    module = load(text, "p.rpeg").module
    assert module is not None
    (folder / f"{name}.rpeg").write_text(text)
    made = Interpreter(module, "ppo", World(folder), versions=oracle or Oldest()).run()
    save(made, folder / name)
    return made


@pytest.fixture(scope="module")
def oldest(folder: Path) -> Recording:
    return recorded(folder, "oldest")


def run(folder: Path, recording: str, *options: str) -> subprocess.CompletedProcess[str]:
    name, file = "-".join((recording, *options[1::2])), f"{recording}.rpeg"
    return subprocess.run(
        [sys.executable, "-m", "rpeg.tools.rpeg", "run", file, "--run-dir", name, *options],
        cwd=folder,
        env=os.environ | {"RPEG_REPLAY": recording, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )


def replayed(folder: Path, recording: str, *options: str) -> Recording:
    """What a program of this plan, or of one process, computes of a recording."""
    done = run(folder, recording, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return load_recording(folder / f"{recording}-{options[1]}" / "replayed")


@pytest.fixture(scope="module")
def three(folder: Path, oldest: Recording) -> Recording:
    return replayed(folder, "oldest", "--plan", "apart")


def test_names_of_metrics(folder: Path, three: Recording) -> None:
    """What three pools log is what the page of the run's folder says."""
    lines = (folder / "oldest-apart" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == len(three.steps)
    assert unexplained(map(json.loads, lines)) == set()


def test_three_pools_compute_what_the_interpreter_did(oldest: Recording, three: Recording) -> None:
    assert compare(oldest, three).within(Parity())
    assert len(list(gaps(oldest, three))) == 20 * STEPS
    for ours, theirs in zip(three.steps, oldest.steps, strict=True):
        assert torch.equal(ours.rewards["r"], theirs.rewards["r"])


@pytest.mark.slow
def test_three_pools_compute_what_one_does(folder: Path, three: Recording) -> None:
    """To the bit, and so do the greedy completions of the last weights."""
    one = replayed(folder, "oldest", "--processes", "1")
    assert compare(one, three) == EXACT
    assert len(list(gaps(one, three))) == 20 * STEPS
    assert three.greedy.keys() == one.greedy.keys() == {"y"}
    assert torch.equal(three.greedy["y"], one.greedy["y"])


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["tp2", "pp2", "dp2"])
def test_critics_of_several_processes(folder: Path, oldest: Recording, plan: str) -> None:
    """Their values, losses, gradients and weights are those of the interpreter."""
    made = replayed(folder, "oldest", "--plan", plan)
    assert compare(oldest, made).within(Parity())
    kinds = {(gap.kind, gap.model) for gap in gaps(oldest, made)}
    assert kinds >= {(kind, "critic") for kind in ("value", "target", "loss", "grad_norm")}
    assert made.weights.keys() == {"actor", "critic"}


@pytest.mark.slow
def test_versions_that_a_recording_chose_are_chosen_again(folder: Path) -> None:
    made = recorded(folder, "irregular", oracle=Irregular())
    assert compare(made, replayed(folder, "irregular", "--plan", "apart")).within(Parity())
    lines = (folder / "irregular-apart" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["version/actor"] for line in lines] == [0, 1, 1, 3]


@pytest.mark.slow
def test_all_pools_end_where_a_stop_ended_the_recording(folder: Path) -> None:
    """The one that samples is two steps ahead then, of which the recording has nothing."""
    made = recorded(folder, "stopping", STOPPING)
    assert len(made.steps) == 3
    assert compare(made, replayed(folder, "stopping", "--plan", "apart")).within(Parity())


@pytest.mark.slow
def test_what_a_replay_refuses(folder: Path, oldest: Recording) -> None:
    done = run(folder, "oldest", "--plan", "apart", "--order", "completion")
    assert done.returncode == 1
    assert "`y` fills its batches in completion order, and a recording holds whole" in done.stderr
    (folder / "nothing.rpeg").write_text(PIPELINE)
    done = run(folder, "nothing", "--plan", "apart")
    assert done.returncode == 1
    assert "RPEG_REPLAY must be the folder of a recording, and nothing is not one" in done.stderr


@pytest.mark.slow
def test_what_verify_keeps_is_replayed_by_its_plans(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another folder than the pipeline's, whose data it reads."""
    (folder / "verified.rpeg").write_text(PIPELINE)
    monkeypatch.chdir(folder)
    kept = tmp_path / "kept"
    words = ["--layouts", "dp1", "--steps", "3", "--keep", str(kept)]
    assert main(["verify", "verified.rpeg", *words]) == 0
    shutil.move(kept / "pipeline.rpeg", kept / "recording.rpeg")
    made = replayed(kept, "recording", "--plan", "apart")
    assert compare(load_recording(kept / "recording"), made).within(Parity())
    assert made.weights.keys() == {"actor", "critic"}
    assert len(made.steps) == 3
