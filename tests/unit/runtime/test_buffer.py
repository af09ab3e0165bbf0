"""The buffer of one pool: batches ahead of their step, in order, bounded, in checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pytest
import torch

from rpeg.runtime.buffer import TrajectoryBuffer
from rpeg.runtime.collect import Collect
from rpeg.runtime.errors import BufferFailure, DataFailure, StalenessExceeded
from rpeg.runtime.fields import importance
from rpeg.runtime.run import Run
from rpeg.runtime.trajectories import Row, Trajectories

Made = Callable[[int], Trajectories]


def buffer(run: Run, k: int, **settings: str) -> TrajectoryBuffer:
    said = {"bound": "strict", **settings}
    return TrajectoryBuffer(run, "y", capacity=k + 1, max_lag=k, **said)  # type: ignore[arg-type]


def of_versions(y: Trajectories, *versions: int) -> Trajectories:
    """The same, its samples written by these versions."""
    written = torch.tensor(versions).unsqueeze(1).expand(y.mask.shape)
    return replace(y, versions=torch.where(y.mask, written, -1).int())


def test_batches_come_in_order_and_too_old_ones_are_refused(run: Run, trajectories: Made) -> None:
    held = buffer(run, 1)
    first, second = trajectories(4), trajectories(8)
    held.put(first, torch.ones(4))
    held.put(second)
    y, ones = held.take(step=1)
    assert y.tokens is first.tokens and torch.equal(ones, torch.ones(4))
    with pytest.raises(StalenessExceeded, match="2 versions old"):
        held.take(step=2)
    head = buffer(run, 1, bound="head")
    head.put(first)
    assert head.take(step=5)[0].tokens is first.tokens


@pytest.mark.parametrize("k", [0, 1, 3, 20])
def test_as_many_batches_as_the_window_allows_are_ahead(
    run: Run, trajectories: Made, k: int
) -> None:
    held, steps, made = buffer(run, k), run.record.steps, []
    for i in range(steps):
        for step in held.ahead(i):
            assert run.batch_step == step
            held.put(trajectories(4))
            made.append((i, step))
        assert run.batch_step == run.step
        held.take(step=0)
    assert made == [(max(0, step - k), step) for step in range(steps)]


def test_full_empty_and_forgotten_are_told(run: Run, trajectories: Made) -> None:
    held = buffer(run, 1)
    with pytest.raises(BufferFailure, match="put a batch first"):
        held.take(step=0)
    with pytest.raises(BufferFailure, match="nothing was put for step 1"):
        list(held.ahead(0))
    held.put(trajectories(4))
    held.put(trajectories(4))
    with pytest.raises(BufferFailure, match="it holds 2"):
        held.put(trajectories(4))


def test_old_spans_stay_and_train_nothing(run: Run, trajectories: Made) -> None:
    y = of_versions(trajectories(8), 0, 3, 4, 5, 5, 4, 3, 5)
    masked, dropped = buffer(run, 2, old_spans="mask"), buffer(run, 2, old_spans="drop")
    masked.put(y)
    dropped.put(y)
    (kept,) = masked.take(step=5)
    assert torch.equal(kept.sampled, y.sampled)
    assert kept.mask.any(dim=1).tolist() == [False, *[True] * 7]
    assert torch.equal(kept.tokens, y.tokens)
    assert run.metrics.merge()["lag/old"] == y.sampled_lengths[0]
    (kept,) = dropped.take(step=5)
    assert kept.mask.any(dim=1).tolist() == [*[False] * 4, *[True] * 4]
    assert run.metrics.merge()["lag/old"] == y.sampled_lengths[:4].sum()


def test_lags_and_versions_are_in_the_metrics_of_the_step(run: Run, trajectories: Made) -> None:
    y = of_versions(trajectories(4), 4, 4, 3, 5)
    held = buffer(run, 2)
    held.put(y)
    held.take(step=5)
    tokens = y.sampled_lengths.tolist()
    logged = run.metrics.merge()
    assert {n: v for n, v in logged.items() if n.startswith("lag/histogram")} == {
        "lag/histogram/0": tokens[3],
        "lag/histogram/1": tokens[0] + tokens[1],
        "lag/histogram/2": tokens[2],
    }
    assert logged["lag/max"] == 2 and logged["version/min"] == 3 and logged["version/max"] == 5
    mean = (tokens[0] + tokens[1] + 2 * tokens[2]) / sum(tokens)
    assert logged["lag/mean"] == pytest.approx(mean)


def test_another_width_goes_on_with_the_same_batches(run: Run, trajectories: Made) -> None:
    whole = buffer(run, 2)
    batches = [(trajectories(16), torch.randn(16, 6)) for _ in range(2)]
    for y, field in batches:
        whole.put(y, field)
    states = []
    for index in range(2):  # one share becomes two
        run.data_parallel = (index, 2)
        part = buffer(run, 2)
        part.load_shares([whole.state_dict()])
        y, field = part.take(step=0)
        rows = torch.arange(8) + 8 * index
        assert torch.equal(field, batches[0][1][rows])
        assert torch.equal(y.ordinals, batches[0][0].ordinals[rows])
        states.append(part.state_dict())
    run.data_parallel = (0, 1)
    again = buffer(run, 2)
    again.load_shares(states)  # and they one again
    y, field = again.take(step=0)
    assert torch.equal(field, batches[1][1]) and y.prompt_ids == batches[1][0].prompt_ids


def test_weights_and_what_bounds_them_are_in_the_metrics(run: Run, trajectories: Made) -> None:
    y = trajectories(4)
    behaviour = torch.zeros(y.tokens.shape)
    current = behaviour.clone()
    current[0] = 2.0
    w = importance(run, y, current, behaviour, cap=5.0, floor=0.5, mode="mask", level="token")
    tokens, total = y.sampled_lengths.tolist(), int(y.sampled_lengths.sum())
    logged = run.metrics.merge()
    assert logged["importance/masked"] == pytest.approx(tokens[0] / total)
    assert logged["importance/mean"] == pytest.approx(1 - tokens[0] / total)
    assert logged["mismatch/kl"] == pytest.approx(-2 * tokens[0] / total)
    assert logged["mismatch/max"] == 2
    assert torch.equal(w, y.mask.float() * torch.tensor([0.0, 1, 1, 1]).unsqueeze(1))


def test_a_collect_gathers_ahead_and_keeps_its_batches(run: Run, trajectories: Made) -> None:
    with pytest.raises(BufferFailure, match="give it max_lag"):
        Collect(run, "now", groups=2, max_rounds=1).take(step=0)
    rounds = Collect(run, "y", groups=2, max_rounds=2, max_lag=1)
    rewards = torch.tensor([0.0, 1, 0, 1, 1, 1, 1, 1])
    made = []
    for i in range(3):
        for step in rounds.ahead(i):
            for _ in rounds.rounds():
                y = of_versions(trajectories(8), *[i] * 8)
                rounds.keep(rewards, y, torch.full((8, 6), step), where="mixed")
            made.append(step)
        rounds.take(step=i)
        assert rounds.rewards().tolist() == [0, 1, 0, 1] * 2
        assert rounds.token_field(index=0).unique().tolist() == [i]
        assert rounds.trajectories().versions.max() == max(0, i - 1)
    assert made == [0, 1, 2, 3]


def test_rows_wait_as_a_checkpoint_keeps_them(run: Run, trajectories: Made, tmp_path: Path) -> None:
    y = trajectories(4)
    fields = {"names": [np.str_("Ann")], "solved": (np.bool_(True), 1.5, None)}
    held = buffer(run, 1)
    held.put(replace(y, rows=(Row("1", metadata=fields),) * 4))
    torch.save(held.state_dict(), tmp_path / "held.pt")
    again = buffer(run, 1)
    again.load_shares([torch.load(tmp_path / "held.pt", weights_only=True)])
    kept = again.take(step=0)[0]
    assert kept.rows == held.take(step=0)[0].rows
    assert kept.rows[0].metadata == {"names": ["Ann"], "solved": (True, 1.5, None)}
    with pytest.raises(DataFailure, match=r"rows\.jsonl:3: a field holds a date, .*make it a text"):
        odd = Row("1", metadata={"on": date(2026, 1, 1)}, place="rows.jsonl:3")
        held.put(replace(y, rows=(odd,) * 4))
