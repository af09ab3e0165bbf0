"""Names of stages: written, or of their operation where another tool lost them."""

from __future__ import annotations

from rpeg.ir.stages import stages
from rpeg.ir.text.parse import parse_module
from tests.unit.tools.opt import opt

STEP = """
rpeg.pipeline @p {{
  rpeg.model @actor policy("models/tiny-qwen2")
  rpeg.data @train prompts("train.jsonl")
  rpeg.verifier @good outcome("rule:answer_tag")
  rpeg.step i < 9 (%actor : !rpeg.weights<@actor, policy>, %train: !rpeg.cursor<@train, prompts>) {{
    %good = rpeg.get @good : !rpeg.verifier<@good, outcome>
    %q, %train_1 = rpeg.batch %train {{size = 8}}
    %y, %lp = rpeg.generate %actor, %q {{max_tokens = 8}} attributes {{stage = "{generate}"}}
    %0 = rpeg.score %good, %y
    %1 = rpeg.score %good, %y
    rpeg.yield %actor, %train_1
  }}
}}
"""


def names(generate: str) -> list[str]:
    module, _, problems = parse_module(STEP.format(generate=generate), "f")
    assert module is not None and not problems, problems
    step = next(op for op in module.walk() if op.name == "rpeg.step")
    return [*stages(step)]


def test_lost_names_are_of_their_operations() -> None:
    assert names("y") == ["y", "score", "score_2"]


def test_and_never_a_name_that_is_written() -> None:
    assert names("score") == ["score", "score_2", "score_3"]


def test_passes_take_stages_that_lost_their_names() -> None:
    run = opt(
        "-p", "rpeg-annotate-parallelism{dp=2},rpeg-schedule", stdin=STEP.format(generate="y")
    )
    assert run.code == 0, run.err
    assert 'task = "score_2"' in run.out
