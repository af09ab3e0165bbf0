"""Data sets that can't be used are told of at their line, before anything is loaded or written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.tools.commands import Shell

RUN = ("run", "p.rpeg", "--processes", "1")
GOOD = b'{"prompt": "1", "completion": "2"}\n'
DATA = 'data train = prompts("rows.jsonl")'


def write(shell: Shell, content: bytes, data: str = DATA) -> Path:
    shell.write((DATA, data))
    path = shell.folder / "rows.jsonl"
    path.write_bytes(content)
    return path


def said(shell: Shell, *words: str) -> str:
    """What is said of the data set, at its source's place."""
    done = shell(*words)
    place = "p.rpeg:5:24: "
    (line,) = (line for line in done.err.splitlines() if line.startswith(place))
    return line.removeprefix(place)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", " holds no rows: write a JSON object per line"),
        (b"\n  \n", " holds no rows: write a JSON object per line"),
        (GOOD * 3, " has 3 rows, fewer than a batch of 4: lower its size, or add rows"),
        (GOOD + b"\n" + b'{"prompt": "a",}\n', ":3:16: no valid JSON (Expecting property name"),
        ('{"prompt": "hé'.encode() + b'\xe9"}\n', ":1:15: no UTF-8 (byte 0xe9): write the file"),
        (GOOD * 4 + b"[1]\n", ":5: a row must be a JSON object, not list"),
        (GOOD * 4 + b'{"text": "a"}\n', ":5: no field `prompt` (found: text)"),
        (GOOD * 4 + b'{"prompt": 5}\n', ":5: `prompt` must be a text, not int"),
    ],
)
def test_lines_that_are_no_rows(shell: Shell, content: bytes, what: str) -> None:
    path = write(shell, content)
    names = shell.names()
    assert said(shell, *RUN).startswith(f"error: {path}{what}")
    assert said(shell, "check", "p.rpeg").startswith(f"warning: {path}{what}")
    assert shell.names() == names
    assert said(shell, "compile", "p.rpeg", "-o", "out").startswith(f"warning: {path}{what}")


def test_a_folder_and_its_splits(shell: Shell) -> None:
    write(shell, GOOD * 4)
    (shell.folder / "rows.jsonl").rename(shell.folder / "easy.jsonl")
    shell.write((DATA, DATA.replace("rows.jsonl", ".")))
    text = f"error: {shell.folder} is a folder: name a `split` of it (found: easy, more)"
    assert said(shell, *RUN) == text
    shell.write((DATA, DATA.replace('"rows.jsonl"', '".", split="hard"')))
    assert (
        said(shell, *RUN)
        == f"error: cannot read {shell.folder}/hard.jsonl: No such file or directory"
    )
    shell.write((DATA, DATA.replace('"rows.jsonl"', '".", split="easy"')))
    assert "easy" not in shell("check", "p.rpeg").err


def test_a_limit_leaves_fewer_rows_than_a_batch(shell: Shell) -> None:
    data = DATA.replace('"rows.jsonl"', '"rows.jsonl", limit=3')
    path = write(shell, GOOD * 9 + b"not read\n", data)
    assert said(shell, *RUN).startswith(f"error: {path} has 3 rows, fewer than a batch of 4")


DEMOS = """rpeg 0.1
pipeline sft {
  model actor = policy("tiny", optim=adamw(lr=1e-5))
  data told = KIND("rows.jsonl")
  step i < 9 {
    b = batch(told, size=2)
    LOSS
    actor@i+1 = update(actor@i, loss, agg=token_mean)
  }
}
"""


@pytest.mark.parametrize(
    ("kind", "row", "what"),
    [
        ("demos", {}, "no `completion`, but `told` holds demonstrations"),
        ("pairs", {"chosen": "a"}, "no field `rejected`, but `told` holds pairs"),
        ("pairs", {"chosen": "a", "rejected": 1}, "`rejected` must be a text, not int"),
    ],
)
def test_rows_of_another_kind(shell: Shell, kind: str, row: dict[str, object], what: str) -> None:
    loss = "loss = cross_entropy(b)"
    text = DEMOS.replace("KIND", kind)
    if kind == "pairs":
        loss = "lp = logprob(ref, b)\n    loss = dpo(b, lp, beta=0.1)"
        text = text.replace("token_mean", "pair_mean")
        text = text.replace("  data", "  model ref = policy(actor@0)\n  data")
    shell.write(text=text.replace("LOSS", loss))
    (shell.folder / "rows.jsonl").write_text(json.dumps({"prompt": "a", **row}) + "\n")
    done = shell(*RUN)
    assert (done.code, done.out) == (1, "")
    assert f"error: {shell.folder}/rows.jsonl:1: {what}" in done.err
