"""`rpeg generate`, `eval` and `export` on Hugging Face folders; checkpoints are in
tests/distributed.
"""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.unit.interp.pipelines import write_model
from tests.unit.tools.commands import Shell

PAD = 0
REWARD = """
def reward(prompt, completion, answer, metadata):
    if "8" in completion and metadata["picky"]:
        raise ValueError("eight")
    return len(completion) / 8
"""


def load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with random weights, as transformers saves it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    folder = write_model(tmp_path_factory.mktemp("hub") / "m", initializer_range=0.3)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(folder)
    return folder


@pytest.fixture
def hf(model: Path, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model, which is `m` in the shell's folder, beside rows to ask."""
    monkeypatch.setenv("RPEG_ALLOW_PYTHON", "0")  # and afterwards as it was
    (shell.folder / "m").symlink_to(model)
    rows = [{"prompt": f"{k}+{k}=", "answer": str(2 * k), "picky": False} for k in range(12)]
    (shell.folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (shell.folder / "mine.py").write_text(REWARD)
    return model


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def generated(shell: Shell, *words: str) -> list[dict[str, Any]]:
    done = shell("generate", "m", *words, "--max-tokens", "6", "--json")
    assert done.code == 0, done.err
    return objects(done.out)


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "m", "1="],
        ["eval", "m", "--data", "rows.jsonl", "--verifier", "rule:exact_match"],
        ["export", "m", "-o", "out"],
    ],
    ids=lambda words: words[0],
)
def test_without_torch(words: list[str], shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpeg.tools.launching._installed", lambda module: module != "torch")
    done = shell(*words)
    assert (done.code, done.err) == (1, "error: running needs torch: pip install 'rpeg[run]'\n")


# ---- generate


def test_log_probs_are_those_of_transformers(shell: Shell, hf: Path) -> None:
    from tokenizers import Tokenizer

    network, tokenizer = load(hf), Tokenizer.from_file(str(hf / "tokenizer.json"))
    for found in generated(shell, "12+3=", "7=", "-n", "3", "--temperature", "0.7"):
        prompt = tokenizer.encode(found["prompt"]).ids
        with torch.no_grad():
            logits = network(torch.tensor([[*prompt, *found["tokens"]]])).logits[0]
        logits[:, PAD] = -torch.inf
        rows = (logits[len(prompt) - 1 : -1] / 0.7).log_softmax(dim=-1)
        expected: Tensor = rows.gather(1, torch.tensor(found["tokens"])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(found["logprobs"]), expected, atol=1e-5, rtol=0)


def test_seeds_temperature_and_order(shell: Shell, hf: Path) -> None:
    words = ("12+3=", "7=", "-n", "2")
    first = generated(shell, *words)
    asked = [("12+3=", 0), ("12+3=", 1), ("7=", 0), ("7=", 1)]
    assert [(found["prompt"], found["sample"]) for found in first] == asked
    assert generated(shell, *words) == first
    assert generated(shell, *words, "--seed", "1") != first
    greedy = generated(shell, *words, "--temperature", "0")
    assert greedy[0]["tokens"] == greedy[1]["tokens"]
    nearly = generated(shell, *words, "--top-p", "1e-6")
    assert [found["tokens"] for found in nearly] == [found["tokens"] for found in greedy]


def test_blocks_for_people(shell: Shell, hf: Path) -> None:
    found = generated(shell, "12+3=", "7=")
    assert {one["finished"] for one in found} == {False}
    done = shell("generate", "m", "12+3=", "7=", "--max-tokens", "6")
    blocks = [f"> {one['prompt']}\n{one['completion']}\n[cut after 6 tokens]\n\n" for one in found]
    assert done.out == "".join(blocks)


def test_prompts_stand_anywhere(shell: Shell, hf: Path) -> None:
    asked = [one["prompt"] for one in generated(shell, "1=", "--seed", "3", "2=", "-n", "1", "3=")]
    assert asked == ["1=", "2=", "3="]
    done = shell("generate", "m", "1=", "--sead", "3")
    assert done.code == 2
    assert "unrecognized arguments: --sead" in done.err


def test_prompts_from_elsewhere(shell: Shell, hf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = ["0+0=", "1+1=", "2+2="]
    typed = generated(shell, *prompts)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(prompts).encode())))
    assert generated(shell, "-") == typed
    assert generated(shell, "--data", "rows.jsonl", "--limit", "3") == typed
    (shell.folder / "rows").mkdir()
    (shell.folder / "rows.jsonl").rename(shell.folder / "rows" / "few.jsonl")
    assert generated(shell, "--data", "rows", "--split", "few", "--limit", "3") == typed


def test_rows_of_a_task(shell: Shell, hf: Path) -> None:
    """Each is a function of the data's seed."""
    words = ("--data", "gym:basic_arithmetic", "--limit", "2", "--data-seed")
    first, other = (shell("generate", "m", *words, seed, "--json") for seed in ("1", "2"))
    assert "can't encode" in first.err and first.err != other.err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["m"], 2, "give either prompts, or - to read them line by line, or --data"),
        (["m", "1=", "--data", "rows.jsonl"], 2, "give either prompts"),
        (["m", "x"], 1, "a prompt: the tokenizer can't encode 'x'"),
        (["m", "1=", "--step", "2"], 1, "m is one model: --step and --model are for runs"),
        (
            ["m", "1=", "--max-tokens", "600"],
            1,
            "a prompt: a prompt of 2 tokens and max_tokens=600",
        ),
        (["m", "--data", "none.jsonl"], 1, "cannot read "),
        (["tiny", "1="], 1, "tiny/config.json has no 'num_attention_heads'"),
        (["shape", "1="], 1, "shape holds a shape without weights: train it first"),
        (["nowhere", "1="], 1, "nowhere does not exist: name a run's folder, a checkpoint of it, "),
        ([".", "1="], 1, ". holds no model: name a run's folder, a checkpoint of it, "),
        (["run:p/actor", "1="], 1, "`run:p/actor`: no exports in "),
        (["hf:", "1="], 1, "`hf:` names no model of the Hugging Face hub: write hf:NAME"),
        (["hf:a/b/c", "1="], 1, "`hf:a/b/c` names no model of the Hugging Face hub"),
        (["hf:a--b", "1="], 1, "`hf:a--b` names no model of the Hugging Face hub"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_generated(
    words: list[str], code: int, said: str, shell: Shell, hf: Path
) -> None:
    write_model(shell.folder / "shape")
    done = shell("generate", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(f"error: {said}")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--temperature=-1", "a number of at least 0"),
        ("--temperature=nan", "a number of at least 0"),
        ("--top-p=0", "a number above 0 and at most 1"),
        ("--top-p=1.5", "a number above 0 and at most 1"),
        ("--max-tokens=0", "a whole number of at least 1"),
    ],
)
def test_settings_out_of_range(option: str, expected: str, shell: Shell) -> None:
    done = shell("generate", "m", "1=", option)
    assert done.code == 2
    assert f"expected {expected}, not {option.partition('=')[2]}" in done.err


# ---- eval


def measured(shell: Shell, *words: str) -> dict[str, Any]:
    done = shell("eval", "m", "--data", "rows.jsonl", "--max-tokens", "6", "--json", *words)
    assert done.code == 0, done.err
    (found,) = objects(done.out)
    return found


def test_rewards_of_what_is_generated(shell: Shell, hf: Path) -> None:
    """Scores by hand of the same completions."""
    settings = ("-n", "4", "--temperature", "1", "--limit", "8")
    python = ("--verifier", "python:mine:reward", "--allow-python")
    found = measured(shell, *python, *settings)
    completions = generated(shell, "--data", "rows.jsonl", *settings)
    lengths = [len(one["completion"]) / 8 for one in completions]
    assert (found["prompts"], found["n"], found["failed"]) == (8, 4, 0)
    assert found["mean"] == pytest.approx(sum(lengths) / 32)
    assert found["finished"] == sum(one["finished"] for one in completions) / 32
    assert found["tokens"] == sum(len(one["tokens"]) for one in completions) / 32
    assert list(found["pass_at"]) == ["1", "2", "4"]


def test_figures_for_people(shell: Shell, hf: Path) -> None:
    words = ("--data", "rows.jsonl", "--verifier", "rule:exact_match", "--max-tokens", "6")
    lines = shell("eval", "m", *words).out.splitlines()
    assert lines[:3] == [
        "model        m",
        "problems     12 of rows.jsonl, 1 completion each",
        "mean reward  0.0000 (standard error 0.0000), by rule:exact_match",
    ]
    assert lines[3].startswith("finished     ")
    assert "pass@2       0.0000" in shell("eval", "m", *words, "-n", "2").out.splitlines()


def test_calls_that_fail_show(shell: Shell, hf: Path) -> None:
    rows = (shell.folder / "rows.jsonl").read_text()
    (shell.folder / "rows.jsonl").write_text(rows.replace("false", "true"))
    settings = ("-n", "4", "--temperature", "1")
    words = ("--data", "rows.jsonl", "--max-tokens", "6", "--verifier", "python:mine:reward")
    done = shell("eval", "m", *words, "--allow-python", *settings)
    completions = generated(shell, "--data", "rows.jsonl", *settings)
    eights = sum("8" in one["completion"] for one in completions)
    assert eights > 0
    assert f"failed       {eights} calls of the verifier: they count as 0" in done.out
    place = (
        f"note: verifier verifier: {shell.folder}/mine.py:4: ValueError: eight; it was given the"
    )
    assert done.err.startswith(f"{place} completion ")
    assert "rows.jsonl:" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rule:exact"], "there is no `rule:exact`; there is `rule:exact_match`"),
        (["python:mine:reward"], "`python:mine:reward` runs code of yours: allow it with"),
        (["exact_match"], "`exact_match` is not a verifier: use `rule:NAME`"),
    ],
)
def test_verifiers_that_are_none(words: list[str], said: str, shell: Shell, hf: Path) -> None:
    done = shell("eval", "m", "--data", "rows.jsonl", "--verifier", *words)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error: {said}")


# ---- export


def test_an_export_gives_the_same_logits(shell: Shell, hf: Path) -> None:
    done = shell("export", "m", "-o", "out/m")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("out/m: m, ")
    assert {p.name for p in (shell.folder / "out").iterdir()} == {"m"}
    ids = torch.arange(2, 20)[None]
    with torch.no_grad():
        logits = [load(folder)(ids).logits for folder in (hf, shell.folder / "out" / "m")]
    assert torch.equal(*logits)
    found = generated(shell, "1=")
    done = shell("generate", "out/m", "1=", "--max-tokens", "6", "--json")
    assert objects(done.out) == found


def test_an_export_keeps_the_type(shell: Shell, hf: Path) -> None:
    load(hf).bfloat16().save_pretrained(shell.folder / "half")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (shell.folder / "half" / name).write_bytes((hf / name).read_bytes())
    assert shell("export", "half", "-o", "out").code == 0
    assert next(load(shell.folder / "out").parameters()).dtype == torch.bfloat16


def test_folders_that_are_in_the_way(shell: Shell, hf: Path) -> None:
    (shell.folder / "empty").mkdir()
    assert shell("export", "m", "-o", "empty").code == 0
    done = shell("export", "m", "-o", "empty")
    said = "empty isn't empty: choose another folder, or --force to replace a model"
    assert (done.code, done.err) == (1, f"error: {said}\n")
    assert shell("export", "m", "-o", "empty", "--force").code == 0
    (shell.folder / "thesis").mkdir()
    (shell.folder / "thesis" / "text").write_text("years of work")
    done = shell("export", "m", "-o", "thesis", "--force")
    assert done.code == 1
    assert "is not a model folder" in done.err
    assert (shell.folder / "thesis" / "text").exists()
    assert shell("export", "nowhere", "-o", "thesis", "--force").err == done.err, "asked first"


@pytest.mark.parametrize(
    ("out", "code", "said"),
    [
        ("p.rpeg/out", 1, "error: p.rpeg/out can't be written: p.rpeg is not a folder\n"),
        ("/proc/x", 1, "error: /proc/x can't be written: No such file or directory\n"),
        ("", 2, "argument -o/--out: the name of the folder is empty\n"),
    ],
)
def test_targets_that_cannot_be(out: str, code: int, said: str, shell: Shell, hf: Path) -> None:
    done = shell("export", "m", "-o", out)
    assert done.code == code
    assert done.err.endswith(said)


@pytest.mark.parametrize("target", ["", "step-000006", "step-000006/models/actor", "new"])
def test_checkpoints_are_no_targets(target: str, shell: Shell, hf: Path) -> None:
    checkpoints = shell.folder / "runs" / "p" / "checkpoints"
    inside = checkpoints / "step-000006" / "models" / "actor"
    inside.mkdir(parents=True)
    for file in (checkpoints.parent / "run.json", inside.parents[1] / "manifest.json"):
        file.write_text("{}")
    (inside / "config.json").write_text("{}")
    before = shell.names()
    done = shell("export", "m", "-o", str(checkpoints / target), "--force")
    assert done.code == 1
    assert "choose another folder" in done.err
    assert shell.names() == before
    assert shell("export", "m", "-o", "runs/p/final").code == 0, "beside them is fine"


def test_a_damaged_folder_exports_nothing(shell: Shell, hf: Path) -> None:
    before = shell.names()
    (shell.folder / "m").unlink()
    broken = write_model(shell.folder / "m")
    whole = (hf / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:-100])
    done = shell("export", "m", "-o", "out")
    assert done.code == 1
    assert "model.safetensors is damaged" in done.err
    assert "out" not in shell.names() - before
