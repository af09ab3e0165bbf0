"""A replay gives each process its share of a recording, and brings together what they note."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.errors import ReplayFailure
from rpeg.runtime.recordings.recording import Recording, StepRecord, load, save
from rpeg.runtime.recordings.replay import Notes, Replay, _joined_pools, _merged
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

SETTINGS = Sampling(n=2, max_tokens=3, temperature=1.0, top_p=1.0, stop=(), run_seed=0, seed=0)


def trajectories(prompts: int = 4, n: int = 2) -> Trajectories:
    samples = prompts * n
    return Trajectories(
        rows=tuple(Row(f"{k // n}=") for k in range(samples)),
        prompt_ids=tuple((k // n,) for k in range(samples)),
        tokens=torch.arange(samples * 3).view(samples, 3),
        mask=torch.ones(samples, 3, dtype=torch.bool),
        versions=torch.zeros(samples, 3, dtype=torch.int32),
        finished=torch.ones(samples, dtype=torch.bool),
        ordinals=torch.arange(prompts).repeat_interleave(n),
        samples=torch.arange(n).repeat(prompts),
        texts=("",) * samples,
        n=n,
        temperature=1.0,
    )


def recorded() -> StepRecord:
    return StepRecord(
        trajectories={"y": trajectories()},
        rewards={"acc": torch.arange(8.0), "again": torch.arange(8.0) + 10},
        logprobs={"lp_b": torch.zeros(8, 3), "lp_a": torch.zeros(8, 3)},
        values={"v": torch.zeros(8, 3)},
        makers={
            **{"y": "actor", "acc": "right", "again": "right"},
            **{"lp_b": "ref", "v": "ref", "lp_a": "ref"},
        },
    )


@dataclass
class Engine:
    name: str = "actor"
    version: int = 7
    asked: list[Trajectories] = field(default_factory=list[Trajectories])

    def logprobs(self, y: Trajectories, settings: Sampling, dtype: str) -> Tensor:
        self.asked.append(y)
        return -y.tokens.float()


@pytest.fixture
def replay() -> Any:
    run = SimpleNamespace(step=0, batch_step=0, data_parallel=(1, 2))
    return Replay(run, Recording("p", [recorded()]))  # type: ignore[arg-type]


def prompts(first: int, count: int = 2) -> Prompts:
    return Prompts(tuple(Row(f"{k}=") for k in range(count)), torch.arange(first, first + count))


def test_a_share_of_the_completions_under_the_engines_own_weights(replay: Any) -> None:
    engine = Engine()
    y, logprobs = replay.completions(engine, prompts(2), SETTINGS, "fp32")
    assert y.ordinals.tolist() == [2, 2, 3, 3]
    assert y.versions.eq(7).all()
    assert torch.equal(logprobs, -y.tokens.float())
    assert engine.asked[0].tokens[0, 0] == 12


def test_a_share_of_the_rewards_in_the_order_of_the_calls(replay: Any) -> None:
    y = trajectories().select(torch.arange(4, 8))
    verifier = SimpleNamespace(name="right")
    assert replay.rewards(verifier, y) == [4.0, 5.0, 6.0, 7.0]
    assert replay.rewards(verifier, y) == [14.0, 15.0, 16.0, 17.0]
    with pytest.raises(ReplayFailure, match=r"`right` is asked for rewards 3 times.* has 2"):
        replay.rewards(verifier, y)


def test_other_prompts_and_other_steps_are_refused(replay: Any) -> None:
    with pytest.raises(ReplayFailure, match="`y` of step 1 was recorded for other prompts"):
        replay.completions(Engine(), prompts(0), SETTINGS, "fp32")
    replay._run.batch_step = 1
    with pytest.raises(ReplayFailure, match="the recording ends after 1 steps"):
        replay.completions(Engine(), prompts(2), SETTINGS, "fp32")


def test_notes_of_all_processes_come_together() -> None:
    def notes(share: int, rows: dict[int, float]) -> Notes:
        made = Notes(
            sampled={"y": torch.full((4, 3), float(share))},
            answers={
                ("ref", "logprob"): [
                    torch.full((4, 3), 2.0 + share),
                    torch.full((4, 3), 4.0 + share),
                ],
                ("ref", "values"): [torch.full((4, 3), 6.0 + share)],
            },
        )
        told = {k: torch.full((3,), value) for k, value in rows.items()}
        made.open["actor"] = {"logprob": told} if told else {}
        made.close("actor", 0.5)
        made.close("actor", 0.25)
        return made

    # Two pipeline stages, of which the first sees no log-probs, times two replicas.
    gathered = [(0, notes(0, {})), (1, notes(1, {})), (0, notes(0, {3: 0.3, 1: 0.1}))]
    step = _merged([*gathered, (1, notes(1, {6: 0.6}))], recorded())
    assert step.sampled["y"][:, 0].tolist() == [0.0] * 4 + [1.0] * 4
    assert step.logprobs["lp_b"][:, 0].tolist() == [2.0] * 4 + [3.0] * 4
    assert step.logprobs["lp_a"][:, 0].tolist() == [4.0] * 4 + [5.0] * 4
    assert step.trained_rows["actor/0"].tolist() == [1, 3, 6]
    assert step.values["v"][:, 0].tolist() == [6.0] * 4 + [7.0] * 4
    assert step.trained["actor/0/logprob"][:, 0].tolist() == pytest.approx([0.1, 0.3, 0.6])
    assert "actor/1" not in step.trained_rows
    assert step.grad_norms == {"actor": [0.5, 0.25]}


def test_log_probs_that_a_pass_left_out_are_not_mistaken_for_others() -> None:
    only = Notes(answers={("ref", "logprob"): [torch.zeros(8, 3)]})
    assert _merged([(0, only)], recorded()).logprobs == {}


def test_pools_come_together() -> None:
    sampler = StepRecord(sampled={"y": torch.zeros(8, 3)}, rewards={"acc": torch.zeros(8)})
    trainer = StepRecord(grad_norms={"actor": [0.5]}, trained_rows={"actor/0": torch.arange(8)})
    trainer.logprobs["lp_b"] = torch.ones(8, 3)
    critics = StepRecord(grad_norms={"critic": [0.25]}, values={"v": torch.ones(8, 3)})
    (step,) = _joined_pools([Recording("p", [s]) for s in (trainer, sampler, critics)]).steps
    assert [*step.sampled, *step.rewards, *step.logprobs, *step.values] == ["y", "acc", "lp_b", "v"]
    assert step.grad_norms == {"actor": [0.5], "critic": [0.25]}
    assert list(step.trained_rows) == ["actor/0"]


def test_pools_that_were_given_the_same_rewards_are_refused() -> None:
    made = StepRecord(rewards={"acc": torch.zeros(8)}, makers={"acc": "right"})
    with pytest.raises(ReplayFailure, match=r"`right` is asked in two pools, and both.*`acc`"):
        _joined_pools([Recording("p", [made]), Recording("p", [made])])


def test_a_stop_ends_a_replay_where_it_ended_the_recording(replay: Any) -> None:
    assert replay.ends(9) == 9  # more than the recording has, as it will say
    replay._recorded.steps[-1].events.append("stop")
    assert replay.ends(9) == 1


def test_rewards_that_were_given_are_told(replay: Any) -> None:
    replay.rewards(SimpleNamespace(name="right"), trajectories().select(torch.arange(4)))
    notes = replay._notes.pop(0)
    step = _merged([(0, notes), (1, notes)], recorded())
    assert {name: r.tolist() for name, r in step.rewards.items()} == {"acc": list(range(8))}


def test_files_keep_the_order_in_which_things_were_made(tmp_path: Path) -> None:
    save(Recording("p", [recorded()], greedy={"y": torch.tensor([[3, -1]])}), tmp_path)
    loaded = load(tmp_path)
    (step,) = loaded.steps
    assert step.made_by("ref", step.logprobs) == ["lp_b", "lp_a"]
    assert step.made_by("right", step.rewards) == ["acc", "again"]
    assert loaded.greedy["y"].tolist() == [[3, -1]]
