"""What the annotating pass makes of the repository's examples means what they say."""

from __future__ import annotations

import pytest

from rpeg.interp.l1 import Shuffled
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from tests.unit.interp.l1.executing import Placed
from tests.unit.interp.meaning import rewritten
from tests.unit.interp.steps import example

QUICK = ("ppo_critic", "sft_warmup")
SLOW = (
    "async_corrections",
    "cispo",
    "dr_grpo",
    "grpo_countdown",
    "gspo",
    "on_policy_distillation",
    "reinforce_pp",
    "remax",
    "rloo",
)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_an_annotated_example_means_what_it_says(name: str, placed: Placed) -> None:
    module = example(name)
    annotated = rewritten(module, RpegAnnotateParallelismPass(dp=2, tp=2))
    assert placed.differences(module, annotated, Shuffled(1)) == []
