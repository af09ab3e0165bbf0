"""What the demo and its benchmark say of runs, without training."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from rpeg.rundir.folder import RunFolder, RunRecord
from rpeg.tools.rpeg import main as rpeg

ROOT = Path(__file__).parents[3]


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo = script("examples/demo.py")
benchmark = script("benchmarks/demo_seeds.py")


def write_run(folder: Path, accuracies: list[float | None]) -> Path:
    """A run of 60 s per step; None: a step without an evaluation."""
    folder.mkdir(parents=True)
    lines = [
        {"step": step, "seconds": 60.0} | ({} if a is None else {"eval/heldout_acc": a})
        for step, a in enumerate(accuracies, start=1)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    return folder


def test_summary_tells_the_last_evaluations(tmp_path: Path) -> None:
    before = write_run(tmp_path / "warmup", [0.1, None, 0.412])
    after = write_run(tmp_path / "grpo", [0.5, 0.875, None])
    text = demo.summary(before, after)
    assert "0.412 before" in text
    assert "0.875 after" in text
    assert "6.0 minutes" in text


@pytest.mark.parametrize(("finished", "commands"), [(90, 0), (None, 1)])
def test_finished_runs_are_not_run_again(
    finished: int | None, commands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RunRecord("warmup", "0", 0, 1500, 2, finished_step=finished, stopped=True)
    (tmp_path / "warmup").mkdir()
    RunFolder(tmp_path / "warmup").write(record)
    ran: list[list[str]] = []
    monkeypatch.setattr(demo, "RUNS", tmp_path)
    monkeypatch.setattr(demo, "rpeg", lambda arguments: ran.append(arguments) or 0)
    assert demo.train("warmup") == 0
    assert len(ran) == commands


def test_measure_reads_both_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "warmup", [0.1, 0.4])
    write_run(tmp_path / "control", [0.3, 0.38])
    result = benchmark.measure("control", tmp_path, "control")
    assert (result.before, result.after, result.seconds) == (0.4, 0.38, 240.0)
    assert result.gain == pytest.approx(-0.02)


@pytest.mark.parametrize(
    ("afters", "control", "code"),
    [
        ((0.8, 0.82, 0.9), 0.43, 0),
        ((0.8, 0.81, 0.9), 0.43, 1),
        ((0.69, 0.9, 0.9), 0.43, 1),
        ((0.9, 0.9, 0.9), 0.44, 1),
    ],
)
def test_judge(afters: tuple[float, ...], control: float, code: int) -> None:
    results = [benchmark.Result("seed", 0.4, after, 1.0) for after in afters]
    assert benchmark.judge(results, benchmark.Result("control", 0.4, control, 1.0)) == code


def test_control_is_one_line_in_the_generated_program(tmp_path: Path) -> None:
    pipeline = f"{ROOT / 'examples' / 'sort_digits.rpeg'}:grpo"
    assert rpeg(["compile", pipeline, "-o", str(tmp_path / "package")]) == 0
    (file,) = (tmp_path / "package").glob("program_*.py")
    program = file.read_text(encoding="utf-8")
    shuffled = benchmark.shuffle_rewards(program)
    added = [line.strip() for line in shuffled.splitlines() if line not in program.splitlines()]
    assert added == ["import torch", "r = r[torch.randperm(len(r))]"]
    compile(shuffled, file.name, "exec")


def test_control_needs_a_score_to_shuffle() -> None:
    with pytest.raises(ValueError, match="does not score"):
        benchmark.shuffle_rewards("run.finish()\n")
