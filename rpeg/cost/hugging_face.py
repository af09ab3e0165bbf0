"""Architectures from the config.json of a Hugging Face model, of whatever decoder it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpeg.cost.architecture import Architecture, Experts, Latent
from rpeg.ir.figures import AT_LEAST_0, AT_LEAST_1, FigureError, Range, read_text, up_to

PLAIN_MLP = ("gpt2", "gpt_neox", "gptj", "opt", "bloom", "mpt", "falcon", "phi", "nemotron")
"""Model types whose MLP has two matrices."""

TIED = ("gpt2", "opt", "bloom")
"""Model types whose embeddings are tied unless told otherwise."""

NO_DECODERS = (
    *("albert", "bert", "camembert", "deberta", "deberta-v2", "distilbert", "electra", "ernie"),
    *("modernbert", "mpnet", "nomic_bert", "roberta", "xlm-roberta", "xlm-roberta-xl"),
    *("bart", "longt5", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5"),
    *("clip", "clip_text_model", "siglip", "siglip_text_model", "vit", "wav2vec2", "whisper"),
)
"""Model types that encode, or decode what an encoder read: none is a decoder by itself."""

GATED_MLP = (
    *("llama", "llama4", "llama4_text", "mistral", "mistral3", "ministral", "mixtral", "apertus"),
    *("qwen2", "qwen2_moe", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3", "qwen3_moe", "qwen3_next"),
    *("gemma", "gemma2", "gemma3", "gemma3_text", "phi3", "phimoe", "gpt_oss", "smollm3"),
    *("deepseek_v2", "deepseek_v3", "kimi_k2", "glm", "glm4", "glm4_moe", "minimax", "ernie4_5"),
    *("olmo", "olmo2", "olmo3", "olmoe", "cohere", "cohere2", "granite", "granitemoe", "stablelm"),
    *("internlm2", "internlm3", "baichuan", "minicpm", "minicpm3", "exaone", "exaone4", "dbrx"),
)
"""Model types whose MLP is gated."""

LANGUAGE = "text_config"
"""Where models that also see keep the decoder's keys."""


def from_hugging_face(path: Path) -> Architecture:
    """The shape that a config.json tells; keys that aren't of shapes are passed over.

    Raises:
        FigureError: unreadable, of no decoder, or a key is missing or out of its range; with its
            place.
    """
    config = Config.read(path)
    kind = config.words("model_type")
    if kind in NO_DECODERS:
        text = (
            f'"{kind}" is not a decoder by itself: name the config.json of a causal language model'
        )
        raise config.at("model_type", text)
    hidden = config.one("hidden_size", "n_embd", "d_model")
    heads = config.one("num_attention_heads", "n_head")
    window, full_every = _windows(config)
    return Architecture(
        name=path.parent.name or path.stem,
        layers=config.one("num_hidden_layers", "n_layer"),
        hidden=hidden,
        ffn=config.one("intermediate_size", "ffn_dim", "n_inner", default=4 * hidden),
        heads=heads,
        kv_heads=config.one("num_key_value_heads", within=up_to(heads), default=heads),
        head_width=config.one("head_dim", default=max(hidden // heads, 1)),
        vocabulary=config.one("vocab_size"),
        gated=kind not in PLAIN_MLP,
        tied=config.flag("tie_word_embeddings", default=kind in TIED),
        sinks=kind == "gpt_oss",
        window=window,
        full_every=full_every,
        experts=_experts(config),
        latent=_latent(config),
        notes=tuple(_notes(config, kind)),
    )


def _notes(config: Config, kind: str) -> Iterator[str]:
    """What a reader of a price has to know of the model."""
    if kind not in (*PLAIN_MLP, *GATED_MLP):
        told = f'model_type "{kind}" is not known' if kind else "no model_type"
        yield f"{config.path}: {told}: priced as a causal decoder with gated MLPs"
    if config.quantized:
        text = "quantization_config is passed over: weights have the dtype that the pipeline says"
        yield f"{config.path}: {text}"


def _windows(config: Config) -> tuple[int, int]:
    """The sliding window, and every how manieth layer has none; 0 and 1 where untold."""
    types = config.held.get("layer_types")
    window = config.one("sliding_window", within=AT_LEAST_0, default=0)
    if not isinstance(types, list) or not window:
        return 0, 1
    full = types.count("full_attention")
    return (window, len(types) // full) if 0 < full < len(types) else (0, 1)


def _experts(config: Config) -> Experts | None:
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    number = config.one(*names, within=AT_LEAST_0, default=0)
    if not number:
        return None
    ffn = config.one("moe_intermediate_size", "intermediate_size")
    shared = ffn * config.one("n_shared_experts", within=AT_LEAST_0, default=0)
    return Experts(
        number=number,
        per_token=config.one("num_experts_per_tok", within=up_to(number), default=1),
        ffn=ffn,
        shared_ffn=config.one("shared_expert_intermediate_size", within=AT_LEAST_0, default=shared),
        dense_layers=config.one("first_k_dense_replace", within=AT_LEAST_0, default=0),
        every=config.one("interleave_moe_layer_step", "decoder_sparse_step", default=1),
    )


def _latent(config: Config) -> Latent | None:
    if not config.one("kv_lora_rank", within=AT_LEAST_0, default=0):
        return None
    return Latent(
        q_rank=config.one("q_lora_rank", within=AT_LEAST_0, default=0),
        kv_rank=config.one("kv_lora_rank"),
        nope_width=config.one("qk_nope_head_dim", within=AT_LEAST_0),
        rope_width=config.one("qk_rope_head_dim", within=AT_LEAST_0),
        value_width=config.one("v_head_dim"),
    )


@dataclass(frozen=True)
class Config:
    """The object of one file."""

    path: Path
    text: str
    held: Mapping[str, Any]
    """The decoder's own keys."""
    quantized: bool = False
    """Whether its weights are stored in a narrower form."""

    @classmethod
    def read(cls, path: Path) -> Config:
        """The file at `path`. Raises FigureError."""
        text = read_text(path)
        try:
            table = json.loads(text)
        except json.JSONDecodeError as error:
            place = f"{path}:{error.lineno}:{error.colno}"
            raise FigureError(f"{place}: not JSON: {error.msg}") from error
        if not isinstance(table, dict):
            raise FigureError(f"{path}:1:1: not a model's config: write an object")
        inner = table.get(LANGUAGE, table)
        if not isinstance(inner, dict):
            raise cls(path, text, table).at(LANGUAGE, f"{LANGUAGE} must be an object")
        quantized = any(each.get("quantization_config") is not None for each in (table, inner))
        return cls(path, text, inner, quantized)

    def one(self, *keys: str, within: Range = AT_LEAST_1, default: int | None = None) -> int:
        """The whole number of the first key that has one; null is as good as absent.

        Raises FigureError.
        """
        key = next((name for name in keys if self.held.get(name) is not None), None)
        if key is not None:
            return self._number(key, within)
        if default is None:
            text = f"{' or '.join(keys)} is missing: is it a decoder's config.json?"
            raise self.at(keys[0], text)
        return default

    def _number(self, key: str, within: Range) -> int:
        value = self.held[key]
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not (whole or (isinstance(value, float) and value.is_integer())):
            raise self.at(key, f"{key} must be a whole number, not {json.dumps(value)}")
        if (bounds := within.problem(value)) is not None:
            raise self.at(key, f"{key} must be {bounds}, not {value}")
        return int(value)

    def flag(self, key: str, default: bool) -> bool:
        """Whether a key is set. Raises FigureError."""
        value = self.held.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.at(key, f"{key} must be true or false, not {json.dumps(value)}")
        return default if value is None else value

    def words(self, key: str) -> str:
        """A text; empty where there is none. Raises FigureError."""
        value = self.held.get(key)
        if value is not None and not isinstance(value, str):
            raise self.at(key, f"{key} must be a text, not {json.dumps(value)}")
        return value or ""

    def at(self, key: str, text: str) -> FigureError:
        """The error of a key, at its place; at the file's head where it lacks the key."""
        start = self.text.find(f'"{LANGUAGE}"') if key != LANGUAGE else 0
        found = re.compile(rf'"{re.escape(key)}"\s*:').search(self.text, max(start, 0))
        before = self.text[: found.start() if found else 0]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        return FigureError(f"{self.path}:{line}:{column}: {text}")
