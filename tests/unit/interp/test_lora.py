"""Adapters: the model starts as its base, and only they are trained."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rpeg.interp import Interpreter
from rpeg.interp.lora import is_adapter
from tests.unit.interp.pipelines import THINGS, grpo, parse

Interpret = Callable[..., Interpreter]
STEP = """
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
    old = logprob(actor@i, y)
    base = logprob(ref, y)
    pg = ppo_clip(y, adv, old, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, base, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
    twin@i+1 = copy(actor@i+1)"""


@pytest.mark.parametrize("targets", ["all_linear", "attention"])
def test_only_adapters_are_trained(targets: str, interpret: Interpret) -> None:
    more = THINGS + "  model twin = policy(actor@0, dtype=fp32)\n"
    optim = f"adamw(lr=1e-2), lora=lora(rank=2, alpha=4, targets={targets})"
    record = interpret(parse(STEP, optim=optim, more=more)).run(2)
    torch.testing.assert_close(record.steps[0].logprobs["old"], record.steps[0].logprobs["base"])
    apart = record.steps[1].logprobs["old"] - record.steps[1].logprobs["base"]
    assert float(apart.abs().max()) > 1e-4
    actor, twin = record.weights["actor"], record.weights["twin"]
    start = interpret(grpo()).run(0).weights["actor"]
    assert all(torch.equal(actor[name], start[name]) for name in start)
    adapters = {name.rpartition(".")[0] for name in actor if is_adapter(name)}
    assert any("mlp." in name for name in adapters) == (targets == "all_linear")
    for name in start:
        delta = 2.0 * actor[f"{name}.lora_B"] @ actor[f"{name}.lora_A"] if name in adapters else 0
        torch.testing.assert_close(twin[name], start[name] + delta)
