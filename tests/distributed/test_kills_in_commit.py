"""A process of several pools is killed inside the commit of a checkpoint, between its phases.

The home pool begins a checkpoint, every other pool writes the models that it trains and says so,
the home renames the whole. Whoever dies where: the checkpoint is whole or not there, and the same
command goes on to the bit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rpeg.runtime.state.checkpoint import saved_steps, verified
from rpeg.runtime.state.ledger import committed, expand
from tests.distributed.test_kills import history

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
STEPS = 5
SMALL = {
    "run:warmup/actor": "models/tiny-qwen3-digits",
    '"data/': f'"{ROOT}/examples/data/',
    "size=32": "size=4",
    "n=8": "n=2",
    "every(steps=25)": "every(steps=2)",
    "heldout.jsonl)": "heldout.jsonl, limit=4)",
}
"""What makes the example small: it saves after steps 2, 4 and 5."""
PLANTED = """
import os
import signal
from pathlib import Path

from rpeg.runtime.state import checkpoint


def die():
    Path(os.environ["FELL"]).touch()
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(owner, name, *, after, when):
    kept = getattr(owner, name)

    def call(*given, **named):
        fatal = when(*given) and not Path(os.environ["FELL"]).exists()
        if fatal and not after:
            die()
        result = kept(*given, **named)
        if fatal:
            die()
        return result

    setattr(owner, name, call)


def in_step(folder, step, *rest):
    return step == 4


def of_step(temporary, *rest):
    return "000004" in str(temporary)


POINTS = {
    "critics have written and not said so": (checkpoint, "save_models", True, in_step),
    "home knows all, and has not renamed": (checkpoint, "_commit", False, of_step),
    "home has renamed, and told nobody": (checkpoint, "_commit", True, of_step),
}
if "POINT" in os.environ:
    owner, name, after, when = POINTS[os.environ["POINT"]]
    deadly(owner, name, after=after, when=when)
"""
RESUMES = {
    "home has renamed, and told nobody": 4,
    "home knows all, and has not renamed": 2,
    "critics have written and not said so": 2,
}
"""By where a process dies: the step that the next launch goes on after."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the example's program for three pools, which dies where POINT says, once."""
    made = tmp_path_factory.mktemp("commit")
    text = (ROOT / "examples" / "sort_digits_ppo.rpeg").read_text()
    for old, new in SMALL.items():
        if old in text:
            text = text.replace(old, new)
    (made / "p.rpeg").write_text(text)
    done = rpeg(made, "compile", "p.rpeg:ppo", "--plan", "apart", "--set", f"steps={STEPS}")
    assert done.returncode == 0, done.stderr
    (made / "out" / "planted.py").write_text(PLANTED)
    entry = made / "out" / "program.py"
    entry.write_text(entry.read_text().replace("import os\n", "import os\n\nimport planted\n", 1))
    return made


def rpeg(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    out = ("-o", "out") if words[0] == "compile" else ()
    return subprocess.run(
        [sys.executable, "-m", "rpeg.tools.rpeg", *words, *out],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=400,
    )


def launch(folder: Path, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    fell = {"FELL": str(folder / f"{name}.fell")}
    return rpeg(folder, "launch", "out", "--run-dir", name, **fell, **environment)


@pytest.fixture(scope="module")
def whole(folder: Path) -> Path:
    """The folder of a run that nothing disturbs."""
    done = launch(folder, "whole")
    assert done.returncode == 0, done.stderr
    assert saved_steps(folder / "whole" / "checkpoints") == [2, 4, 5]
    return folder / "whole"


@pytest.mark.parametrize("point", RESUMES)
def test_a_kill_between_the_phases(folder: Path, whole: Path, point: str) -> None:
    name = point.replace(" ", "-").replace(",", "")
    died = launch(folder, name, POINT=point)
    assert died.returncode != 0
    assert (folder / f"{name}.fell").exists()
    assert "Traceback" not in died.stderr
    run = folder / name
    for step in saved_steps(run / "checkpoints"):
        assert verified(run / "checkpoints" / f"step-{step:06d}") == []
    again = launch(folder, name, POINT=point)
    assert again.returncode == 0, again.stderr
    assert f"resuming ppo after step {RESUMES[point]}\n" in again.stdout
    check(run, whole)


def check(run: Path, whole: Path) -> None:
    """It is the run that nothing disturbed: its steps, models, samples, and no sample twice."""
    steps = history(run)
    assert steps == history(whole)
    assert [line["lag/max"] for line in steps] == [0] * STEPS
    assert saved_steps(run / "checkpoints") == [2, 4, 5]
    assert not list((run / "checkpoints").glob(".step-*"))
    ours, theirs = (
        [{**line, "attempt": 1} for line in committed(folder / "ledger.jsonl")]
        for folder in (run, whole)
    )
    assert ours == theirs
    uses = Counter((line["model"], i) for line in ours for i in expand(line["ids"]))
    assert set(uses.values()) == {1}
    assert len(uses) == 2 * STEPS * 4 * 2  # two models, four prompts, two samples of each
    assert json.loads((run / "run.json").read_text())["attempt"] == 2
