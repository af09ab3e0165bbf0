"""The wheel serves people without a checkout: the compiler alone, no torch, from any folder."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "grpo_countdown.rpeg"

pytestmark = pytest.mark.slow


def output(*command: str | Path, cwd: Path) -> str:
    run = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"
    return run.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment that holds the wheel and its dependencies."""
    folder = tmp_path_factory.mktemp("wheel")
    output(
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        ROOT,
        cwd=folder,
    )
    (wheel,) = folder.glob("rpeg-*.whl")
    venv.create(folder / "env", with_pip=False)
    commands = folder / "env" / "bin"
    pip = (sys.executable, "-m", "pip", "--python", commands / "python")
    output(*pip, "install", "-qq", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return commands


def test_without_torch(installed: Path, tmp_path: Path) -> None:
    present = "import importlib.util as u; print(u.find_spec('torch'))"
    assert output(installed / "python", "-c", present, cwd=tmp_path) == "None\n"


def test_help(installed: Path, tmp_path: Path) -> None:
    assert "usage: rpeg-opt" in output(installed / "rpeg-opt", "--help", cwd=tmp_path)
    assert "usage: rpeg " in output(installed / "rpeg", "--help", cwd=tmp_path)


def test_reads_a_pipeline(installed: Path, tmp_path: Path) -> None:
    assert "rpeg.pipeline" in output(installed / "rpeg-opt", EXAMPLE, cwd=tmp_path)


@pytest.mark.parametrize("command", ["check", "explain", "simulate"])
def test_predicts(command: str, installed: Path, tmp_path: Path) -> None:
    pipeline = ROOT / "examples" / "ppo_7b_gh200.rpeg"
    assert output(installed / "rpeg", command, pipeline, "--cluster", "alps-16", cwd=tmp_path)


def test_compiles(installed: Path, tmp_path: Path) -> None:
    output(installed / "rpeg", "compile", EXAMPLE, "-o", "out", cwd=tmp_path)
    assert (tmp_path / "out" / "launch.sh").is_file()


def test_xdsl_finds_the_dialect(installed: Path, tmp_path: Path) -> None:
    assert "rpeg.pipeline" in output(installed / "xdsl-opt", EXAMPLE, cwd=tmp_path)


def test_brings_its_data(installed: Path, tmp_path: Path) -> None:
    clusters = "from rpeg.ir.clusters import load_cluster; print(load_cluster('alps-64').gpus)"
    assert output(installed / "python", "-c", clusters, cwd=tmp_path) == "256\n"
