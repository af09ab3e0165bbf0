"""`expect NAME = histogram(FILE)`: a file without lengths is refused at its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rpeg.cost.lengths import LengthsError, listed
from rpeg.tools.console import FAILED
from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import Shell

TEXT = grpo().removesuffix("}\n") + '  expect y = histogram("lengths.txt")\n}\n'
LINE = TEXT.count("\n", 0, TEXT.index("histogram")) + 1
MISTAKES = [
    (None, "paths are relative to the pipeline's file"),
    ("", "is empty: write numbers apart by spaces or lines"),
    ("12 foo", "`foo` is not a number"),
    ("0 0 0", "0: expected above 0"),
    ("12 -4", "-4: expected above 0"),
    ("nan", "nan: expected above 0"),
    ("1e99", "1e99: expected above 0 and at most 2147483647"),
]


def test_numbers_are_sorted_and_capped(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("30 10\n1e9\n", encoding="utf-8")
    assert np.array_equal(listed(tmp_path / "lengths.txt", 40.0).values, [10.0, 30.0, 40.0])


@pytest.mark.parametrize(("content", "message"), MISTAKES)
def test_a_file_without_lengths(content: str | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(LengthsError) as refused:
        listed(path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "words",
    [
        "check p.rpeg",
        "compile p.rpeg -o out --processes 1",
        "run p.rpeg --processes 1",
        "simulate p.rpeg --cluster h100-1 --arch actor=qwen2.5-7b --arch ref=qwen2.5-7b",
    ],
)
def test_it_is_told_at_its_line(words: str, shell: Shell) -> None:
    shell.write(text=TEXT)
    done = shell(*words.split())
    assert done.code == FAILED
    assert f"p.rpeg:{LINE}:" in done.err and "lengths.txt: paths are relative to" in done.err


def test_a_file_with_lengths(shell: Shell) -> None:
    shell.write(text=TEXT)
    (shell.folder / "lengths.txt").write_text("1 2 3", encoding="utf-8")
    assert "lengths.txt" not in shell("check", "p.rpeg").err
