"""Sequences (L2) of steps that have mistakes of their own."""

from __future__ import annotations

import pytest

from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module

TEXT = """rpeg.pipeline @p {
  rpeg.model @actor policy("models/tiny-qwen2")
  rpeg.data @train prompts("train.jsonl")
  rpeg.ranks @all 0 to 1
  rpeg.step i < 9 (%train: !rpeg.cursor<@train, prompts>, %was: !rpeg.weights<@actor, policy>) {
    %q, %train_1 = rpeg.batch %train {size = 8} attributes {task = "q"}
    %old = "rpeg.stale"(%was) <{low = 0 : i64}> : (!rpeg.weights<@actor, policy>) ->
        !rpeg.weights<@actor, policy>
    %y, %lp = rpeg.generate %old, %q {max_tokens = 64}
        attributes {stage = "y", task = "y", pool = "all"}
    %now = rpeg.publish %was attributes {pool = "all", task = "publish"}
    rpeg.yield %train_1, %now
  }
  rsched.sequence @all {
    rsched.task "q" AHEAD
    rsched.task "y" AHEAD
    rsched.task "publish"
    rsched.edge "q" to "q" distance 1
  }
}
"""


@pytest.mark.parametrize("ahead", ["", "ahead 1"])
def test_a_window_without_an_end_is_told_of_once(ahead: str) -> None:
    module, sources, problems = parse_module(TEXT.replace("AHEAD", ahead), "p.mlir")
    assert module is not None, problems
    found = diagnose(module, sources)
    assert [d.rule for d in found if d.rule == "missing-setting"] == ["missing-setting"]


@pytest.mark.parametrize(
    "inner", ["rpeg.step j < 1 () {\n rpeg.yield\n }", "rpeg.ranks @b 1 to 2", "builtin.module {}"]
)
def test_what_is_no_instruction_stands_outside_of_steps(inner: str) -> None:
    text = TEXT.replace("%q, %train_1", f"{inner}\n    %q, %train_1", 1).replace("AHEAD", "")
    module, sources, problems = parse_module(text, "p.mlir")
    assert module is not None, problems
    found = [str(d.at) for d in diagnose(module, sources) if d.rule == "misplaced-operation"]
    assert found == ["6:5"]


def test_a_label_names_one_task() -> None:
    text = TEXT.replace('attributes {task = "q"}', 'attributes {task = "publish"}', 1)
    module, sources, _ = parse_module(text.replace("AHEAD", ""), "p.mlir")
    assert module is not None
    found = [d.message for d in diagnose(module, sources) if d.rule == "repeated-task"]
    assert found == ["`publish` names 2 tasks of the step: give each its own label"]
