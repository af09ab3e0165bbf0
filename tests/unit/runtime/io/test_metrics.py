"""Metrics, their file, the lines people see, the plot."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from rpeg.runtime import world
from rpeg.runtime.errors import RunFolderFailure, RuntimeFailure
from rpeg.runtime.logs.metrics import MetricsFile, StepMetrics, main_reward, read_metrics
from rpeg.runtime.logs.progress import (
    Eta,
    LiveView,
    PlainView,
    Plan,
    format_duration,
    format_figures,
)
from rpeg.runtime.logs.report import evaluations, moving_mean, plot_run, series, trained

LINE = {
    "step": 20,
    "seconds": 0.5,
    "reward/fmt": 1.0,
    "reward/r": 0.4123,
    "loss": -0.01234,
    "length/mean": 6.14,
    "tokens_per_s": 1234.4,
    "eval/heldout": 0.3333,
}


def test_means_weigh_by_what_they_count() -> None:
    metrics = StepMetrics()
    metrics.add("loss", 1.0, weight=3)
    metrics.add("loss", 5.0, weight=1)
    metrics.add("tokens", 3, how="sum")
    metrics.add("tokens", 4, how="sum")
    metrics.add("longest", 3, how="max")
    metrics.add("longest", 2, how="max")
    assert metrics.merge() == {"loss": 2.0, "tokens": 7, "longest": 3}
    assert metrics.merge() == {}


def test_a_sum_counts_each_shard_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that hold the whole batch; a model splits it over them."""
    others = StepMetrics()
    others.add("tokens", 7, how="sum")
    others.add("critic/loss", 4, how="sum", shard=1)
    monkeypatch.setattr(world, "gather", lambda mine: [mine, (0, others._entries)])
    metrics = StepMetrics()
    metrics.add("tokens", 7, how="sum")
    metrics.add("critic/loss", 3, how="sum", shard=0)
    assert metrics.merge(shard=0) == {"tokens": 7, "critic/loss": 7}


def test_file_keeps_what_is_not_finite_valid_json(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append({"step": 1, "loss": math.nan, "grad_norm": math.inf, "kl": 0.25})
    assert read_metrics(file.path) == [{"step": 1, "loss": None, "grad_norm": None, "kl": 0.25}]


def test_file_leaves_out_a_line_cut_short_and_drops_what_is_past_a_step(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        file.append({"step": step})
    with file.path.open("a") as handle:
        handle.write('{"step": 4, "lo')
    assert [line["step"] for line in read_metrics(file.path)] == [1, 2, 3]
    file.drop_after(2)
    file.append({"step": 3})
    assert [line["step"] for line in read_metrics(file.path)] == [1, 2, 3]


def test_main_reward_is_the_last_one() -> None:
    assert main_reward(LINE) == "reward/r"
    assert main_reward({"loss": 1.0}) is None


def test_figures_of_a_step() -> None:
    assert format_figures(LINE) == (
        "reward 0.412  loss -0.0123  len 6.1  1,234 tok/s  heldout 0.333"
    )
    failed = {"verifier/a/failed": 1.0, "verifier/b/failed": 2.0, "loss": 1.0}
    assert format_figures(failed) == "loss 1.0000  failed 3"


def test_figures_of_several_pools() -> None:
    line = {"loss": 1.0, "lag/mean": 1.26, "lag/max": 2.0, "busy/rollout": 0.954, "queue/y": 1.0}
    assert format_figures(line) == "loss 1.0000  lag 1.3  rollout 95% busy"


def test_figures_of_models_beside_the_policy() -> None:
    critic = {"loss": 1.0, "critic/loss": 0.5, "critic/grad_norm": 2.0, "time/loss": 9.0}
    assert format_figures(critic) == "loss 1.0000  critic/loss 0.5000"
    model = {"rm/loss": 0.69, "rm/margin": 0.1, "rm/accuracy": 0.75}
    assert format_figures(model) == "rm/loss 0.6900  rm/accuracy 0.7500"


@pytest.mark.parametrize(("seconds", "text"), [(44.6, "45s"), (80, "1m20s"), (11100, "3h05m")])
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_plain_lines_hold_the_eta_and_always_the_last_step() -> None:
    out = io.StringIO()
    view = PlainView(Console(file=out, width=40), Plan("sort", 22, done=19))
    for step in (20, 21, 22):
        view.show({"step": step, "seconds": 0.5, "loss": 1.0})
    assert out.getvalue().splitlines() == [
        "training sort from step 20 of 22",
        "step 20/22  loss 1.0000  eta 1s",
        "step 22/22  loss 1.0000  eta 0s",
    ]


def test_live_view_keeps_evaluations_above_the_bar() -> None:
    out = io.StringIO()
    view = LiveView(Console(file=out, force_terminal=True, width=120), Plan("sort", 40))
    view.show(LINE)
    view.close()
    assert "step 20  heldout 0.3333" in out.getvalue()
    assert "20/40" in out.getvalue() and "eta 10s" in out.getvalue()


def test_remaining_time_is_smooth() -> None:
    eta = Eta(Plan("sort", 1000))
    assert eta.after(1, 60.0) == "16h39m"
    told = [eta.after(900, seconds) for seconds in (1.0, 1.0, 1.0, 9.0, 1.0)]
    assert told == ["1m40s", "1m40s", "1m40s", "5m06s", "4m23s"]
    assert [eta.after(900, 1.0) for _ in range(200)][-1] == "1m40s"


def test_remaining_time_is_a_bound_where_a_condition_may_stop_the_run() -> None:
    eta = Eta(Plan("sort", 10, may_stop=True))
    assert [eta.after(9, 2.0), eta.after(10, 2.0)] == ["at most 2s", "0s"]


def test_moving_mean() -> None:
    assert moving_mean([1.0, 3.0, 5.0], width=2) == [1.0, 2.0, 4.0]


def test_plot_of_a_run(tmp_path: Path) -> None:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for step in range(1, 6):
        file.append({**LINE, "step": step})
    assert plot_run(tmp_path, tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ({"reward/fmt": 1.0, "reward/r": 0.4, "loss": 0.1, "critic/loss": 0.5}, ["reward/r"]),
        ({"loss": 2.0, "grad_norm": 1.0, "tokens": 9, "time/loss": 0.1}, ["loss"]),
        ({"loss": 0.7, "dpo/accuracy": 0.5, "dpo/margin": 0.1}, ["loss", "dpo/accuracy"]),
        (
            {"rm/loss": 0.7, "rm/accuracy": 0.5, "rm/margin": 0.1, "eval/rm/loss": 1.0},
            ["rm/loss", "rm/accuracy"],
        ),
    ],
    ids=["policy", "demonstrations or a teacher", "pairs", "reward model"],
)
def test_what_is_drawn_of_a_run(line: dict[str, float], names: list[str], tmp_path: Path) -> None:
    """An actor that waits for its critic has no loss in the first step."""
    lines = [{"step": 1}, {"step": 2, **line, "eval/held": 1.0}]
    assert trained(lines) == names
    assert evaluations(lines)[-1] == "eval/held"
    assert [series(lines, name)[0] for name in names] == [[2.0]] * len(names)
    file = MetricsFile(tmp_path / "metrics.jsonl")
    for each in lines:
        file.append(each)
    assert plot_run(tmp_path, tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_a_run_with_nothing_to_draw(tmp_path: Path) -> None:
    MetricsFile(tmp_path / "metrics.jsonl").append(
        {"step": 1, "seconds": 0.5, "loss": float("nan")}
    )
    with pytest.raises(RunFolderFailure, match="no reward, loss or evaluation"):
        plot_run(tmp_path, tmp_path / "run.png")


def test_plot_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(RunFolderFailure, match="holds no metrics"):
        plot_run(tmp_path, tmp_path / "run.png")


@pytest.mark.parametrize("damaged", [b'{"step": 2, "lo', b'{"step": "\xff"}', b"7", b"\0\0"])
def test_a_damaged_line_is_named(tmp_path: Path, damaged: bytes) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + damaged + b'\n{"step": 3}\n{"st')
    with pytest.raises(RuntimeFailure, match=r"metrics\.jsonl:2 cannot be read .*delete this line"):
        read_metrics(path)
