"""Every layout computes what one process does; the same comparison sees planted faults."""

from __future__ import annotations

import functools
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg import runtime as rt
from rpeg.runtime.trajectories import Row, Trajectories
from tests.distributed import layouts_program as program

PROGRAM = Path(__file__).with_name("layouts_program.py")
ROOT = Path(__file__).parents[2]


TINY: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 258,
    "rms_norm_eps": 1e-6,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "initializer_range": 0.05,
}
"""Four layers: two stages of two chunks."""


def make_model(folder: Path, family: str) -> None:
    """A folder with a shape and a tokenizer; runs draw its weights."""
    shutil.copytree(ROOT / "models" / "tiny-qwen2", folder)
    tied = {"tie_word_embeddings": family != "llama"}
    config = json.dumps(TINY | tied | {"model_type": family})
    (folder / "config.json").write_text(config)


def record(vocab: int, samples: int = program.SAMPLES, width: int = 7, n: int = 2) -> Trajectories:
    """Random completions of uneven lengths, so that shares and micro-batches differ in tokens."""
    generator = torch.Generator().manual_seed(1)

    def draw(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=generator)

    lengths = draw(1, width + 1, samples)
    mask = torch.arange(width) < lengths.unsqueeze(1)
    prompts = [tuple(draw(2, vocab, int(draw(1, 9, 1))).tolist()) for _ in range(samples // n)]
    return Trajectories(
        rows=(Row(""),) * samples,
        prompt_ids=tuple(prompt for prompt in prompts for _ in range(n)),
        tokens=draw(1, vocab, samples, width) * mask,
        mask=mask,
        versions=mask.int() - 1,
        finished=lengths < width,
        ordinals=torch.arange(samples) // n,
        samples=torch.arange(samples) % n,
        texts=("",) * samples,
        n=n,
        temperature=1.0,
    )


def launch(folder: Path, name: str) -> dict[str, Any]:
    """What the processes of a launch found."""
    processes, _ = program.LAUNCHES[name]
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    subprocess.run(
        [sys.executable, *command, str(PROGRAM), str(folder), name],
        env=os.environ
        | {"RPEG_ROOT": str(ROOT), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        | {"RPEG_RUN_DIR": str(folder / f"run {name}")},
        check=True,
        timeout=500,
    )
    found: dict[str, Any] = torch.load(folder / name)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and trajectories."""
    made = tmp_path_factory.mktemp("layouts")
    for family in program.MODELS:
        make_model(made / family, family)
    recorded = dict.fromkeys(program.MODELS, record(258))
    (made / "recorded").write_bytes(pickle.dumps(recorded))
    return made


@pytest.fixture(scope="module")
def alone(folder: Path) -> Callable[[Any], dict[str, Any]]:
    """What this one process finds for a case."""
    recorded = pickle.loads((folder / "recorded").read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RPEG_ROOT", str(ROOT))
        patch.setenv("RPEG_RUN_DIR", str(folder / "one"))
        run = rt.start(pipeline="replay", steps=1, processes=1, source_sha256="0")

    @functools.cache
    def found(case: Any) -> dict[str, Any]:
        if case == SAMPLES:
            return dict(program.sample(run, "dp1"))
        return dict(program.replay(run, folder, recorded[case.model], case))

    return lambda case: found(case if case == SAMPLES else case.alone)


@pytest.fixture(scope="module")
def several(folder: Path) -> Callable[[str], dict[str, Any]]:
    """What the processes of a launch find, by the names of their cases."""
    return functools.cache(functools.partial(launch, folder))


SAMPLES = "samples"
CASES = [
    pytest.param(name, case, id=f"{name}: {case}", marks=[pytest.mark.slow] * ("slow" in name))
    for name, (_, cases) in program.LAUNCHES.items()
    for case in cases
]
EXACT = {"log-prob": 1e-5, "gradient norm": 1e-5, "weights rms": 1e-6}
LOOSE = {"log-prob": 0.05, "first gradient norm": 0.02, "weights rms": 5e-4}
"""For bf16, whose numbers have 8 bits; a weight moves by 1e-3."""


def distances(a: dict[str, Any], b: dict[str, Any]) -> dict[str, float]:
    """How far two replays are apart."""
    gaps = torch.cat([(a["weights"][k] - b["weights"][k]).float().flatten() for k in b["weights"]])
    norms = [abs(x[0] / y[0] - 1) for x, y in zip(a["norms"], b["norms"], strict=True)]
    return {
        "log-prob": float((a["logprob"] - b["logprob"]).abs().max()),
        "gradient norm": max(norms),
        "first gradient norm": norms[0],
        "weights rms": float(gaps.square().mean().sqrt()),
    }


def differences(a: dict[str, Any], b: dict[str, Any], bounds: dict[str, float]) -> list[str]:
    """What is further apart than the order of sums explains."""
    found = distances(a, b)
    return [
        f"{name} {found[name]:.1e}" for name, bound in bounds.items() if not found[name] <= bound
    ]


@pytest.mark.parametrize(("launch", "case"), CASES)
def test_layout(launch: str, case: Any, several: Any, alone: Any) -> None:
    found, wanted = several(launch)[str(case)], alone(case)
    assert differences(found, wanted, EXACT if case.dtype == "fp32" else LOOSE) == []
    assert found["rates"] == wanted["rates"]
    assert all(len(set(norms)) == 1 for norms in found["norms"]), "one norm on all processes"


@pytest.mark.parametrize(("fault", "case"), [(k.__name__, c) for k, c in program.FAULTS.items()])
def test_planted_faults_are_seen(fault: str, case: Any, several: Any, alone: Any) -> None:
    found = differences(several("two")[fault], alone(case), EXACT)
    assert any(name.startswith("gradient norm") for name in found), found
    assert any(name.startswith("weights rms") for name in found), found


@pytest.mark.parametrize("layout", program.SAMPLING)
def test_processes_sample_what_one_does_to_the_bit(layout: str, several: Any, alone: Any) -> None:
    found, one = several("two")[f"samples {layout}"], alone(SAMPLES)
    assert torch.equal(found["tokens"], one["tokens"])
    assert torch.equal(found["logprobs"], one["logprobs"])
    assert len(one["tokens"].view(-1, 6).unique(dim=0)) == 32
