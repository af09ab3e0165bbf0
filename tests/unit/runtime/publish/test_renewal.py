"""Samples in flight go on under newer weights: each token has the version that predicted it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rpeg import runtime as rt
from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.publish.digest import checksum
from rpeg.runtime.trajectories import Prompts, Row, Trajectories
from tests.unit.interp.pipelines import write_model

TOKENS = 8
SETTINGS = Sampling(2, TOKENS, 1.0, 1.0, (), run_seed=0, seed=0)


@dataclass
class Register:
    """Versions that arrive after so many tokens."""

    versions: list[dict[str, Tensor]]
    after: set[int] = field(default_factory=set)
    version: int = 0
    asked: int = 0

    @property
    def checksum(self) -> str:
        return checksum(self.versions[self.version].items())

    def read(self) -> NamedTensors:
        return iter(self.versions[self.version].items())

    def renew(self) -> bool:
        self.asked += 1
        newer = self.asked in self.after
        self.version += newer
        return newer


@pytest.fixture
def model(run: rt.Run, tmp_path: Path) -> rt.SampledModel:
    folder = write_model(tmp_path / "model", eos_token_id=99, vocab_size=32)
    return rt.SampledModel(run, "actor", source=str(folder))


def weights(model: rt.SampledModel, seed: int) -> dict[str, Tensor]:
    source = ModelSource(model.source.folder, seed)
    return {name: source.read(name) for name, _ in model.shape.tensors()}


def sampled(
    run: rt.Run, model: rt.SampledModel, groups: rt.Groups, register: Register
) -> tuple[rt.EmbeddedEngine, Trajectories, Tensor]:
    engine = rt.EmbeddedEngine(run, model, groups=groups)
    engine.swap_weights(register)
    prompts = Prompts((Row("12="), Row("34567=")), torch.arange(2))
    y, lp = engine.generate(prompts, n=2, max_tokens=TOKENS, temperature=1.0, renew=register)
    return engine, y, lp


def test_the_same_weights_go_on_with_the_same_tokens(
    run: rt.Run, model: rt.SampledModel, groups: rt.Groups
) -> None:
    same = weights(model, 1)
    _, y, lp = sampled(run, model, groups, Register([same]))
    _, again, lp_again = sampled(run, model, groups, Register([same, same], after={3}))
    assert torch.equal(y.tokens, again.tokens) and torch.equal(lp, lp_again)
    assert (y.versions[y.mask] == 0).all()
    expected = torch.tensor([0] * 3 + [1] * 5).expand_as(again.versions)
    assert torch.equal(again.versions[again.mask], expected[again.mask].int())


def test_each_token_is_of_its_version(
    run: rt.Run, model: rt.SampledModel, groups: rt.Groups
) -> None:
    register = Register([weights(model, seed) for seed in (1, 2, 3)], after={2, 5})
    engine, y, lp = sampled(run, model, groups, register)
    assert engine.version == 2
    assert (
        y.versions[0, : int(y.sampled_lengths[0])].tolist()
        == [0, 0, 1, 1, 1, 2, 2, 2][: y.sampled_lengths[0]]
    )
    for version in range(3):
        engine.swap_weights(Register(register.versions, version=version))
        of_version = y.versions == version
        assert of_version.any()
        told = engine.logprobs(y, SETTINGS, "fp32")
        torch.testing.assert_close(lp[of_version], told[of_version], atol=1e-5, rtol=0)
        assert not torch.allclose(lp[y.mask], told[y.mask], atol=1e-3)
