"""Packages of several pools: a program each, and what starts the right one in every process."""

from __future__ import annotations

import json
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.lowering.package import package, programs
from rpeg.lowering.python import Origin, source_hash
from rpeg.tools.compiling import Choice, compile_text
from rpeg.tools.console import Reported, read
from tests.unit.lowering.compiled import ROOT

EXAMPLE = "async_two_pools.rpeg"
RESUME = "overflow=resume, old_spans=mask"
GOLDEN = ("program.py", "program_rollout.py", "program_trainer.py")


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    module = compile_text(read(str(ROOT / "examples" / EXAMPLE)), Choice(plan="two"))
    return dict(package(module, Origin(EXAMPLE, source_hash(programs(module)[0])), "..").files)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, files: dict[str, str], update_golden: bool) -> None:
    path = ROOT / "tests" / "golden" / name.replace("program", "program_async_two_pools")
    if update_golden:
        path.write_text(files[name])
    assert files[name] == path.read_text()


def test_what_is_in_it(files: dict[str, str]) -> None:
    assert list(files) == [*GOLDEN, "plan.json", "program.mlir", "launch.sh", "README.md"]
    assert json.loads(files["plan.json"])["programs"] == [
        {"pool": "rollout", "file": "program_rollout.py", "processes": 1, "ranks": [0, 0]},
        {"pool": "trainer", "file": "program_trainer.py", "processes": 1, "ranks": [1, 1]},
    ]
    assert '--nproc-per-node 2 \\\n  "$here/program.py"' in files["launch.sh"]
    for name in files:
        assert f"`{name}`" in files["README.md"] or name == "README.md"


def test_the_same_from_its_ir(files: dict[str, str]) -> None:
    module, _, problems = parse_module(files["program.mlir"], "program.mlir")
    assert module is not None, problems
    origin = Origin(EXAMPLE, source_hash(programs(module)[0]))
    assert package(module, origin, "..").files == files


def test_samples_in_flight_go_on_with_new_weights(capsys: pytest.CaptureFixture[str]) -> None:
    source = read(str(ROOT / "examples" / EXAMPLE))
    text = source.text.replace("async(staleness=4)", f"async(staleness=4, {RESUME})")
    text = text.replace("max_tokens=9, dtype", f"max_tokens=9, {RESUME}, dtype")
    module = compile_text(replace(source, text=text), Choice(plan="two"))
    made = package(module, Origin(EXAMPLE, source_hash(programs(module)[0])), "..").files
    assert "renew=actor_weights" in made["program_rollout.py"]
    assert "renew" not in made["program_trainer.py"]
    wide = text.replace("rollout = cores(0..0, per_node=1)", "rollout = cores(0..0, per_node=2)")
    wide = wide.replace("y on rollout, par(dp=1)", "y on rollout, par(dp=1, tp=2)")
    with pytest.raises(Reported):
        compile_text(replace(source, text=wide), Choice(plan="two"))
    assert "overflow=resume where several processes sample the same" in capsys.readouterr().err


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_runs_its_own(
    rank: int,
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "program.py").write_text(files["program.py"])
    for pool in ("rollout", "trainer"):
        text = f"def main() -> None:\n    print({pool!r})\n"
        (tmp_path / f"program_{pool}.py").write_text(text)
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("program_rollout", "program_trainer"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    runpy.run_path(str(tmp_path / "program.py"), run_name="__main__")
    assert capsys.readouterr().out == ("rollout\n", "trainer\n")[rank]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'home = "trainer"',
            'home = "trainr"',
            "start: home is trainr, which is none of rollout, trainer",
        ),
        (
            "rollout = [0 : i64, 1 : i64]",
            "rollout = [0 : i64, 2 : i64]",
            "the program is for 1 processes of `rollout`, its start has 0 to 1",
        ),
        (
            "processes = 2 : i64",
            "processes = 3 : i64",
            "the pools have other processes than the 3 that start says",
        ),
        (
            "rollout = [0 : i64, 1 : i64]",
            "rollout = [0 : i64]",
            "pools: `rollout` is two numbers, not [0 : i64]",
        ),
        (
            " gives Trajectories, TokenField",
            " gives Trajectories",
            "operation has 1 results, but was given 2 to bind",
        ),
        (
            'rrt.call "put" of %y_channel(%y, %lp)',
            'rrt.call "put" of %y_channel(%y)',
            "channel `y` carries Trajectories, not Trajectories, TokenField",
        ),
        (
            'name = "r", source = "rollout", target = "trainer", capacity = 2',
            'name = "r", source = "rollout", target = "trainer", capacity = 3',
            "channel `r`: capacity is 2 here, and 3 in the program of `rollout`: write the same",
        ),
        (
            '      rrt.call "put" of %r_channel(%r)\n',
            "",
            "channel `r`: each step puts once and takes once; the program of `rollout` puts 0 "
            "times, that of `trainer` takes 1",
        ),
    ],
    ids=["home", "width", "processes", "pair", "gives", "put", "unlike", "one end"],
)
def test_edits_of_its_ir(old: str, new: str, message: str, files: dict[str, str]) -> None:
    text = files["program.mlir"]
    assert old in text
    module, sources, problems = parse_module(text.replace(old, new, 1), "program.mlir")
    found = problems if module is None else diagnose(module, sources)
    assert message in [d.message for d in found], [d.message for d in found]
