"""What the cost model takes for granted of our own software on cores is what it does: operations
that Python starts, and numbers that pass through memory outside of products.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rpeg import runtime as rt
from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.generation import EAGER_LAYER, EAGER_STEP
from rpeg.cost.hardware import load_machine
from rpeg.cost.layers import MEASURED, Pricing, Work
from rpeg.cost.plans import Plans
from rpeg.cost.profiles.moving import END_PARAMETERS, LAYER_PARAMETERS
from rpeg.cost.profiles.setting import (
    MEASURED_ADAM,
    MEASURED_OPTIMIZER,
    MEASURED_PUBLISH,
    MEASURED_STEP,
)
from rpeg.runtime.batches.examples import Examples
from rpeg.runtime.engine.decoder import Decoder
from rpeg.runtime.engine.decoding import CHUNK, Decoding
from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.groups import Groups
from rpeg.runtime.megatron.weights import WeightMap
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.run import Run
from tests.unit.runtime.conftest import ROOT, make_trajectories

MODEL = ROOT / "models" / "tiny-qwen3-digits"

TRAINED = 1.9
"""Launches that an operation of an update or publish counts for: it is met once a step, while a
decode step's is met once a token; most are started from Megatron-Core's modules, and recorded for
the backward pass.
"""

PRODUCTS = {
    *("mm", "bmm", "baddbmm", "_scaled_dot_product_flash_attention_for_cpu"),
    "_scaled_dot_product_flash_attention_for_cpu_backward",
}
NOTHING_MOVES = {
    *("view", "_unsafe_view", "slice", "detach", "alias", "unsqueeze", "squeeze", "transpose", "t"),
    *("split", "split_with_sizes", "select", "expand", "as_strided", "permute", "unbind"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "lift_fresh"),
}


class Counted(TorchDispatchMode):
    """Operations that start within, and numbers that those besides products read and write."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        if func.overloadpacket.__name__ not in PRODUCTS | NOTHING_MOVES:
            touched = tree_leaves((args, kwargs, result))
            self.numbers += sum(
                t.numel() for t in touched if isinstance(t, torch.Tensor) and t.is_floating_point()
            )
        return result


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[int], Path]:
    """The demo's model with so many layers."""

    def of_layers(layers: int) -> Path:
        path = tmp_path / f"layers{layers}"
        shutil.copytree(MODEL, path)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}))
        return path

    return of_layers


def sampled(source: ModelSource, tokens: int) -> int:
    """Operations of a chunk that decodes so many tokens."""
    settings = Sampling(
        n=8, max_tokens=tokens, temperature=1.0, top_p=1.0, stop=(), run_seed=0, seed=0
    )
    weights = {name: source.read(name) for name, _ in source.shape.tensors()}
    decoder = Decoder(source.shape, weights, torch.float32)
    banned = torch.zeros(source.shape.vocab, dtype=torch.bool)
    decoding = Decoding(decoder, settings, source.tokenizer, banned)
    with torch.inference_mode(), Counted() as counted:
        decoding.run([(3, 4, 5)] * (CHUNK // settings.n), torch.arange(CHUNK // settings.n))
    return counted.operations


def test_operations_of_a_decoded_token(folder: Callable[[int], Path]) -> None:
    """Besides layers a token takes noise, its choice, and what Python does row by row: a third or
    so of that is operations of torch.
    """
    two, four = (
        (sampled(source, 8) - sampled(source, 4)) / 4
        for source in (ModelSource(folder(layers), seed=0) for layers in (2, 4))
    )
    layer = (four - two) / 2
    assert layer == pytest.approx(EAGER_LAYER, rel=0.1)
    assert EAGER_STEP / 5 < two - 2 * layer < EAGER_STEP


@dataclass(frozen=True)
class Updated:
    """An optimizer step."""

    tokens: int
    operations: int
    numbers: int


def updated(trainer: rt.Trainer, samples: int) -> Updated:
    """The second one on so many samples: the first makes what later ones find."""
    y = make_trajectories(samples)
    examples = Examples.of(y, trainer.tokenizer)
    tokens = examples.inputs(list(range(samples))).input_ids.numel()
    advantages, old = torch.ones(samples), torch.zeros(y.tokens.shape)

    def update() -> None:
        pg = rt.ppo_clip(y, advantages, old, clip_low=0.2, clip_high=0.2)
        trainer.update(pg, agg="token_mean")

    update()
    with Counted() as counted:
        update()
    return Updated(tokens, counted.operations, counted.numbers)


@pytest.fixture
def trainers(run: Run, groups: Groups, folder: Callable[[int], Path]) -> list[rt.Trainer]:
    """Of two layers and of four."""
    return [
        rt.Trainer(
            run,
            f"actor{layers}",
            role="policy",
            source=str(folder(layers)),
            groups=groups,
            dtype="fp32",
            optimizer=rt.AdamW(lr=1e-3),
            horizon=8,
        )
        for layers in (2, 4)
    ]


def test_operations_and_memory_of_an_update(trainers: list[rt.Trainer]) -> None:
    (few, many), (more, most) = (
        [updated(trainer, samples) for samples in (32, 128)] for trainer in trainers
    )
    layer = (more.operations - few.operations) / 2
    assert MEASURED.plain + MEASURED_OPTIMIZER == pytest.approx(TRAINED * layer, rel=0.1)
    assert pytest.approx(TRAINED * (few.operations - 2 * layer), rel=0.1) == MEASURED_STEP

    grown = many.tokens - few.tokens
    in_two, in_four = (many.numbers - few.numbers) / grown, (most.numbers - more.numbers) / grown
    layer_numbers = (in_four - in_two) / 2
    assert layer_numbers == pytest.approx(streamed_numbers(), rel=0.05)
    ends = in_two - 2 * layer_numbers
    assert ends == pytest.approx(3.0 * MEASURED.streams * MEASURED.ends * 128, rel=0.1)

    adam = few.numbers - in_two * few.tokens
    weights = load_architecture(str(MODEL / "config.json")).parameters
    assert 4.0 * adam / weights == pytest.approx(MEASURED_ADAM, rel=0.05)


def published(run: Run, trainer: rt.Trainer) -> int:
    """Operations of a publish to an engine on the same process."""
    weights = rt.LatestWeights(run, trainer)
    weights.publish(trainer)
    with Counted() as counted:
        weights.publish(trainer)
    return counted.operations


def test_operations_of_a_publish(run: Run, trainers: list[rt.Trainer]) -> None:
    two, four = (published(run, trainer) for trainer in trainers)
    assert TRAINED * (four - two) / 2 == pytest.approx(MEASURED_PUBLISH, rel=0.15)


def streamed(work: Work) -> float:
    """Seconds of a forward and a backward pass: numbers, on a machine that streams one a second."""
    return float(work.forward + work.data_gradient)


def pricing() -> Pricing:
    """Of the demo's model on a core that does nothing but stream four bytes per second."""
    core = replace(
        load_machine("h100"),
        flops={"fp32": 1e30},
        hbm_bytes_per_s=4.0,
        hbm_efficiency=1.0,
        kernel_s=0.0,
    )
    shape = load_architecture(str(MODEL / "config.json"))
    return Pricing(shape, core, "fp32", Plans.of(batch=1, seq=1), host=MEASURED)


def streamed_numbers() -> float:
    """Float32 numbers that a layer streams for a token, as costs have it."""
    priced = pricing()
    shape = priced.shape
    up = (shape.mlp_matrices - 1) * shape.ffn
    hidden, rotary = 20.0 * shape.hidden, 4.0 * (shape.query_width + shape.kv_width)
    return streamed(priced._stream(hidden + rotary + 2.0 * (up + shape.ffn), 0.0))


def test_tensors_of_a_publish(groups: Groups) -> None:
    """Among tensor-parallel ranks each parameter is gathered, among stages each is sent."""
    source = ModelSource(MODEL, seed=0)
    layers = source.shape.layers
    units = list(WeightMap(source.shape, groups).local_units())
    assert len(units) == LAYER_PARAMETERS * layers + END_PARAMETERS
