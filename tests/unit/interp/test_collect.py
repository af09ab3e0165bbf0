"""Dynamic sampling: rounds until enough groups are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rpeg.interp import Interpreter, InterpreterError, Place, Replay
from rpeg.interp.handlers import regions
from rpeg.interp.oracle import Sampling
from rpeg.runtime.recordings.recording import Recording
from rpeg.runtime.trajectories import Trajectories
from rpeg.runtime.verifiers import Verifier
from tests.unit.interp.pipelines import THINGS, parse

Interpret = Callable[..., Interpreter]

STEP = """
    acc, y, lp = collect(groups={groups}, max_rounds={rounds}) {{
      q = batch(train, size=2)
      ys, lps = generate(actor@i, q, n=2, max_tokens=4, dtype=fp32)
      accs = score(brief, ys)
      keep(accs, ys, lps, where={where})
    }}
    adv = group_advantage(acc, baseline=mean, scale=std)
    prox = logprob(actor@i, y)
    pg = ppo_clip(y, adv, prox, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)"""


def module(groups: int = 3, rounds: int = 5, where: str = "mixed") -> object:
    return parse(STEP.format(groups=groups, rounds=rounds, where=where), more=THINGS)


@dataclass
class Rewarding(Sampling):
    """Rewards of 0 and 1 as a test says."""

    draw: Callable[[], bool]

    def score(self, place: Place, verifier: Verifier, y: Trajectories) -> Tensor:
        return torch.tensor([float(self.draw()) for _ in y.rows])


def kept(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Tensor, Trajectories]]:
    """(rewards, trajectories) of every collect, from now on."""
    seen: list[tuple[Tensor, Trajectories]] = []
    first = regions.Kept.first

    def noting(self: regions.Kept, groups: int) -> object:
        values = first(self, groups)
        seen.append((values[0], values[1]))  # type: ignore[arg-type]
        return values

    monkeypatch.setattr(regions.Kept, "first", noting)
    return seen


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), groups=st.integers(1, 3), where=st.sampled_from(["mixed", "nonzero"]))
def test_so_many_groups_and_none_twice(
    data: st.DataObject, groups: int, where: str, interpret: Interpret
) -> None:
    oracle = Rewarding(lambda: data.draw(st.booleans()))
    with pytest.MonkeyPatch.context() as patch:
        seen = kept(patch)
        try:
            record = interpret(module(groups, where=where), oracle=oracle).run(2)
        except InterpreterError as error:
            assert "5 rounds kept" in str(error)
            return
    for step, (rewards, y) in zip(record.steps, seen, strict=True):
        pairs = rewards.view(groups, 2)
        good = pairs[:, 0] != pairs[:, 1] if where == "mixed" else pairs.sum(dim=1) != 0
        assert bool(good.all())
        assert len(set(y.ordinals.tolist())) == groups
        sampled = torch.cat([round_.ordinals for round_ in step.trajectories.values()])
        assert len(set(sampled.tolist())) == len(sampled) // 2  # each prompt once
        assert y.ordinals.tolist() == sorted(y.ordinals.tolist())  # the first that are kept
    assert seen[0][1].ordinals.max() < min(
        round_.ordinals.min() for round_ in record.steps[1].trajectories.values()
    )


def test_rounds_replay(interpret: Interpret) -> None:
    record: Recording = interpret(module()).run(2)
    assert set(record.steps[0].trajectories) >= {"ys/0", "ys/1"}
    again = interpret(module(), oracle=Replay(record)).run(2)
    assert all(
        torch.equal(a.logprobs["prox"], b.logprobs["prox"])
        for a, b in zip(record.steps, again.steps, strict=True)
    )


def test_rounds_that_keep_too_little_are_an_error(interpret: Interpret) -> None:
    said = r"rpeg.collect: 2 rounds kept 0 of 3 groups, .* raise max_rounds"
    with pytest.raises(InterpreterError, match=said):
        interpret(module(rounds=2), oracle=Rewarding(lambda: True)).run(1)
