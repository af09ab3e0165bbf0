"""Models out of checkpoints: what a run measured itself comes out again in one process, whatever
layout wrote the checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg.runtime.models.saved import open_saved
from rpeg.tools.rpeg import main
from tests.unit.interp.pipelines import write_model, write_rows

ROOT = Path(__file__).parents[2]
PIPELINE = """rpeg 0.1
pipeline digits {
  model actor = policy("tiny", optim=adamw(lr=3e-2), dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier odd = outcome("python:mine:reward")
  step i < 4 {
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=5, dtype=fp32)
    r = score(odd, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    every(steps=2) {
      greedy = eval(actor@i+1, train, odd, max_tokens=5)
      drawn = eval(actor@i+1, train, odd, n=3, max_tokens=5, temperature=0.8)
      checkpoint()
      export(actor@i+1, to="out/actor")
    }
  }
}
"""
REWARD = """
def reward(prompt, completion, answer, metadata):
    return sum(map(ord, completion)) % 97 / 96
"""
SEED = "7"


@pytest.fixture(
    scope="module",
    params=["dp1", *(pytest.param(layout, marks=pytest.mark.slow) for layout in ("dp2", "tp2"))],
)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of four steps, `runs/digits`."""
    folder = tmp_path_factory.mktemp("saved")
    write_model(folder / "tiny", num_key_value_heads=2)
    write_rows(folder / "rows.jsonl")
    (folder / "mine.py").write_text(REWARD)
    (folder / "p.rpeg").write_text(PIPELINE)
    call = [sys.executable, "-m", "rpeg.tools.rpeg", "run", "p.rpeg", "--allow-python"]
    done = subprocess.run(
        [*call, "--seed", SEED, "--layout", request.param],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,  # only against one that hangs
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def rpeg(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    """Runs a command in the folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("RPEG_ALLOW_PYTHON", "1")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(words)
        read = capsys.readouterr()
        return code, read.out, read.err

    yield call


def metrics(folder: Path) -> dict[int, dict[str, float]]:
    text = (folder / "runs" / "digits" / "metrics.jsonl").read_text()
    return {line["step"]: line for line in map(json.loads, text.splitlines())}


WORDS = ("--data", "rows.jsonl", "--verifier", "python:mine:reward", "--max-tokens", "5", "--json")


@pytest.mark.parametrize("step", [2, 4])
def test_figures_of_the_run(step: int, rpeg: Any, folder: Path) -> None:
    found = metrics(folder)
    assert found[2]["eval/greedy"] != found[4]["eval/greedy"], "the steps must be told apart"
    for name, settings in (
        ("greedy", ()),
        ("drawn", ("-n", "3", "--temperature", "0.8", "--seed", SEED)),
    ):
        code, out, err = rpeg("eval", "runs/digits", "--step", str(step), *WORDS, *settings)
        assert code == 0, err
        assert json.loads(out)["mean"] == pytest.approx(found[step][f"eval/{name}"], abs=1e-8)


def test_names_of_one_model(rpeg: Any) -> None:
    """The newest checkpoint, named in five ways, and its export."""
    checkpoint = "runs/digits/checkpoints/step-000004"
    assert rpeg("export", "runs/digits", "-o", "exported")[0] == 0
    places = (
        ["runs/digits"],
        ["runs/digits", "--step", "4", "--model", "actor"],
        [checkpoint],
        ["run:digits/actor"],
        ["out/actor"],
        ["exported"],
    )
    answers = [rpeg("generate", *place, "77=", "--max-tokens", "5", "--json") for place in places]
    assert {code for code, _, _ in answers} == {0}
    assert len({out for _, out, _ in answers}) == 1
    older = rpeg("generate", "runs/digits", "--step=2", "77=", "--max-tokens", "5", "--json")
    assert older[1] != answers[0][1]


def test_transformers_reads_the_same_model(rpeg: Any, folder: Path) -> None:
    from transformers import AutoModelForCausalLM

    assert rpeg("export", "runs/digits", "--step", "2", "-o", "step2")[0] == 0
    network = AutoModelForCausalLM.from_pretrained(folder / "step2").eval()
    _, out, _ = rpeg("generate", "runs/digits", "--step=2", "3=", "--max-tokens", "5", "--json")
    found = json.loads(out)
    prompt = open_saved(str(folder / "step2")).tokenizer.encode("3=")
    with torch.no_grad():
        logits = network(torch.tensor([[*prompt, *found["tokens"]]])).logits[0]
    logits[:, 0] = -torch.inf  # padding is never sampled
    rows = logits[len(prompt) - 1 : -1].log_softmax(dim=-1)
    expected = rows.gather(1, torch.tensor(found["tokens"])[:, None])[:, 0]
    torch.testing.assert_close(torch.tensor(found["logprobs"]), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs/digits", "--step", "3"), "holds no step 3; there is: 2, 4"),
        (("runs/digits", "--model", "ref"), "holds no trained model ref; there is: actor"),
        (
            ("runs/digits/checkpoints/step-000002", "--step", "2"),
            "runs/digits/checkpoints/step-000002 is one checkpoint: --step is for the folder of a",
        ),
    ],
)
def test_what_is_not_there(words: tuple[str, ...], said: str, rpeg: Any) -> None:
    code, out, err = rpeg("generate", *words, "77=")
    assert (code, out) == (1, "")
    assert err.startswith("error: ") and said in err


def test_damaged_checkpoints(rpeg: Any, folder: Path) -> None:
    """The newest is passed over with a note; one that was asked for is refused by file."""
    shutil.copytree(folder / "runs" / "digits", folder / "hurt")
    checkpoints = folder / "hurt" / "checkpoints"
    (name,) = [p.name for p in (checkpoints / "step-000004" / "actor").glob("__0_0.distcp")]
    path = checkpoints / "step-000004" / "actor" / name
    path.write_bytes(path.read_bytes()[:-1])
    words = ("77=", "--max-tokens", "5", "--json")
    code, out, err = rpeg("generate", "hurt", *words)
    assert (code, out) == rpeg("generate", "runs/digits", "--step", "2", *words)[:2]
    assert err.startswith("note: checkpoint step-000004 is damaged: actor/")
    assert err.endswith("\nnote: using step-000002\n")
    code, out, err = rpeg("export", "hurt", "--step", "4", "-o", "nothing")
    assert (code, out) == (1, "")
    assert "step-000004 is damaged: actor/" in err and "name another step (2, 4)" in err
    assert not (folder / "nothing").exists()
    inside = checkpoints / "step-000002" / "models" / "actor"
    code, out, err = rpeg("export", "runs/digits", "-o", str(inside), "--force")
    assert (code, out) == (1, "") and "lies among the checkpoints of a run" in err
    shutil.rmtree(checkpoints)
    code, _, err = rpeg("generate", "hurt", *words)
    assert (code, err) == (
        1,
        "error: hurt holds no checkpoint: a run writes one at `checkpoint()` and at its end\n",
    )
