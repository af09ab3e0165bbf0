"""Hugging Face models as pure functions of their weights."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call

from rpeg.interp.rectangle import Rectangle
from rpeg.runtime.models.model_source import ModelSource
from rpeg.runtime.models.tokenizer import Tokenizer

NEVER = -1e30
"""Logit of a token that is never sampled: probability 0 in float32, and no NaN in an entropy."""

VALUE_HEAD = "score.weight"
"""The name that Hugging Face's sequence classifiers give their head."""

CRITIC = "critic."
"""Stands before the names of weights that a critic has for itself, above the shared layers."""

Tensors = Mapping[str, Tensor]
"""Weights under Hugging Face names."""


@dataclass(frozen=True)
class Outputs:
    """What a model says about completions, all [rows, tokens]."""

    mask: Tensor
    logprob: Tensor
    """Of the completion tokens, zero outside the mask; empty for a critic."""
    entropy: Tensor
    """Of the distribution of the next token, in nats; empty for a critic."""
    values: Tensor
    """A critic's values, or a reward model's scores; empty for a policy."""


class Network:
    """A Qwen2, Qwen3 or Llama model, as `config.json` of its folder describes it."""

    def __init__(self, source: ModelSource, dtype: torch.dtype = torch.float32) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(source.folder)
        with torch.random.fork_rng(devices=[]):  # its own random weights are thrown away
            self._module: Any = AutoModelForCausalLM.from_config(
                config, dtype=dtype, attn_implementation="sdpa"
            ).eval()
        if dtype == torch.float64:
            _precise_norms(self._module)
        self.tokenizer: Tokenizer = source.tokenizer
        self.shape = source.shape
        self.vocab = source.shape.vocab
        pad = self.tokenizer.pad_id
        self._banned = torch.arange(self.vocab) == (-1 if pad is None else pad)

    def logits(self, tensors: Tensors, ids: Tensor, cache: Any = None) -> Tensor:
        """[rows, length, vocabulary] next-token logits of `ids` [rows, length], padding banned.

        With a cache, `ids` go on where it ends, and it grows.
        """
        options = {"past_key_values": cache, "use_cache": cache is not None}
        held = {n: t for n, t in tensors.items() if n != VALUE_HEAD and not n.startswith(CRITIC)}
        out = functional_call(self._module, held, (ids,), options)
        logits: Tensor = out.logits
        return logits.masked_fill(self._banned, NEVER)

    def hidden(self, tensors: Tensors, ids: Tensor) -> Tensor:
        """[rows, length, hidden] states after the last norm."""
        inner = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        out = functional_call(self._module.model, inner, (ids,), {"use_cache": False})
        states: Tensor = out.last_hidden_state
        return states

    def policy(self, tensors: Tensors, rows: Rectangle) -> Outputs:
        """Log-probs of the completions at their sampling temperature, and entropies."""
        logits = rows.predicting(self.logits(tensors, rows.ids)) / rows.temperature
        logprobs = logits.log_softmax(dim=-1)
        chosen = logprobs.gather(-1, rows.tokens.unsqueeze(-1)).squeeze(-1)
        entropy = -(logprobs.exp() * logprobs).sum(dim=-1)
        return Outputs(rows.mask, chosen * rows.mask, entropy, chosen.new_empty(0))

    def critic(self, tensors: Tensors, rows: Rectangle) -> Outputs:
        """The value of the state in which each completion token is chosen."""
        states = rows.predicting(self.hidden(_as_critic(tensors), rows.ids))
        values = (states @ tensors[VALUE_HEAD].T).squeeze(-1) * rows.mask
        nothing = values.new_empty(0)
        return Outputs(rows.mask, nothing, nothing, values)

    def actor_critic(self, tensors: Tensors, rows: Rectangle) -> Outputs:
        """Both, of one trunk with two heads; or of as much of it as they share."""
        return replace(self.policy(tensors, rows), values=self.critic(tensors, rows).values)

    def process_reward(self, tensors: Tensors, rows: Rectangle) -> Outputs:
        """The score of each completion token, once it has been read."""
        states = rows.reading(self.hidden(tensors, rows.ids))
        scores = (states @ tensors[VALUE_HEAD].T).squeeze(-1) * rows.mask
        nothing = scores.new_empty(0)
        return Outputs(rows.mask, nothing, nothing, scores)

    def reward(self, tensors: Tensors, rows: Rectangle) -> Outputs:
        """The score of each row at its last completion token, zero at the others."""
        out = self.process_reward(tensors, rows)
        last = rows.mask & (rows.mask.cumsum(dim=1) == rows.mask.sum(dim=1, keepdim=True))
        return replace(out, values=out.values * last)


def _precise_norms(module: Any) -> None:
    """Puts norms that keep float64 in the place of transformers' own, which round to float32."""
    child: Any
    for name, child in module.named_children():
        if hasattr(child, "variance_epsilon"):
            shape, eps = child.weight.shape, child.variance_epsilon
            setattr(module, name, torch.nn.RMSNorm(shape, eps, dtype=torch.float64))
        else:
            _precise_norms(child)


def unshared(tensors: Tensors, layers: int) -> dict[str, Tensor]:
    """A critic's own weights as they start: copies of the policy's, of the layers after the first
    `layers` and of the norm behind them.
    """
    return {CRITIC + n: t.clone() for n, t in tensors.items() if _is_above(n, layers)}


def _is_above(name: str, layers: int) -> bool:
    layer = re.match(r"model\.layers\.(\d+)\.", name)
    return int(layer[1]) >= layers if layer is not None else name.startswith("model.norm.")


def _as_critic(tensors: Tensors) -> Tensors:
    """The trunk that a critic reads with: its own weights in place of the policy's."""
    own = {n.removeprefix(CRITIC): t for n, t in tensors.items() if n.startswith(CRITIC)}
    return {**tensors, **own}


def initial_tensors(source: ModelSource, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """The weights before step 0."""
    return {name: source.read(name).to(dtype) for name, _ in source.shape.tensors()}
