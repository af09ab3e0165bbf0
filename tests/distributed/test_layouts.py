"""Every layout computes what one process does; the same comparison sees planted faults."""

from __future__ import annotations

import importlib.util
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from rpeg import runtime as rt
from rpeg.runtime.groups import Groups
from rpeg.runtime.trajectories import Row, Trajectories

PROGRAM = Path(__file__).with_name("layouts_program.py")
ROOT = Path(__file__).parents[2]


def load_program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("layouts_program", PROGRAM)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


program = load_program()


def record(vocab: int, samples: int = 14, width: int = 7, n: int = 2) -> Trajectories:
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


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """Replays in two processes, and in this one under the name `one process`."""
    folder = tmp_path_factory.mktemp("layouts")
    trajectories = {program.MODEL: record(258), program.NORMED: record(23)}
    (folder / "recorded").write_bytes(pickle.dumps(trajectories))
    environment = os.environ | {"RPEG_ROOT": str(ROOT), "PYTHONPATH": str(ROOT)}
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(PROGRAM)]
    subprocess.run(
        [sys.executable, *command, str(folder / "recorded"), str(folder / "results")],
        env=environment | {"RPEG_RUN_DIR": str(folder / "two")},
        check=True,
        timeout=500,
    )
    found: dict[Any, Any] = torch.load(folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RPEG_ROOT", str(ROOT))
        patch.setenv("RPEG_RUN_DIR", str(folder / "one"))
        run = rt.start(pipeline="replay", steps=1, processes=1, source_sha256="0")
    for model, y in trajectories.items():
        groups = Groups.make(rt.Layout())
        found[model, "one process"] = program.replay(
            run, y, groups, model=model, micro_batch=program.WHOLE
        )
    found["samples of one process"] = program.sample(run, Groups.make(rt.Layout()))
    return found


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    """What is further apart than reassociation explains."""
    gaps = torch.cat([(a["weights"][k] - b["weights"][k]).flatten() for k in b["weights"]])
    norms = [abs(x / y - 1) for x, y in zip(a["norms"], b["norms"], strict=True)]
    measured = {
        "log-prob": (float((a["logprob"] - b["logprob"]).abs().max()), 1e-5),
        "gradient norm": (max(norms), 1e-5),
        "weights rms": (float(gaps.square().mean().sqrt()), 1e-6),
    }
    return [f"{name} {gap:.1e}" for name, (gap, bound) in measured.items() if not gap <= bound]


@pytest.mark.parametrize(("model", "layout"), program.CASES)
def test_layout(results: dict[Any, Any], model: str, layout: str) -> None:
    assert differences(results[model, layout], results[model, "one process"]) == []


@pytest.mark.parametrize("fault", program.FAULTS)
def test_planted_faults_are_seen(results: dict[Any, Any], fault: str) -> None:
    model = program.MODEL
    found = differences(results[model, fault], results[model, "one process"])
    assert any(name.startswith("gradient norm") for name in found), found
    assert any(name.startswith("weights rms") for name in found), found


def test_two_processes_sample_what_one_does_to_the_bit(results: dict[Any, Any]) -> None:
    two, one = results["samples"], results["samples of one process"]
    assert torch.equal(two["tokens"], one["tokens"])
    assert torch.equal(two["logprobs"], one["logprobs"])
    assert len(one["tokens"].view(-1, 6).unique(dim=0)) == 32
