"""The ledger: short lines, each id once in the history that counts, work undone still told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg.rundir import jsonl
from rpeg.runtime.state.ledger import (
    Consumed,
    Ledger,
    committed,
    consumed,
    expand,
    samples_digest,
)
from rpeg.runtime.trajectories import Demos, Row, Trajectories


def entry(y: Trajectories, active: list[bool] | None = None) -> Consumed:
    flags = torch.tensor([True] * len(y.rows) if active is None else active)
    return consumed("actor", y, y.tokens, y.mask, flags, epochs=2, minibatches=1)


@pytest.fixture
def y(completions: Callable[..., Trajectories]) -> Trajectories:
    """Two samples each of the prompts 0 to 2."""
    return completions(["a", "bc", "d", "e", "fgh", "i"], n=2)


def test_a_line_names_runs_of_prompts_and_what_had_no_loss(y: Trajectories, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.note(entry(y, [True, True, False, False, True, False]))
    ledger.write(1, 1, [ledger.take()])
    assert ledger.take() == []
    assert jsonl.read(ledger.path) == [
        {
            "step": 1,
            "attempt": 1,
            "model": "actor",
            "epochs": 2,
            "minibatches": 1,
            "samples": 6,
            "ids": [[0, 2, 2]],
            "dropped": {"no loss": [[1, 1, 2], [2, 2, [1]]]},
        }
    ]
    assert list(expand([[0, 1, 2], [2, 2, [1]]])) == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 1)]


def test_two_shares_are_one_line_and_one_digest(y: Trajectories, tmp_path: Path) -> None:
    shares = [[entry(y.select(torch.arange(k, k + 2)))] for k in (4, 0, 2)]
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(1, 1, shares)
    assert jsonl.read(ledger.path)[0]["ids"] == [[0, 2, 2]]
    assert samples_digest(shares) == samples_digest([[entry(y)]])
    assert samples_digest([[]]) is None


def test_the_digest_sees_tokens_and_identities(y: Trajectories) -> None:
    token, other = y.tokens.clone(), y.ordinals.clone()
    token[4, 2] += 1
    other[5] += 1
    changed = [replace(y, tokens=token), replace(y, ordinals=other)]
    assert len({samples_digest([[entry(x)]]) for x in (y, *changed)}) == 3


def test_padding_does_not_count(y: Trajectories) -> None:
    padded = replace(y, tokens=y.tokens.masked_fill(~y.mask, 7))
    assert samples_digest([[entry(padded)]]) == samples_digest([[entry(y)]])


def test_a_demonstration_is_the_only_sample_of_its_prompt() -> None:
    demos = Demos((Row("a"), Row("b")), torch.tensor([7, 8]))
    tokens = torch.ones(2, 3, dtype=torch.long)
    mask, active = tokens.bool(), torch.tensor([True, True])
    entry = consumed("actor", demos, tokens, mask, active, epochs=1, minibatches=1)
    assert entry.ids == ((7, 0), (8, 0))


def test_what_is_rolled_back_is_told_but_does_not_count(y: Trajectories, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(1, 1, [[entry(y)]])
    saved = ledger.state_dict()
    ledger.write(2, 1, [[entry(y)]])
    with ledger.path.open("a") as file:
        file.write('{"step": 3, "att')  # a kill in mid-line
    for attempt in (2, 3):
        again = Ledger(ledger.path)
        again.load_state_dict(saved)
        again.rewind(1, attempt)
        again.write(2, attempt, [[entry(y)]])
    lines = [(x["step"], x["attempt"], x.get("rolled_back")) for x in jsonl.read(ledger.path)]
    assert lines == [(1, 1, None), (2, 1, 2), (2, 2, 3), (2, 3, None)]
    assert [(x["step"], x["attempt"]) for x in committed(ledger.path)] == [(1, 1), (2, 3)]


def test_a_lost_ledger_comes_back_with_the_checkpoint(y: Trajectories, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(1, 1, [[entry(y)]])
    saved, before = ledger.state_dict(), jsonl.read(ledger.path)
    ledger.path.unlink()
    again = Ledger(ledger.path)
    again.load_state_dict(saved)
    again.rewind(1, 2)
    assert jsonl.read(ledger.path) == before


def test_without_a_checkpoint_everything_is_rolled_back(y: Trajectories, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(1, 1, [[entry(y)]])
    Ledger(ledger.path).rewind(0, 2)
    assert committed(ledger.path) == []
    assert len(jsonl.read(ledger.path)) == 1
