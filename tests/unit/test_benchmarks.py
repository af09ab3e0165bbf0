"""The speed benchmarks run; what they measure is nobody's promise here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pytest import MonkeyPatch

from rpeg.tools.calibrating.measured import Exchange, Measured, Timed

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_one_tiny_round_of_one_side() -> None:
    sizes = ["--prompts", "2", "--completions", "2", "--tokens", "4"]
    command = [
        sys.executable,
        str(BENCHMARKS / "step.py"),
        "--only",
        "rpeg",
        "--rounds",
        "1",
        "--dtypes",
        "fp32",
    ]
    result = subprocess.run(
        [*command, *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    header, line = result.stdout.splitlines()[-2:]
    stages = dict(zip(header.split(), map(float, line.split()[2:]), strict=True))
    assert line.startswith("rpeg  fp32")
    assert stages["total"] > 0
    assert stages["decode"] > 0 and stages["backward"] > 0


def test_both_opt_tools_print_the_same() -> None:
    command = [sys.executable, str(BENCHMARKS / "opt.py"), "--operations", "15", "--rounds", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    sides = [line.split()[0] for line in result.stdout.splitlines()]
    assert sides == ["rpeg-opt", "xdsl-opt", "ratio"] * 2


def test_what_the_model_predicts_of_the_demo(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """On a machine twice as fast, layouts take half as long, but for the verifier."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import model

    shutil.copytree(BENCHMARKS.parent / "examples", tmp_path / "examples")
    shape = BENCHMARKS.parent / "models" / "tiny-qwen3-digits"
    text = (tmp_path / "examples" / "sort_digits.rpeg").read_text().replace("run:warmup/actor", "m")
    (tmp_path / "examples" / "sort_digits.rpeg").write_text(text)
    shutil.copytree(shape, tmp_path / "examples" / "m")
    pipeline = model.with_lengths(tmp_path / "examples" / "sort_digits.rpeg", tmp_path / "examples")
    for layout in ("dp1", "pp2"):
        slow, fast = (
            model.predict(pipeline, layout, model.write_cluster(tmp_path, core(factor)))[0]
            for factor in (1.0, 0.5)
        )
        assert slow.notes == ()
        seconds = {stage.stage: stage.seconds for stage in slow.stages}
        assert set(seconds) == {"q", "y", "r", "actor", "publish_actor"}
        assert fast.period_s < 0.7 * slow.period_s
        assert slow.period_s == pytest.approx(sum(seconds.values()), rel=1e-6)


def test_the_table_of_predicted_and_measured(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from model import Layout, report

    alone = Layout([3.0, 3.6], [4.0, 5.0], {"generate": [(1.0, 2.0), (1.0, 3.0)]})
    two = Layout([2.0], [2.5])
    _, head, *lines = report({"dp1": alone, "dp2": two}).splitlines()
    assert head.split() == ["layout", "predicted", "measured", "error", "spread"]
    assert lines[0].split()[-4:] == ["-26.7%", "22.2%", "repeats", "vary"]
    assert lines[1].split() == ["dp2", "2.000", "s", "2.500", "s", "-20.0%", "0.0%"]
    assert lines[2] == "median error 23.3%, largest 26.7%: 0 of 2 layouts within 15%"
    assert lines[5].split() == ["generate", "1.000", "s", "2.500", "s", "-60.0%"]


def test_a_step_lasts_until_the_next_one_begins(monkeypatch: MonkeyPatch) -> None:
    """Whatever lies between its stages, and of whichever process its first one is."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from model import step_seconds

    begins = {1: (5e6, 4e6, 6e6), 2: (9e6, 8e6), 3: (8.5e6,)}
    events = [{"ts": ts, "args": {"step": step}} for step, all in begins.items() for ts in all]
    assert step_seconds(events) == [4.0, 0.5]


def test_groups_whose_rewards_differ(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import model

    rewards = {0: (0.0, 1.0), 1: (1.0, 1.0), 2: (0.0, 0.0), 3: (1.0, 0.0), 4: (1.0, 0.5)}

    def run(*arguments: str) -> None:
        folder = Path(arguments[arguments.index("--run-dir") + 1]) / "rollouts"
        folder.mkdir()
        for ordinal, group in rewards.items():
            rows = [{"ordinal": ordinal, "rewards": {"r": r}} for r in group]
            text = "".join(f"{json.dumps(row)}\n" for row in rows)
            (folder / f"step-{ordinal}.jsonl").write_text(text)

    monkeypatch.setattr(model, "rpeg", run)
    pipeline = tmp_path / "p.rpeg"
    pipeline.write_text("pipeline grpo {\n}\n")
    assert model.told_apart(pipeline, 3) == 0.6
    assert "  expect adv = ratio(mean=0.600)\n}" in model.with_share(pipeline, 0.6).read_text()


def test_a_layout_whose_run_fails_leaves_the_others(
    tmp_path: Path, monkeypatch: MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first round ends at the second layout; what was measured is told."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import model

    def one_round(layout: model.Layout, *told: object) -> None:
        if told[1] == "tp2":
            raise subprocess.CalledProcessError(1, ["rpeg", "run"])
        layout.predicted.append(1.0)
        layout.measured.append(1.1)

    monkeypatch.setattr(sys, "argv", ["model.py", str(tmp_path), "--rounds", "2", "--busy"])
    monkeypatch.setattr(model, "others_share", lambda: 0.02)
    monkeypatch.setattr(model, "write_pipeline", lambda folder: folder / "p.rpeg")
    monkeypatch.setattr(model, "with_lengths", lambda pipeline, folder: pipeline)
    monkeypatch.setattr(model, "told_apart", lambda pipeline, steps: 0.7)
    monkeypatch.setattr(model, "with_share", lambda pipeline, share: pipeline)
    monkeypatch.setattr(model, "measure", lambda processes, calibrations: core(1.0))
    monkeypatch.setattr(model, "write_cluster", lambda folder, found: tmp_path / "c.toml")
    monkeypatch.setattr(model, "one_round", one_round)
    with pytest.raises(SystemExit, match="some layouts were never measured"):
        model.main()
    told = capsys.readouterr().out
    assert told.count("ended: Command '['rpeg', 'run']' returned non-zero") == 2
    assert "median error 9.1%, largest 9.1%: 3 of 3 layouts within 15%" in told


@pytest.mark.parametrize(
    ("share", "told"),
    [(None, "nothing here tells"), (0.03, "others use 3 % of the cores"), (0.4, "no measurement")],
)
def test_how_idle_the_machine_is(share: float | None, told: str, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import model

    monkeypatch.setattr(model, "others_share", lambda: share)
    assert told in model.idleness(anyway=True)
    if share == 0.4:
        with pytest.raises(SystemExit, match="others use 40 % of the cores: wait"):
            model.idleness(anyway=False)


def core(factor: float) -> Measured:
    """A core of 60 GFLOP/s, all of its times multiplied."""
    collectives = [Exchange("all_reduce", 4.0 * 8**n, factor * 1e-4 * 2**n) for n in range(5, 9)]
    return Measured(
        device="a core",
        backend="gloo",
        processes=2,
        gpus=0,
        cores=2,
        memory_bytes=8e9,
        reserved_bytes=0.2e9,
        host_bytes=16e9,
        matmuls=tuple(
            Timed(2.0 * side**3, factor * (2.0 * side**3 / 60e9 + 8e-6)) for side in (64, 128, 512)
        ),
        attention=(Timed(1e9, factor / 40),),
        heads=(Timed(512.0, factor * 1e-3),),
        streams=(Timed(1e9, factor / 10),),
        host_copies=(Timed(1e9, factor / 5),),
        forwards=(Timed(1.0, factor * 2e-3), Timed(128.0, factor * 8e-3)),
        collectives=tuple(collectives),
    )


@pytest.mark.slow
def test_a_publish_and_a_broadcast() -> None:
    sizes = ["--layers", "1", "--hidden", "64", "--rounds", "2", "--dtype", "bf16"]
    result = subprocess.run(
        [sys.executable, str(BENCHMARKS / "publish.py"), *sizes],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [
        "publish",
        "broadcast",
        "ratio",
    ]


def test_what_the_language_refuses_is_learnt_from_by_the_benchmark_alone(
    tmp_path: Path, monkeypatch: MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import learning

    shutil.copytree(BENCHMARKS.parent / "models" / "tiny-qwen3-digits", tmp_path / "m")
    monkeypatch.setattr(learning, "WARM", "m")
    for variant in learning.variants():
        (tmp_path / f"{variant.name}.rpeg").write_text(variant.text(8))
    for script, names in [
        ([str(learning.UNCOVERED)], ["async2_behaviour", "async4_none"]),
        (["-m", "rpeg.tools.rpeg"], ["ppo", "async4_decoupled"]),
    ]:
        for name in names:
            done = compiled(script, tmp_path / f"{name}.rpeg")
            assert done.returncode == 0, done.stderr
    refused = compiled(["-m", "rpeg.tools.rpeg"], tmp_path / "async4_none.rpeg")
    assert refused.returncode == 1 and "4 versions old" in refused.stderr


def compiled(script: list[str], file: Path) -> subprocess.CompletedProcess[str]:
    out = ["-o", str(file.with_suffix(""))]
    command = [sys.executable, *script, "compile", str(file), "--processes", "1", *out]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_a_wider_model_says_the_same(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS / "sides"))
    import torch
    from safetensors.torch import save_file
    from wide import widen

    from rpeg.runtime.engine.decoder import Decoder
    from rpeg.runtime.models.model_source import ModelSource

    narrow, wide = tmp_path / "narrow", tmp_path / "wide"
    shutil.copytree(BENCHMARKS.parent / "models" / "tiny-qwen3-digits", narrow)
    drawn = ModelSource(narrow, seed=0)
    weights = {name: drawn.read(name) for name, _ in drawn.shape.tensors()}
    save_file(weights, narrow / "model.safetensors")
    widen(narrow, wide, times=3)
    ids = torch.tensor([[5, 9, 2, 7, 3]])

    def said(folder: Path) -> torch.Tensor:
        source = ModelSource(folder, seed=0)
        tensors = {name: source.stored(name) for name, _ in source.shape.tensors()}
        decoder = Decoder(source.shape, tensors, torch.float32)
        return decoder.logits(decoder.prefill(ids, decoder.cache(*ids.shape)))

    assert ModelSource(wide, seed=0).shape.hidden == 3 * drawn.shape.hidden
    torch.testing.assert_close(said(wide), said(narrow), rtol=1e-3, atol=1e-4)
