"""Heads that share the first layers: each has its own above, and both train what is shared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from rpeg.interp import Interpreter, World
from rpeg.interp.network import CRITIC, VALUE_HEAD, Network, initial_tensors, unshared
from rpeg.interp.rectangle import Rectangle
from rpeg.runtime.models.model_source import open_source
from tests.unit.interp.pipelines import parse

STEP = """
    q = batch(train, size=4)
    y, lp = generate(ac@i, q, n=2, max_tokens=6, dtype=fp32)
    r = score(brief, y)
    old = logprob(ac@i, y)
    v = values(ac@i, y)
    lref = logprob(ref, y)
    tok = kl_penalty(r, old, lref, coef=0.1)
    adv, ret = gae(tok, v, gamma=1.0, lambda=0.95)
    pg = ppo_clip(y, adv, old, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2)
    ac@i+1 = update(ac@i, pg, vl, agg=token_mean)
    b = batch(said, size=4)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
"""
THINGS = """
  model ac = actor_critic("tiny", shared_layers=1, dtype=fp32, optim=adamw(lr=3e-2))
  model ref = policy(ac@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  data said = demos("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=6)
"""


def gradients(network: Network, tensors: Mapping[str, Tensor], way: str) -> dict[str, Tensor]:
    """Of some function of what one head, or both, say of some rows."""
    held = {name: t.detach().clone().requires_grad_() for name, t in tensors.items()}
    rows = Rectangle(
        ids=torch.tensor([[4, 5, 6, 7, 8], [5, 4, 8, 7, 0]]),
        starts=torch.tensor([2, 2]),
        tokens=torch.tensor([[6, 7, 8], [8, 7, 0]]),
        mask=torch.tensor([[True, True, True], [True, True, False]]),
        temperature=1.0,
    )
    out = getattr(network, way)(held, rows)
    scale = torch.tensor([[1.0, -2.0, 3.0], [2.0, 1.0, -1.0]])
    parts = [(said * scale).sum() for said in (out.logprob, out.values.square()) if said.numel()]
    torch.stack(parts).sum().backward()
    return {name: t.grad for name, t in held.items() if t.grad is not None}


def test_the_gradients_of_two_models_that_share(world_folder: Path) -> None:
    """By hand: a policy and a critic of their own; what is shared gets the sum."""
    source = open_source(world_folder / "tiny", "tiny", 0, two_heads=True)
    network, whole = Network(source, torch.float64), initial_tensors(source, torch.float64)
    shared = {**whole, **unshared(whole, 1)}
    both = gradients(network, shared, "actor_critic")
    policy, critic = gradients(network, whole, "policy"), gradients(network, whole, "critic")
    own = {name.removeprefix(CRITIC) for name in shared if name.startswith(CRITIC)}
    assert own == {n for n in whole if n.startswith(("model.layers.1.", "model.norm."))}
    assert not torch.equal(policy["model.norm.weight"], critic["model.norm.weight"])
    for name in whole:
        if name in own:
            torch.testing.assert_close(both[name], policy[name])
            torch.testing.assert_close(both[CRITIC + name], critic[name])
        else:
            parts = [each[name] for each in (policy, critic) if name in each]
            torch.testing.assert_close(both[name], torch.stack(parts).sum(dim=0))
    assert VALUE_HEAD in both and VALUE_HEAD not in policy


def test_it_trains_apart_above_what_is_shared(world_folder: Path) -> None:
    found = Interpreter(parse(STEP, more=THINGS), "p", World(world_folder)).run(2)
    weights = found.weights["ac"]
    own = [name for name in weights if name.startswith(CRITIC)]
    assert all(not torch.equal(weights[n], weights[n.removeprefix(CRITIC)]) for n in own)
    assert CRITIC + "model.layers.0.mlp.up_proj.weight" not in weights
