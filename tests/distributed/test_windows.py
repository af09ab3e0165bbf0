"""Samples of older weights on one pool: what the interpreter computes, on every layout; runs that
are killed go on to the bit; a window of no steps is the synchronous run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rpeg.frontend import load
from rpeg.interp import Interpreter, Parity, World, compare
from rpeg.runtime.recordings.recording import load as load_recording
from rpeg.runtime.recordings.recording import save
from rpeg.runtime.state.ledger import committed, expand
from rpeg.tools.commands.compile import write_package
from rpeg.tools.compiling import Choice, compile_text
from rpeg.tools.console import Source, read
from rpeg.tools.launching import environment, launch
from rpeg.tools.verifying.judge import BOUND
from rpeg.tools.verifying.run import Request, verify
from rpeg.tools.verifying.show import Report
from tests.distributed import test_collect
from tests.distributed.test_kills import (
    PIPELINE,
    REWARDS,
    ROOT,
    Launch,
    after,
    check,
    finish,
    history,
)
from tests.distributed.verifying import CORRECTIONS, NEWEST, STALE, planting, window, write
from tests.unit.interp.small import write_world

pytestmark = pytest.mark.slow

LAYOUTS = dict(zip(CORRECTIONS, ("dp2", "tp2", "pp2", "dp2zero1", "tp2sp"), strict=True))


def verified(folder: Path, correction: str, layout: str, bug: str | None = None) -> Report:
    file = write(folder, window(correction), "qwen3")
    prepare = planting(bug) if bug is not None else None
    return verify(Request(read(str(file)), layouts=[layout]), print, prepare)


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_a_window_is_what_the_interpreter_computes(tmp_path: Path, correction: str) -> None:
    report = verified(tmp_path / "p", correction, LAYOUTS[correction])
    assert report.ok, report
    for verdict in report.verdicts:
        assert verdict.parity is not None and verdict.parity.within(BOUND)
        assert verdict.has_engine and verdict.parity.logprob > 0.0


@pytest.mark.parametrize("bug", [STALE, NEWEST], ids=["stale", "newest"])
def test_samples_of_other_versions_are_caught(tmp_path: Path, bug: str) -> None:
    (verdict,) = verified(tmp_path / "p", "decoupled", "dp1", bug).verdicts
    assert not verdict.ok
    assert "engine" in verdict.problem, verdict.problem


def windowed(text: str, versions: str) -> str:
    """The pipeline with samples of these versions, which its loss corrects for."""
    lines = "    prox = logprob(actor@i, y)\n    w = importance(prox, lp)\n    pg ="
    edits = {
        "generate(actor@i,": f"generate({versions},",
        "    pg =": lines,
        "adv, lp,": "adv, prox, w,",
    }
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"prompt": f"{k}{k + 1}{k}=", "answer": ""}) + "\n" for k in range(8)]
    (tmp_path / "rows.jsonl").write_text("".join(rows))
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "tiny.rpeg").write_text(windowed(PIPELINE, "actor@[i-2..i]"))
    return tmp_path


def test_a_killed_run_of_older_weights_goes_on_to_the_bit(folder: Path) -> None:
    undisturbed = Launch(folder, "undisturbed")
    assert Launch(folder, "killed").kill(1, after(10, 0.5))
    shutil.copytree(folder / "runs" / "killed", folder / "runs" / "narrow")
    assert "resuming tiny after step" in finish(folder, "killed")
    check(folder / "runs" / "killed", undisturbed)
    lines = history(undisturbed.run)
    assert [line["lag/max"] for line in lines] == [0, 1, *[2] * (len(lines) - 2)]
    assert all(line["version/min"] == max(0, i - 2) for i, line in enumerate(lines))
    check_narrow(folder, lines)


def check_narrow(folder: Path, undisturbed: list[dict[str, Any]]) -> None:
    """One process goes on with the batches that two had made ahead."""
    options = ["--processes", "1", "--allow-python", "--run-dir", "runs/narrow"]
    said = cli(folder, "run", "tiny.rpeg", *options)
    step = int(re.findall(r"resuming tiny after step (\d+)", said)[0])
    lines = history(folder / "runs" / "narrow")
    samples = [[line["hash/samples"] for line in run] for run in (lines, undisturbed)]
    assert samples[0][: step + 2] == samples[1][: step + 2]
    assert max(line["lag/max"] for line in lines) == 2
    ledger = committed(folder / "runs" / "narrow" / "ledger.jsonl")
    used = [i for line in ledger for i in expand(line["ids"])]
    assert sorted(used) == [(o, s) for o in range(4 * len(lines)) for s in range(4)]


def cli(folder: Path, *arguments: str, **variables: str) -> str:
    """What the command says, which has to succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "rpeg.tools.rpeg", *arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | variables,
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


PPO = PIPELINE
for old, new in {
    "  data train": """  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train""",
    "    adv = group_advantage(r, baseline=mean, scale=std)\n": """    v = values(critic@i, y)
    lp_ref = logprob(ref, y)
    rt = kl_penalty(r, lp, lp_ref, coef=0.1)
    raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)
    adv = whiten(raw)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean)
""",
}.items():
    assert old in PPO
    PPO = PPO.replace(old, new)


@pytest.mark.parametrize("text", [PIPELINE, PPO], ids=["grpo", "ppo"])
def test_a_window_of_no_steps_is_the_synchronous_run(folder: Path, text: str) -> None:
    source = Source(folder / "tiny.rpeg", windowed(text, "actor@i"))
    runs = []
    for name in ("plain", "ahead"):
        package = folder / name
        module = compile_text(source, Choice(processes=2, allow_python=True))
        write_package(module, source, package, force=False)
        if name == "ahead":
            through_the_loop(package / "program_all.py")
        variables = environment(folder / "runs" / name, 0, folder, allow_python=True)
        with (folder / f"{name}.log").open("w") as log:
            assert launch(package, os.environ | variables, log) == 0, (
                folder / f"{name}.log"
            ).read_text()
        runs.append(history(folder / "runs" / name))
    assert runs[0] == runs[1] and len(runs[0]) > 10


def through_the_loop(program: Path) -> None:
    """Has a synchronous program make its batches as one with a window does."""
    head, batch, rest = program.read_text().partition("        q = train.batch(")
    made, put, tail = (batch + rest).partition("        y_buffer.put(y, lp)\n")
    assert batch and put
    lines = "".join(f"    {line}" for line in (made + put).splitlines(keepends=True))
    program.write_text(f"{head}        for _ in y_buffer.ahead(i):\n{lines}{tail}")


def test_a_collect_of_older_weights_is_what_the_interpreter_computes(tmp_path: Path) -> None:
    folder = write_world(tmp_path)
    text = windowed(test_collect.PIPELINE, "actor@[i-2..i]")
    (folder / "p.rpeg").write_text(text)
    module = load(text, "p.rpeg").module
    assert module is not None
    recorded = Interpreter(module, "dapo", World(folder)).run()
    save(recorded, folder / "record")
    cli(folder, "run", "p.rpeg", "--processes", "1", "--run-dir", "out", RPEG_REPLAY="record")
    assert compare(recorded, load_recording(folder / "out" / "replayed")).within(Parity())
