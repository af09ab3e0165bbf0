"""Buffers: each version is taken once, and the last one is yielded."""

from __future__ import annotations

import pytest

from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module

STEP = """
rpeg.pipeline @p {{
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%train : !rpeg.cursor<@train, prompts>, %queue : !rpeg.buffer<@queue,
      capacity = 8, age = 2, fifo, [!rpeg.traj<@actor, 1, n = 2>]>) {{
    %actor = rpeg.get @actor : !rpeg.weights<@actor, policy>
    %q, %train_1 = rpeg.batch %train {{size = 4}}
    %y, %lp = rpeg.generate %actor, %q {{n = 2, max_tokens = 8}}
    {lines}
  }}
}}
"""
PUSH = "%queue_1 = rpeg.push %queue, %y"
POP = "%y2, %queue_2 = rpeg.pop %queue_1 {groups = 2}"
SELDOM = """%queue_3 = rpeg.every %queue {steps = 2 : i64} {
      %queue_4 = rpeg.push %queue, %y
      rpeg.yield %queue_4
    }"""


def broken(*lines: str) -> set[str]:
    text = STEP.format(lines="\n    ".join(lines))
    module, sources, problems = parse_module(text, "example.mlir")
    assert module is not None and not problems, problems
    return {d.rule for d in diagnose(module, sources) if d.severity == "error"}


@pytest.mark.parametrize(
    "lines",
    [
        ["rpeg.yield %train_1, %queue"],
        [PUSH, "rpeg.yield %train_1, %queue_1"],
        [PUSH, POP, "rpeg.yield %train_1, %queue_2"],
        [SELDOM, "rpeg.yield %train_1, %queue_3"],
    ],
)
def test_one_chain(lines: list[str]) -> None:
    assert not broken(*lines)


@pytest.mark.parametrize(
    "lines",
    [
        [PUSH, POP, "rpeg.yield %train_1, %queue_1"],
        [PUSH, POP, "rpeg.yield %train_1, %queue"],
        [PUSH, POP.replace("%queue_1", "%queue"), "rpeg.yield %train_1, %queue_2"],
        [PUSH, "rpeg.yield %train_1, %queue"],
        [SELDOM, "rpeg.yield %train_1, %queue"],
    ],
)
def test_a_version_that_is_lost(lines: list[str]) -> None:
    assert broken(*lines) == {"lost-version"}
