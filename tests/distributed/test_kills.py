"""Runs whose processes are killed go on with the same command, as if nothing had happened.

The pipeline is compiled and launched as a user would. What is compared with an undisturbed run is
every figure of every step that isn't a time, to the bit, with digests of samples and weights.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.state.checkpoint import load_weights, verified
from rpeg.runtime.state.ledger import committed, expand
from tests.documented import unexplained

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS = 18
PIPELINE = f"""rpeg 0.1
pipeline tiny {{
  model actor = policy("models/tiny-qwen3-digits", optim=adamw(lr=1e-3), dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier shared = outcome("python:rewards:shared")

  step i < {STEPS} {{
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)
    r = score(shared, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    every(steps=3) {{
      checkpoint(keep=2)
    }}
  }}
}}
"""
RICH_STEPS = 8
RICH = f"""rpeg 0.1
pipeline rich {{
  model actor = policy("models/tiny-qwen3-digits", optim=adamw(lr=1e-3), dtype=fp32)
  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier shared = outcome("python:rewards:shared")
  state kl = scalar(init=0.02)

  step i < {RICH_STEPS} {{
    r, y, lp = collect(groups=4, max_rounds=8) {{
      q = batch(train, size=4)
      ys, lps = generate(actor@i, q, n=2, max_tokens=6, dtype=fp32)
      rs = score(shared, ys)
      keep(rs, ys, lps, where=mixed)
    }}
    lp_ref = logprob(ref, y)
    v = values(critic@i, y)
    rt = kl_penalty(r, lp, lp_ref, coef=kl@i)
    raw, ret = gae(rt, v)
    adv = whiten(raw)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean, minibatches=2)
    every(steps=1, from=2) {{
      actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
    }}
    kl@i+1 = kl_controller(kl@i, lp, lp_ref, target=0.05, horizon=100)
    every(steps=3) {{
      checkpoint(keep=2)
    }}
  }}
}}
"""
"""What crosses steps besides one model: a critic, a scalar, a place in data that rounds move on."""
APART_STEPS = 5
APART = f"""rpeg 0.1
pipeline apart {{
  model actor = policy("models/tiny-qwen3-digits", optim=adamw(lr=1e-3), dtype=fp32)
  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier shared = outcome("python:rewards:shared")

  step i < {APART_STEPS} {{
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=6, dtype=fp32)
    r = score(shared, y)
    v = values(critic@i, y)
    lp_ref = logprob(ref, y)
    rt = kl_penalty(r, lp, lp_ref, coef=0.1)
    adv, ret = gae(rt, v)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean, minibatches=2)
    actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
    every(steps=2) {{
      checkpoint(keep=3)
    }}
  }}

  plan apart on "cpu" {{
    pool critics = cores(0..0, per_node=1)
    pool all = cores(0..0, per_node=1)
    y on all, par(dp=1)
    r on all
    lp_ref on critics, par(dp=1)
    v on critics, par(dp=1)
    critic on critics, par(dp=1)
    actor on all, par(dp=1), publish(all, mode=reshard)
  }}
}}
"""
"""Two pools that train, and one that writes checkpoints of both."""
REWARDS = """
def shared(prompt, completion, answer, metadata):
    return len(set(prompt) & set(completion)) + 0.1 * len(completion)
"""
PROGRAMS = ("program_all.py", "program.py")
FIGURES = {"loss", "grad_norm", "reward/r", "tokens", "hash/samples", "hash/weights"}


class Launch:
    """`rpeg run` of a pipeline, in a run folder of its own."""

    def __init__(self, folder: Path, name: str, pipeline: str = "tiny") -> None:
        self.run = folder / "runs" / name
        layout = ["--plan", "apart"] if pipeline == "apart" else ["--processes", "2"]
        options = [*layout, "--allow-python", "--run-dir", str(self.run)]
        self._started = time.time_ns()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rpeg.tools.rpeg", "run", f"{pipeline}.rpeg", *options],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        out, err = self._process.communicate(timeout=300)
        return self._process.returncode, out, err

    def kill(self, rank: int, due: Callable[[Path], bool]) -> bool:
        """Kills a process as soon as `due` says so of the run's folder; False if it ended before.

        Checks that the launch then ends by itself, says what happened, and leaves nobody behind.
        """
        ranks: dict[int, psutil.Process] = {}
        while rank not in ranks or not due(self.run):
            if self._process.poll() is not None:
                return False
            if rank not in ranks and self._has_restored():
                ranks = self._ranks()  # beforehand: a search takes as long as a small checkpoint
            time.sleep(0.0005)
        ranks[rank].kill()
        code, _, err = self.wait()
        assert code != 0
        said = f"error: process {rank} was ended by SIGKILL; the same command resumes from the last"
        lost = "lost another one, which may have said why"  # whoever is faster
        assert said in err or lost in err
        assert "Traceback" not in err
        assert not any(process.is_running() for process in ranks.values())
        return True

    def _has_restored(self) -> bool:
        """Whether the run's folder has forgotten what was past its checkpoint."""
        metrics = self.run / "metrics.jsonl"
        return metrics.exists() and metrics.stat().st_mtime_ns > self._started

    def _ranks(self) -> dict[int, psutil.Process]:
        found = {}
        for process in psutil.Process(self._process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                started = any(part.endswith(PROGRAMS) for part in process.cmdline())
                environment = process.environ() if started else {}
                if "RANK" in environment:
                    found[int(environment["RANK"])] = process
        return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kills")
    rows = [json.dumps({"prompt": f"{k}{k + 1}{k}=", "answer": ""}) + "\n" for k in range(8)]
    (folder / "rows.jsonl").write_text("".join(rows))
    (folder / "rewards.py").write_text(REWARDS)
    (folder / "tiny.rpeg").write_text(PIPELINE)
    (folder / "rich.rpeg").write_text(RICH)
    (folder / "apart.rpeg").write_text(APART)
    return folder


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Launch:
    """Goes on beside the tests that need its result last."""
    return Launch(folder, "undisturbed")


def is_saving(run: Path) -> bool:
    return any((run / "checkpoints").glob(".step-*.tmp"))


def after(steps: int, share: float) -> Callable[[Path], bool]:
    """A moment: after the end of a step, this share of its seconds: a second is a few steps of a
    busy machine, and all of an idle one.
    """
    moment: list[float] = []

    def due(run: Path) -> bool:
        if not moment and len(lines := read_metrics(run / "metrics.jsonl")) >= steps:
            moment.append(time.monotonic() + share * float(lines[-1]["seconds"]))
        return bool(moment) and time.monotonic() >= moment[0]

    return due


def finish(folder: Path, name: str, pipeline: str = "tiny") -> str:
    code, out, err = Launch(folder, name, pipeline).wait()
    assert code == 0, err
    return out


def history(run: Path) -> list[dict[str, Any]]:
    """The steps that a run logged, without times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert unexplained(lines) == set()
    timed = ("time/", "seconds", "tokens_per_s", "busy/", "queue/")
    return [{n: v for n, v in line.items() if not n.startswith(timed)} for line in lines]


def check(run: Path, undisturbed: Launch) -> None:
    """The run did what the undisturbed one did, and its ledger holds each sample once."""
    code, _, err = undisturbed.wait()
    assert code == 0, err
    steps = history(run)
    assert [line["step"] for line in steps] == list(range(1, STEPS + 1))
    assert steps[0].keys() >= FIGURES
    assert steps == history(undisturbed.run)
    assert len({line["hash/weights"] for line in steps}) == STEPS
    for name in ("step-000015", "step-000018"):
        assert verified(run / "checkpoints" / name) == []
    lines = committed(run / "ledger.jsonl")
    uses = Counter(
        (line["model"], i, epoch)
        for line in lines
        for i in expand(line["ids"])
        for epoch in range(line["epochs"])
    )
    assert uses == {("actor", (o, s), 0): 1 for o in range(4 * STEPS) for s in range(4)}
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))


def kill_while_saving(folder: Path, name: str, rank: int) -> None:
    """A save takes a moment: if this one was over, the next will do."""
    for _ in range(STEPS // 3):
        launch = Launch(folder, name)
        assert launch.kill(rank, is_saving), "the run ended before a save was met"
        if is_saving(launch.run):
            return
    pytest.fail("no kill hit a checkpoint while it was written")


def test_a_kill_inside_a_checkpoint_write(folder: Path, undisturbed: Launch) -> None:
    run = folder / "runs" / "once"
    kill_while_saving(folder, "once", rank=1)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 19, "lo')
    finish(folder, "once")
    assert not is_saving(run)
    check(run, undisturbed)


def test_six_kills_at_random_moments(folder: Path, undisturbed: Launch) -> None:
    seed = int(os.environ.get("KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILL_SEED={seed}")
    draw = random.Random(seed)
    moments = sorted(draw.sample(range(1, STEPS - 1), 5))
    saving = draw.randrange(3)
    for k, steps in enumerate(moments):
        if k == saving:
            kill_while_saving(folder, "six", draw.randrange(2))
        moment = after(steps, draw.random())
        assert Launch(folder, "six").kill(draw.randrange(2), moment)
    assert "resuming tiny after step" in finish(folder, "six")
    run = folder / "runs" / "six"
    assert json.loads((run / "run.json").read_text())["attempt"] >= 7
    check(run, undisturbed)


def test_a_critic_a_controller_and_rounds_go_on_too(folder: Path) -> None:
    finish(folder, "whole", "rich")
    for rank, steps in ((0, 2), (1, 5)):
        assert Launch(folder, "parted", "rich").kill(rank, after(steps, 0.0))
    assert "resuming rich after step" in finish(folder, "parted", "rich")
    whole, parted = (folder / "runs" / name for name in ("whole", "parted"))
    steps = history(whole)
    assert history(parted) == steps
    assert [line["step"] for line in steps] == list(range(1, RICH_STEPS + 1))
    assert len({line["state/kl"] for line in steps}) == RICH_STEPS
    assert len({line["critic/loss"] for line in steps}) == RICH_STEPS
    assert len({line["hash/weights"] for line in steps}) == RICH_STEPS - 1  # the critic warms up
    rounds = [line["collect/r/rounds"] for line in steps]
    assert max(rounds) > 1, "no step took another round: the data never moved on by more than one"
    lines, undisturbed = (committed(run / "ledger.jsonl") for run in (parted, whole))
    assert [{**line, "attempt": 1} for line in lines] == undisturbed


def test_a_critic_in_a_pool_of_its_own_goes_on_too(folder: Path) -> None:
    """From the checkpoint of both pools, which were at different places of the step."""
    finish(folder, "together", "apart")
    assert Launch(folder, "severed", "apart").kill(0, after(3, 0.0))
    said = finish(folder, "severed", "apart")
    assert re.search("resuming apart after step [24]\n", said), said  # 4: the kill came late
    whole, severed = (folder / "runs" / name for name in ("together", "severed"))
    steps = history(whole)
    assert history(severed) == steps
    assert [line["step"] for line in steps] == list(range(1, APART_STEPS + 1))
    assert len({line["critic/loss"] for line in steps}) == APART_STEPS
    names = ["step-000002", "step-000004", "step-000005"]
    for name in names:
        ours, theirs = (run / "checkpoints" / name for run in (severed, whole))
        assert verified(ours) == []
        for model in ("actor", "critic"):
            pairs = zip(load_weights(ours, model), load_weights(theirs, model), strict=True)
            assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs), (name, model)
    lines, undisturbed = (committed(run / "ledger.jsonl") for run in (severed, whole))
    assert [{**line, "attempt": 1} for line in lines] == undisturbed
