"""The shape of a model: what `config.json` of a Hugging Face folder says, for the families we
train.

Qwen2, Qwen3 and Llama are one architecture with three switches: biases on q, k and v (Qwen2), norms
on q and k (Qwen3), scaled rotary frequencies (Llama 3).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rpeg.runtime.errors import ModelFailure

CLASSIFIER = "ForSequenceClassification"
"""How Hugging Face names the architecture of a model that scores."""
FAMILIES = ("llama", "qwen2", "qwen3")

_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


@dataclass(frozen=True)
class ModelShape:
    """A decoder-only transformer with RMSNorm, rotary positions, grouped queries and SwiGLU."""

    family: str
    vocab: int
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    """Of every RMSNorm."""
    rope_theta: float
    rope_factor: float | None
    """Llama 3's stretch of the rotary frequencies, or None."""
    qkv_bias: bool
    qk_norm: bool
    tied: bool
    """The output layer is the embedding."""
    positions: int
    """Longest sequence."""
    init_std: float
    """Standard deviation of fresh weights."""
    critic: bool = False
    """One number for each position instead of logits: a critic, or a reward model."""
    two_heads: bool = False
    """One number for each position beside logits: a policy and its critic on one trunk."""

    def as_critic(self) -> ModelShape:
        """The same trunk with a value head."""
        return replace(self, tied=False, critic=True)

    def as_actor_critic(self) -> ModelShape:
        """The same trunk and output layer, and a value head beside it."""
        return replace(self, two_heads=True)

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(Hugging Face name, shape) of every weight, input to output."""
        yield "model.embed_tokens.weight", (self.vocab, self.hidden)
        for layer in range(self.layers):
            for name, shape in self.layer_tensors():
                yield f"model.layers.{layer}.{name}", shape
        yield "model.norm.weight", (self.hidden,)
        if self.critic or self.two_heads:
            yield "score.weight", (1, self.hidden)
        if not self.critic and not self.tied:
            yield "lm_head.weight", (self.vocab, self.hidden)

    def layer_tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(name, shape) of one layer's weights."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "input_layernorm.weight", (self.hidden,)
        for part, width in (("q", queries), ("k", keys), ("v", keys)):
            yield f"self_attn.{part}_proj.weight", (width, self.hidden)
            if self.qkv_bias:
                yield f"self_attn.{part}_proj.bias", (width,)
        yield "self_attn.o_proj.weight", (self.hidden, queries)
        if self.qk_norm:
            yield "self_attn.q_norm.weight", (self.head_dim,)
            yield "self_attn.k_norm.weight", (self.head_dim,)
        yield "post_attention_layernorm.weight", (self.hidden,)
        yield "mlp.gate_proj.weight", (self.ffn, self.hidden)
        yield "mlp.up_proj.weight", (self.ffn, self.hidden)
        yield "mlp.down_proj.weight", (self.hidden, self.ffn)

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for _, shape in self.tensors())


def read_shape(folder: Path) -> ModelShape:
    """The shape in `folder/config.json`. Raises ModelFailure if it isn't one that we can train."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelFailure(f"{folder} is not a model folder: it has no config.json")
    try:
        return parse_shape(json.loads(path.read_text(encoding="utf-8")))
    except KeyError as error:
        raise ModelFailure(f"{path} has no {error}") from error
    except ValueError as error:
        raise ModelFailure(f"{path} is not valid JSON: {error}") from error
    except (TypeError, AttributeError, ZeroDivisionError) as error:
        raise ModelFailure(f"{path} is not a model configuration: {error}") from error
    except ModelFailure as error:
        raise ModelFailure(f"{path}: {error}") from error


def parse_shape(config: Mapping[str, Any]) -> ModelShape:
    """The shape that a `config.json` describes."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelFailure(
            f"model_type {family!r} can't be trained; use one of {', '.join(FAMILIES)}"
        )
    _refuse(config, "hidden_act", {"silu"}, default="silu")
    _refuse(config, "use_sliding_window", {False}, default=False)
    _refuse(config, "mlp_bias", {False}, default=False)
    _refuse(config, "attention_bias", {False, family == "qwen2"}, default=False)
    heads = config["num_attention_heads"]
    theta, factor = _rope(config)
    scores = any(name.endswith(CLASSIFIER) for name in config.get("architectures") or ())
    return ModelShape(
        family=family,
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        ffn=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        eps=config.get("rms_norm_eps", 1e-6),
        rope_theta=theta,
        rope_factor=factor,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        tied=config.get("tie_word_embeddings", False) and not scores,
        positions=config.get("max_position_embeddings", 32768),
        init_std=config.get("initializer_range", 0.02),
        critic=scores,
    )


def _refuse(config: Mapping[str, Any], key: str, allowed: set[Any], default: Any) -> None:
    value = config.get(key, default)
    if value not in allowed:
        raise ModelFailure(f"{key} = {value!r} is not supported, only {sorted(allowed, key=str)}")


def _rope(config: Mapping[str, Any]) -> tuple[float, float | None]:
    """(theta, stretch): newer files keep both in `rope_parameters`, older ones apart."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta", config.get("rope_theta", 10000.0)))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "llama3" or any(rope.get(key) != value for key, value in _LLAMA3.items()):
        raise ModelFailure(f"rotary scaling {dict(rope)} is not supported, only Llama 3's")
    return theta, float(rope["factor"])
