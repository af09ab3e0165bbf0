"""Recordings survive their files, and comparisons see what differs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rpeg.interp import (
    EXACT,
    Interpreter,
    InterpreterError,
    Parity,
    Replay,
    World,
    compare,
)
from rpeg.runtime.recordings.recording import Recording, load, save
from tests.unit.interp.pipelines import grpo


@pytest.fixture(scope="module")
def recording(world_folder: Path) -> Recording:
    return Interpreter(grpo(), "p", World(world_folder)).run(2)


def test_a_saved_recording_replays(
    recording: Recording, tmp_path: Path, interpret: Callable[..., Interpreter]
) -> None:
    save(recording, tmp_path / "r")
    loaded = load(tmp_path / "r")
    assert compare(recording, loaded) == EXACT
    for ours, theirs in zip(recording.steps, loaded.steps, strict=True):
        a, b = ours.trajectories["y"], theirs.trajectories["y"]
        assert (a.rows, a.prompt_ids, a.texts, a.n) == (b.rows, b.prompt_ids, b.texts, b.n)
        assert torch.equal(a.versions, b.versions)
        assert ours.metrics == theirs.metrics
    replayed = interpret(grpo(), oracle=Replay(loaded)).run(2)
    assert compare(recording, replayed) == EXACT


def test_each_figure_sees_its_difference(recording: Recording) -> None:
    other = copy.deepcopy(recording)
    other.steps[1].logprobs["lp_old"][3, 0] += 0.5
    assert compare(recording, other).logprob == pytest.approx(0.5)
    other = copy.deepcopy(recording)
    other.steps[0].grad_norms["actor"][1] *= 1.25
    assert compare(recording, other).grad_norm == pytest.approx(0.2)
    other = copy.deepcopy(recording)
    for tensor in other.weights["actor"].values():
        tensor += 0.125
    found = compare(recording, other)
    assert found.weights == pytest.approx(0.125)
    assert not found.within(Parity())
    assert EXACT.within(Parity())


def test_nan_is_never_within(recording: Recording) -> None:
    for damage in ("logprob", "grad_norm"):
        other = copy.deepcopy(recording)
        if damage == "logprob":
            other.steps[1].logprobs["lp_old"][0, 0] = float("nan")
        else:
            other.steps[0].grad_norms["actor"][0] = float("nan")
        assert not compare(recording, other).within(Parity())


def test_what_cannot_be_compared_is_said(recording: Recording) -> None:
    fewer = copy.deepcopy(recording)
    fewer.steps.pop()
    with pytest.raises(InterpreterError, match="2 steps can't be compared with 1"):
        compare(recording, fewer)
    other = copy.deepcopy(recording)
    other.steps[0].grad_norms["actor"].pop()
    with pytest.raises(InterpreterError, match="took 2 optimizer steps in one, 1"):
        compare(recording, other)
    renamed = copy.deepcopy(recording)
    renamed.weights["actor"]["extra"] = torch.zeros(1)
    with pytest.raises(InterpreterError, match="actor/extra"):
        compare(recording, renamed)
    silent = copy.deepcopy(recording)
    for step in silent.steps:
        step.logprobs.clear()
        step.trained_rows.clear()
    with pytest.raises(InterpreterError, match="no log-probs in common"):
        compare(recording, silent)


def test_a_replay_says_what_it_lacks(
    recording: Recording, interpret: Callable[..., Interpreter]
) -> None:
    with pytest.raises(InterpreterError, match="ends after 2 steps"):
        interpret(grpo(), oracle=Replay(recording)).run(3)
    shifted = copy.deepcopy(recording)
    shifted.steps.reverse()
    with pytest.raises(InterpreterError, match="recorded for other prompts"):
        interpret(grpo(), oracle=Replay(shifted)).run(1)
    unscored = copy.deepcopy(recording)
    unscored.steps[0].rewards.clear()
    with pytest.raises(InterpreterError, match=r"no rewards `short` in step 0 \(it has none\)"):
        interpret(grpo(), oracle=Replay(unscored)).run(1)
