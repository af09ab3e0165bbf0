"""A generated program is its user's: edited text trains as edited, and nothing else is read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rpeg.tools.rpeg import main
from tests.unit.interp.pipelines import write_model, write_rows

ROOT = Path(__file__).parents[2]
COMPILER = (
    "cost",
    "frontend",
    "interp",
    "ir",
    "lowering",
    "passes",
    "planner",
    "tools",
    "universe",
)
PIPELINE = """rpeg 0.1
pipeline digits {
  model actor = policy("actor", optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy("ref", dtype=fp32)
  data train = prompts("rows.jsonl")
  verifier correct = outcome("rule:exact_match")
  step i < 3 {
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=5, dtype=fp32)
    r = score(correct, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
  }
}
"""


def without_reference(text: str) -> str:
    """The program without its reference model and all uses of it."""
    for pattern in (
        r"    ref = rt\.FrozenModel\((?s:.*?)\)\n",
        r"    rt\.share_tokenizer\(actor, ref\)\n",
        r"        lp_ref = .*\n",
        r"        kl = .*\n",
        r"(?<=pg), kl(?=,)",
    ):
        text, count = re.subn(pattern, "", text)
        assert count == 1, pattern
    assert not re.search(r"\b(lp_)?ref\b", text)
    return text


EDITS = {
    "as it is": lambda text: text,
    "coefficient": lambda text: text.replace("coef=0.1", "coef=0.4"),
    "no reference": without_reference,
}


def launch(package: Path, run_dir: Path, site: Path) -> list[dict[str, float]]:
    """The metrics of a run that is started from a folder of its own, without the compiler."""
    environment = os.environ | {
        "RPEG_RUN_DIR": str(run_dir),
        "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
        "PYTHON": sys.executable,
    }
    elsewhere = run_dir.parent / "elsewhere"
    elsewhere.mkdir(exist_ok=True)
    call = ["bash", str(package / "launch.sh")]
    run = subprocess.run(
        call, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, float]]]:
    """What the program logs as it is and after each edit; with spaces in all paths."""
    folder = tmp_path_factory.mktemp("my runs")
    write_model(folder / "actor")
    write_model(folder / "ref", initializer_range=0.1)
    write_rows(folder / "rows.jsonl")
    (folder / "site").mkdir()
    blocked = ["xdsl", "lark", *(f"rpeg.{part}" for part in COMPILER)]
    code = f"import sys\nsys.modules.update(dict.fromkeys({blocked!r}))\n"
    (folder / "site" / "sitecustomize.py").write_text(code)
    (folder / "digits.rpeg").write_text(PIPELINE)
    found = {}
    for name, edit in EDITS.items():
        package = folder / f"package, {name}"
        assert (
            main(["compile", str(folder / "digits.rpeg"), "-o", str(package), "--processes=1"]) == 0
        )
        program = package / "program_all.py"
        program.write_text(edit(program.read_text()))
        for other in ("plan.json", "program.mlir", "README.md", ".rpeg.json"):
            (package / other).unlink()
        found[name] = launch(package, folder / f"run, {name}", folder / "site")
    return found


def test_all_ran(metrics: dict[str, list[dict[str, float]]]) -> None:
    assert {name: [line["step"] for line in lines] for name, lines in metrics.items()} == {
        name: [1, 2, 3] for name in EDITS
    }


def test_a_coefficient(metrics: dict[str, list[dict[str, float]]]) -> None:
    """The first step trains on the same completions: the loss grows by what the KL term weighs."""
    before, after = metrics["as it is"], metrics["coefficient"]
    assert before[0]["kl"] > 1e-3
    assert after[0]["kl"] == pytest.approx(before[0]["kl"], rel=1e-6)
    grown = after[0]["loss"] - before[0]["loss"]
    assert grown == pytest.approx(0.3 * before[0]["kl"], rel=1e-4)
    assert after[0]["grad_norm"] == pytest.approx(4 * before[0]["grad_norm"], rel=1e-4)


def test_no_reference(metrics: dict[str, list[dict[str, float]]]) -> None:
    before, after = metrics["as it is"], metrics["no reference"]
    assert all("kl" not in line for line in after)
    assert before[0]["loss"] - after[0]["loss"] == pytest.approx(0.1 * before[0]["kl"], rel=1e-4)
