"""What `rpeg verify` is tried on: small models of every family, pipelines, and planted bugs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.unit.interp.pipelines import FAMILIES, write_model, write_pairs, write_rows

GRPO = """rpeg 0.1
pipeline p {{
  model actor = policy("{model}", optim=adamw(lr=1e-6, weight_decay=0.1))
  model ref = policy(actor@0)
  data train = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=8)

  step i < 100 {{
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, n=4, max_tokens=8)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
    lp_ref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.05)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
    every(steps=10) {{
      checkpoint()
    }}
  }}
}}
"""
WINDOW = """rpeg 0.1
pipeline p {{
  model actor = policy("{model}", optim=adamw(lr=1e-6, weight_decay=0.1))
  data train = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=8)

  step i < 100 {{
    q = batch(train, size=8)
    y, lp = generate(actor@[i-2..i], q, n=4, max_tokens=8, SAID)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
    prox = logprob(actor@i, y)
    w = importance(prox, lp, WEIGHED)
    pg = LOSS
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }}
}}
"""
"""Samples of weights that are up to two steps old."""
CLIPPED = "ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)"
CORRECTIONS = {
    "decoupled": ("bound=strict", "cap=5.0", CLIPPED),
    "truncated": ("overflow=drop", "cap=1.001", "policy_gradient(y, adv, w)"),
    "icepop": ("bound=head", "floor=0.995, cap=1.005, mode=mask", CLIPPED),
    "sequence_mask": (
        "overflow=defer",
        "floor=0.99, cap=1.01, mode=mask, level=sequence",
        CLIPPED.replace(")", ", ratio=sequence)"),
    ),
    "partial_rollouts": ("bound=strict, overflow=resume, old_spans=mask", "cap=2.0", CLIPPED),
}
"""What is said of the window, of the weights, and the loss: as in examples/async_corrections.rpeg,
with bounds that small models reach in five steps."""


def window(correction: str) -> str:
    """WINDOW with one of the corrections."""
    said, weighed, loss = CORRECTIONS[correction]
    return WINDOW.replace("SAID", said).replace("WEIGHED", weighed).replace("LOSS", loss)


SFT = """rpeg 0.1
pipeline p {{
  model actor = policy("{model}", optim=adamw(lr=1e-5))
  data train = demos("rows.jsonl")
  step i < 100 {{
    b = batch(train, size=8)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=seq_mean_token_mean)
  }}
}}
"""


def write(folder: Path, text: str, family: str) -> Path:
    """A pipeline file beside its model, of four layers that tp2 and pp2vpp2 split, and its rows.

    Its 23 tokens are no multiple of a tensor-parallel width; Llama's embeddings are untied.
    """
    folder.mkdir(exist_ok=True)
    split = {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    # Narrower than the digits, so that the rounding of large logits stays far below the bounds.
    write_model(folder / family, **FAMILIES[family], **split, initializer_range=0.2)
    write_rows(folder / "rows.jsonl")
    write_pairs(folder / "pairs.jsonl")
    (folder / "p.rpeg").write_text(text.format(model=family), encoding="utf-8")
    return folder / "p.rpeg"


SUMS_OVER_DATA = """
from rpeg.runtime.megatron import shim
shim.install()
from megatron.core.distributed import DistributedDataParallel
DistributedDataParallel.finish_grad_sync = lambda self, *rest, **more: None
"""
"""Gradients of replicas are never summed."""

SUM_OVER_TENSOR = """
from rpeg.runtime.megatron import shim
shim.install()
from megatron.core.tensor_parallel.layers import (
    LinearWithGradAccumulationAndAsyncCommunication as Linear,
)
backward = Linear.backward

def without_sum(ctx, *gradients):
    ctx.allreduce_dgrad = False
    return backward(ctx, *gradients)

Linear.backward = staticmethod(without_sum)
"""
"""The gradient of a split matrix's input is never summed over its shards."""

NORMALISER = """
from rpeg.runtime.losses import Totals
from rpeg.runtime.trainer import Trainer

def own_totals(self, examples, steps):
    lengths = examples.mask.sum(dim=1)
    return [Totals(int(lengths[k].sum()), int((lengths[k] > 0).sum())) for k in steps]

Trainer._totals = own_totals
"""
"""Each process divides by its own tokens."""

NORM_WEIGHTS = """
import importlib
from rpeg.runtime.megatron import shim
shim.install()
finalize = importlib.import_module("megatron.core.distributed.finalize_model_grads")
finalize._allreduce_non_tensor_model_parallel_grads = lambda *rest, **more: None
"""
"""Gradients of norms, of which each rank saw a part of the sequence or heads, are never summed."""

STALE = """
from rpeg.runtime.engine.embedded import EmbeddedEngine
swap = EmbeddedEngine.swap_weights

def a_step_late(self, register):
    late = getattr(self, "arrived", None)
    swap(self, register)
    self.arrived = self._weights
    self._weights = late or self._weights

EmbeddedEngine.swap_weights = a_step_late
"""
"""An engine takes each version of the weights when the next one comes."""


NEWEST = """
import os
os.environ["RPEG_VERSIONS"] = "newest"
"""
"""Samples of a window come from the newest weights, not from the oldest that it allows."""


CRITIC_ALONE = """
from rpeg.runtime.megatron import shim
shim.install()
from megatron.core.distributed import DistributedDataParallel
finish = DistributedDataParallel.finish_grad_sync

def all_but_the_critic(self, *rest, **more):
    if not self.module._shape.critic:
        finish(self, *rest, **more)

DistributedDataParallel.finish_grad_sync = all_but_the_critic
"""
"""Gradients of a critic's replicas are never summed; those of other models are."""

OTHER_ROWS = """
from rpeg.runtime.crossing import Crossing
back = Crossing.back
Crossing.back = lambda self, field: back(self, field).flip(0)
"""
"""What a model of another layout says of its rows comes back to others."""

OTHER_ORDER = """
from rpeg.runtime.terms import LossTerm
moved = LossTerm.moved

def flipped(self, move):
    term = moved(self, move)
    term.fields.update({name: field.flip(0) for name, field in term.fields.items()})
    return term

LossTerm.moved = flipped
"""
"""A model of another layout gets the rows of its update, and their fields in another order."""

ACTOR_TWICE = """
from rpeg.runtime.megatron.replica import Replica
outputs = Replica.outputs

def doubled(self, answer, inputs, temperature):
    if answer.logits is not None and answer.logits.requires_grad:
        answer.logits.register_hook(lambda gradient: 2.0 * gradient)
    return outputs(self, answer, inputs, temperature)

Replica.outputs = doubled
"""
"""What goes from the policy's head into its trunk counts twice."""

WHITENED_ALONE = """
from rpeg import runtime
from rpeg.runtime import advantages

def whiten(y, field, *, count, groups):
    moments = advantages.Moments.of(field, advantages.counts(field, y.mask, count))
    return advantages.whiten(field, y.mask, moments)

runtime.whiten = whiten
"""
"""Advantages are whitened over the rows of each process."""


def planting(bug: str) -> Callable[[Path], None]:
    """Has a compiled program start with some lines of its own."""

    def plant(package: Path) -> None:
        (program,) = package.glob("program_*.py")
        text = program.read_text(encoding="utf-8")
        first = "from rpeg import runtime as rt\n"
        assert first in text
        program.write_text(text.replace(first, first + "import planted\n"), encoding="utf-8")
        (package / "planted.py").write_text(bug, encoding="utf-8")

    return plant


def planting_by_layout(bugs: Mapping[str, str]) -> Callable[[Path], None]:
    """One bug for each of these layouts: they share a recording."""

    def plant(package: Path) -> None:
        layout = package.parent.name
        if layout in bugs:
            planting(bugs[layout])(package)

    return plant
