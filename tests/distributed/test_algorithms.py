"""Every algorithm's program computes what the interpreter does, on one process and on several.

`rpeg verify` gives every policy a KL term to other weights, and every update two minibatches. It
compares the log-probs and values of each step, what each optimizer step trains towards and costs,
the gradient norms of each trained model, and the weights of each in the end.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.tools.console import read
from rpeg.tools.verifying.judge import BOUND
from rpeg.tools.verifying.run import Request, verify
from tests.distributed.algorithms import ALGORITHMS
from tests.distributed.verifying import write
from tests.unit.interp.pipelines import FAMILIES, write_model


def held(folder: Path, name: str, family: str, *layouts: str, steps: int = 3) -> None:
    file = write(folder, ALGORITHMS[name], family)
    if "teacher" in ALGORITHMS[name]:
        wide = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 24}
        write_model(folder / "teacher", **FAMILIES[family], **wide, initializer_range=0.2)
    report = verify(Request(read(str(file)), layouts=layouts, steps=steps), print)
    assert report.ok, report
    for verdict in report.verdicts:
        assert verdict.parity is not None and verdict.parity.within(BOUND)
        said = max(verdict.parity.logprob, verdict.parity.value)
        assert said > 0.0, "two implementations round differently"


def test_ppo_trains_two_models(tmp_path: Path) -> None:
    held(tmp_path / "p", "ppo", "qwen3", "dp1", steps=2)


LAYOUTS = {
    "dpo": ("dp2", "tp2sp", "pp2vpp2", "dp2+actor=tp2"),
    "ppo": ("tp2sp", "tp2sp+critic=dp2zero1", "pp2+ref=dp2", "dp2+actor=tp2"),
    "ppo_shared": ("tp2sp", "pp2vpp2", "dp2zero1"),
    "reward_model": ("dp2", "tp2sp", "pp2vpp2"),
}
"""Of those whose models split in ways of their own: all layouts of a pipeline share a recording.
The others of PPO are in test_verify.py."""
FAMILY = {"distillation": "llama", "ppo_shared": "llama"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_the_interpreter(tmp_path: Path, name: str) -> None:
    layouts = LAYOUTS.get(name, ("dp2",))
    held(
        tmp_path / "p",
        name,
        FAMILY.get(name, "qwen3"),
        *layouts,
        steps=2 if len(layouts) > 1 else 3,
    )
