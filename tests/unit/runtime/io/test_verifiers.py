"""Rules, reward functions in worker processes, and what happens when those misbehave."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import pytest
import torch

from rpeg.runtime.errors import VerifierFailure
from rpeg.runtime.run import Run
from rpeg.runtime.trajectories import Trajectories
from rpeg.runtime.verifiers import Verifier, worker
from rpeg.runtime.verifiers.pool import Failed, WorkerPool
from rpeg.runtime.verifiers.rules import Response, find_rule

Completions = Callable[..., Trajectories]


def rule(name: str, completion: str, answer: str | None = None, *, finished: bool = True) -> float:
    return find_rule(name, None, None)(Response("p", completion, answer, finished, 1))


@pytest.mark.parametrize(
    ("completion", "finished", "reward"),
    [("0124", True, 1.0), (" 0124\n", True, 1.0), ("0124", False, 0.0), ("01245", True, 0.0)],
)
def test_exact_match(completion: str, finished: bool, reward: float) -> None:
    assert rule("exact_match", completion, "0124", finished=finished) == reward


@pytest.mark.parametrize(
    ("completion", "reward"),
    [
        ("so <answer>\n4 </answer>", 1.0),
        ("4", 0.0),
        ("<answer> </answer>", 0.0),
        ("<answer>4", 0.0),
        ("<answer>4</answer> or <answer>5</answer>", 0.0),
    ],
)
def test_answer_tag(completion: str, reward: float) -> None:
    assert rule("answer_tag", completion) == reward


@pytest.mark.parametrize(
    ("completion", "answer", "reward"),
    [
        ("so it is \\boxed{42}.", "42", 1.0),
        ("\\boxed{1} no, \\boxed{\\frac{1}{2}}", "0.5", 1.0),
        ("\\boxed{\\dfrac{-3}{4}}", "-0.75", 1.0),
        ("\\boxed{-\\frac{3}{4}}", "\\frac{3}{-4}", 1.0),
        ("\\boxed{x^{2} + 1}", "x^{2}+1", 1.0),
        ("12 of 30, so 18 stay", "18", 1.0),
        ("3 + 4 = 7", "#### 7", 1.0),
        ("steps\n#### 1,000", "1000", 1.0),
        ("the answer is 7.", "7", 1.0),
        ("\\boxed{42", "42", 1.0),
        ("\\boxed{1/0}", "1", 0.0),
        ("\\boxed{\\sqrt{4}}", "2", 0.0),
        ("\\boxed{$5$}", "5.0", 1.0),
        ("no idea", "5", 0.0),
        ("", "5", 0.0),
        ("9" * 100_000, "5", 0.0),
    ],
)
def test_math(completion: str, answer: str, reward: float) -> None:
    assert rule("math", completion, answer) == reward


def test_overlong_falls_linearly_from_soft_to_max() -> None:
    late = find_rule("overlong", soft=10, max_tokens=20)
    rewards = [late(Response("p", "", None, True, tokens)) for tokens in (5, 10, 15, 20, 30)]
    assert rewards == [0.0, 0.0, -0.5, -1.0, -1.0]


def test_rules_that_cannot_be_used() -> None:
    with pytest.raises(VerifierFailure, match="no `rule:exact`; there is `rule:exact_match`"):
        find_rule("exact", None, None)
    with pytest.raises(VerifierFailure, match="0 <= soft < max"):
        find_rule("overlong", soft=20, max_tokens=20)
    with pytest.raises(VerifierFailure, match="no `answer` to compare with"):
        rule("exact_match", "4")


def test_a_rule_scores_every_sample(run: Run, completions: Completions) -> None:
    verifier = Verifier(run, "correct", source="rule:exact_match")
    scores = verifier.score(completions(["1", "2", "3"], ["1", "0", "3"]))
    assert scores.tolist() == [1.0, 0.0, 1.0]
    assert run.metrics.merge()["verifier/correct/failed"] == 0


def test_the_length_of_a_sample_is_what_was_sampled(
    run: Run, trajectories: Callable[[int], Trajectories]
) -> None:
    """Also of tokens that are too old to train: nobody made the answer shorter."""
    y = trajectories(8)
    masked = replace(y, mask=y.mask & (torch.arange(y.mask.shape[1]) > 2))
    assert masked.trained_lengths.sum() < masked.sampled_lengths.sum()
    late = Verifier(run, "late", source="rule:overlong", soft=0, max=6)
    expected = [-length / 6 for length in y.trained_lengths.tolist()]
    assert late.score(masked).tolist() == pytest.approx(expected)


REWARDS = """
import json, os, sys, time
import numpy as np

def reward(prompt, completion, answer, metadata):
    if completion == "raise":
        raise KeyError("gone")
    if completion == "deep":
        return json.loads(completion)
    if completion == "hang":
        time.sleep(60)
    if completion == "die":
        os._exit(3)
    if completion == "eat":
        return len(bytearray(16 << 30))
    if completion == "nan":
        return float("nan")
    if completion == "text":
        return "1.0"
    if completion == "none":
        return None
    if completion == "list":
        return [1.0]
    if completion == "numpy":
        return np.float32(0.5)
    if completion == "numpy bool":
        return np.bool_(True)
    if completion == "torch":
        return float("torch" in sys.modules)
    print("noise on standard output")
    return len(completion) + (answer == "yes") * 0.5
"""


@pytest.fixture
def python_rewards(run: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    (run.root / "my_rewards.py").write_text(REWARDS)
    monkeypatch.setenv("RPEG_ALLOW_PYTHON", "1")
    return run


SOURCE = "python:my_rewards:reward"


def test_reward_function_and_its_failures(python_rewards: Run, completions: Completions) -> None:
    verifier = Verifier(python_rewards, "mine", source=SOURCE, timeout=0.5)
    texts = ["abc", "raise", "hang", "die", "eat", "nan", "torch", "ab"]
    scores = verifier.score(completions(texts, ["yes"] + ["no"] * 7))
    assert scores.tolist() == [3.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0]
    assert python_rewards.metrics.merge()["verifier/mine/failed"] == 5
    assert verifier.score(completions(["abcd"])).tolist() == [4.0]


def test_a_reward_is_a_number(python_rewards: Run, completions: Completions) -> None:
    verifier = Verifier(python_rewards, "mine", source=SOURCE)
    texts = ["text", "none", "list", "numpy", "numpy bool"]
    assert verifier.score(completions(texts)).tolist() == [0.0, 0.0, 0.0, 0.5, 1.0]
    assert python_rewards.metrics.merge()["verifier/mine/failed"] == 3


def test_modules_beside_the_pipeline_come_first(
    python_rewards: Run, completions: Completions
) -> None:
    (python_rewards.root / "colorsys.py").write_text("def reward(*_): return 7\n")
    verifier = Verifier(python_rewards, "mine", source="python:colorsys:reward")
    assert verifier.score(completions(["a"])).tolist() == [7.0]


CALLS = ("raise", "hang", "die", "eat", "nan", "ok", "deep")


def test_reasons_of_failures(python_rewards: Run) -> None:
    pool = WorkerPool(SOURCE, root=python_rewards.root, size=2, seconds=0.5)
    calls = [("p", text, None, {}) for text in CALLS]
    outcomes = pool.run(calls)
    pool.close()
    reasons = [o.reason if isinstance(o, Failed) else o for o in outcomes]
    file = python_rewards.root / "my_rewards.py"
    assert reasons[0] == f"{file}:7: KeyError: 'gone'"
    assert reasons[1] == "took longer than 0.5 s"
    assert reasons[2] == "the worker process died"
    assert str(reasons[3]).startswith(f"{file}:15: MemoryError")
    assert reasons[4] == f"{file}:5: the reward must be a finite number, not nan"
    assert reasons[5] == 2.0
    expected = f"{file}:9: JSONDecodeError: Expecting value: line 1 column 1 (char 0)"
    assert reasons[6] == expected, "the last line of theirs, not of a library"


def test_a_worker_that_dies_between_batches_is_replaced(python_rewards: Run) -> None:
    pool = WorkerPool(SOURCE, root=python_rewards.root, size=1, seconds=5)
    pool.wait_ready()
    os.kill(pool._workers[0]._process.pid, signal.SIGKILL)
    pool._workers[0]._process.wait()
    outcomes = pool.run([("p", "a", None, {}), ("p", "ab", None, {})])
    pool.close()
    assert outcomes == [Failed("the worker process died"), 2.0]


def test_workers_end_with_the_process_that_started_them(python_rewards: Run) -> None:
    root = str(python_rewards.root)
    program = (
        "from pathlib import Path; from rpeg.runtime.verifiers.pool import WorkerPool\n"
        f"pool = WorkerPool({SOURCE!r}, root=Path({root!r}), size=2, seconds=1)\n"
        "print(pool.run([('p', text, None, {}) for text in ('raise', 'hang', 'none')]))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[4])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=50
    )  # returns once nobody holds its output any more, so before a hung call would
    assert done.stdout.count("Failed(") == 3


def test_a_worker_whose_process_is_gone_before_it_is_ready_ends_quietly() -> None:
    ours, theirs = Pipe()
    ours.close()
    command = [sys.executable, "-P", str(Path(worker.__file__)), str(theirs.fileno())]
    done = subprocess.run(
        [*command, "python:math:sqrt", str(2**32)],
        pass_fds=[theirs.fileno()],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_whole_batch_of_failures_stops_the_run(
    python_rewards: Run, completions: Completions
) -> None:
    verifier = Verifier(python_rewards, "mine", source=SOURCE)
    place = re.escape(f"{python_rewards.root}/my_rewards.py:7")
    said = (
        rf"`mine` failed on all 2 .*first: {place}: KeyError: 'gone'; it was given the completion"
    )
    with pytest.raises(VerifierFailure, match=rf"{said} 'raise' to a prompt$"):
        verifier.score(completions(["raise", "raise"]))


def test_the_first_failure_of_a_batch_is_noted(
    python_rewards: Run, completions: Completions
) -> None:
    verifier = Verifier(python_rewards, "mine", source=SOURCE)
    y = completions(["ok", "list", "raise"])
    verifier.score(replace(y, rows=tuple(replace(row, place="rows.jsonl:7") for row in y.rows)))
    assert python_rewards._notes["verifier mine"] == (
        f"{python_rewards.root}/my_rewards.py:5: the reward must be a finite number, not [1.0]; "
        "it was given the completion 'list' to rows.jsonl:7"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_of_the_kind\n", r"broken\.py:1: ModuleNotFoundError: No module named"),
        ("def reward(:\n    pass\n", r"broken\.py:1:12: SyntaxError: invalid syntax"),
        ("\nraise ValueError('my error')\n", r"broken\.py:2: ValueError: my error"),
        ("\nraise MemoryError\n", r"broken\.py:2: MemoryError$"),
    ],
)
def test_a_module_that_cannot_be_imported(python_rewards: Run, text: str, message: str) -> None:
    (python_rewards.root / "broken.py").write_text(text)
    said = rf"cannot load `python:broken:reward`: {re.escape(str(python_rewards.root))}/{message}"
    with pytest.raises(VerifierFailure, match=said):
        Verifier(python_rewards, "mine", source="python:broken:reward")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("python:nowhere:reward", r"cannot load `python:nowhere.*: there is no nowhere\.py in /"),
        ("python:my_rewards:other", r"my_rewards\.py has no function `other`"),
        ("python:my_rewards:os", r"my_rewards\.py has something else than a function as `os`"),
        ("python:my_rewards", "write `python:module:function`"),
        ("python:./my_rewards.py:reward", "write `python:module:function`"),
        ("file.py", "is not a verifier: use"),
    ],
)
def test_sources_that_cannot_be_used(python_rewards: Run, source: str, message: str) -> None:
    with pytest.raises(VerifierFailure, match=message):
        Verifier(python_rewards, "mine", source=source)


def test_python_sources_need_permission(run: Run, tmp_path: Path) -> None:
    with pytest.raises(VerifierFailure, match="--allow-python"):
        Verifier(run, "mine", source=SOURCE)


def test_gym_scores_as_the_gym_does(run: Run, completions: Completions) -> None:
    from rpeg.runtime.data import PromptData

    row = PromptData(run, "train", source="gym:chain_sum", limit=5).batch(size=1).rows[0]
    verifier = Verifier(run, "correct", source="gym:chain_sum")
    texts = [f"{row.answer}", f"I think <answer>{row.answer}</answer>", "<answer>no</answer>"]
    y = completions(texts)
    y = type(y)(**{**vars(y), "rows": (row,) * 3})
    right, tagged, wrong = verifier.score(y).tolist()
    assert right == tagged == 1.0 > wrong


def test_the_documented_reward_function(python_rewards: Run, completions: Completions) -> None:
    page = (Path(__file__).parents[4] / "docs" / "reward-functions.md").read_text(encoding="utf-8")
    code = page.split("```python\n")[1].split("```")[0]
    (python_rewards.root / "documented.py").write_text(code)
    verifier = Verifier(python_rewards, "short", source="python:documented:brevity")
    scores = verifier.score(completions(["it is 4", "5"], ["4", "4"]))
    assert scores.tolist() == pytest.approx([0.97, -0.01])
