"""Architectures from files: `architectures/*.toml`, or any Hugging Face model's config.json."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rpeg.cost.architecture import Architecture, Experts, Latent
from rpeg.ir.figures import TOP, FigureError, Figures
from rpeg.resources import resource

KEYS = {
    TOP: (
        *("name", "source", "aliases", "layers", "hidden", "ffn", "heads", "kv_heads"),
        *("head_width", "vocabulary", "positions", "gated", "tied", "sinks"),
    ),
    "experts": ("number", "per_token", "ffn", "shared_ffn", "dense_layers", "every"),
    "latent": ("q_rank", "kv_rank", "nope_width", "rope_width", "value_width"),
}
"""Keys by section. The whole file has one source; its numbers are plain."""


def load_architecture(name: str) -> Architecture:
    """By the name or an alias of a shipped one, or the path of a .toml or config.json.

    Raises:
        FigureError: unknown, unreadable, or a key is missing or unknown.
    """
    path = Path(name)
    if path.suffix == ".json":
        return from_hugging_face(_json(path), path.parent.name or path.stem, str(path))
    if path.suffix == ".toml":
        return _architecture(Figures.read(path, KEYS))
    found = find(name)
    if found is None:
        raise FigureError(f'no architecture "{name}": {_near(name)}')
    return found


def _near(name: str) -> str:
    """Shipped names that are close to one that is none; all of them if none is."""
    known = {plain(shape.name): shape.name for shape in shipped().values()}
    close = [known[near] for near in difflib.get_close_matches(plain(name), known)]
    if close:
        return f"did you mean {' or '.join(close)}? Or name a config.json"
    return f"known are {', '.join(sorted(known.values()))}; or name a config.json"


def find(name: str) -> Architecture | None:
    """The shipped architecture of that name, case and punctuation aside."""
    return shipped().get(plain(name))


def plain(name: str) -> str:
    """A name without its owner, case and punctuation: "Qwen/Qwen3-8B" is "qwen38b"."""
    return re.sub(r"[^a-z0-9.]", "", name.rpartition("/")[2].lower())


@cache
def shipped() -> dict[str, Architecture]:
    """All of `architectures/`, by plain name and alias."""
    found = {}
    for path in sorted(resource("architectures").glob("*.toml")):
        file = Figures.read(path, KEYS)
        shape = _architecture(file)
        for name in (shape.name, *file.section(TOP).get("aliases", ())):
            found[plain(name)] = shape
    return found


def _architecture(file: Figures) -> Architecture:
    file.words(TOP, "source")
    table = _whole_numbers(file, TOP, required=("layers", "hidden", "ffn", "heads", "vocabulary"))
    heads = table["heads"]
    return Architecture(
        name=file.words(TOP, "name"),
        layers=table["layers"],
        hidden=table["hidden"],
        ffn=table["ffn"],
        heads=heads,
        kv_heads=table.get("kv_heads", heads),
        head_width=table.get("head_width", table["hidden"] // heads),
        vocabulary=table["vocabulary"],
        positions=table.get("positions", 0),
        gated=bool(table.get("gated", True)),
        tied=bool(table.get("tied", False)),
        sinks=bool(table.get("sinks", False)),
        experts=Experts(**_experts(file)) if "experts" in file.sections else None,
        latent=Latent(**_latent(file)) if "latent" in file.sections else None,
    )


def _experts(file: Figures) -> dict[str, int]:
    given = _whole_numbers(file, "experts", required=("number", "per_token", "ffn"))
    return {"shared_ffn": 0, "dense_layers": 0, **given}


def _latent(file: Figures) -> dict[str, int]:
    return {"q_rank": 0, **_whole_numbers(file, "latent", required=KEYS["latent"][1:])}


def _whole_numbers(file: Figures, section: str, required: tuple[str, ...]) -> dict[str, int]:
    texts = ("name", "source", "aliases")
    table = {key: value for key, value in file.section(section).items() if key not in texts}
    for key in (*required, *table):
        if not isinstance(table.get(key), int):
            raise file.wrong(section, key, f"{key} = a whole number")
    return table


def _json(path: Path) -> Mapping[str, Any]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FigureError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise FigureError(f"{path}: not UTF-8 text") from error
    except ValueError as error:
        raise FigureError(f"{path}: not JSON: {error}") from error
    if not isinstance(table, dict):
        raise FigureError(f"{path}: not a model's config: write an object")
    inner: dict[str, Any] = table.get("text_config", table)
    return inner


PLAIN_MLP = ("gpt2", "gpt_neox", "gptj", "opt", "bloom", "mpt", "falcon", "phi", "nemotron")
"""Model types of Hugging Face whose MLP has two matrices."""


def from_hugging_face(config: Mapping[str, Any], name: str, place: str) -> Architecture:
    """From the keys of a config.json; `place` names it in errors. Raises FigureError."""

    def one(*keys: str, default: int | None = None) -> int:
        for key in keys:
            if config.get(key) is not None:
                return int(config[key])
        if default is None:
            raise FigureError(f"{place}: no {' or '.join(keys)}: is it a decoder's config.json?")
        return default

    hidden, heads = one("hidden_size", "n_embd", "d_model"), one("num_attention_heads", "n_head")
    kind = str(config.get("model_type", ""))
    return Architecture(
        name=name,
        layers=one("num_hidden_layers", "n_layer"),
        hidden=hidden,
        ffn=one("intermediate_size", "ffn_dim", "n_inner", default=4 * hidden),
        heads=heads,
        kv_heads=one("num_key_value_heads", default=heads),
        head_width=one("head_dim", default=hidden // heads),
        vocabulary=one("vocab_size"),
        gated=kind not in PLAIN_MLP,
        tied=bool(config.get("tie_word_embeddings", kind in ("gpt2", "opt", "bloom"))),
        sinks=kind == "gpt_oss",
        experts=_hf_experts(config),
        latent=_hf_latent(config),
    )


def _hf_experts(config: Mapping[str, Any]) -> Experts | None:
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    number = next((int(config[key]) for key in names if config.get(key)), 0)
    if not number:
        return None
    ffn = int(config.get("moe_intermediate_size") or config["intermediate_size"])
    shared = config.get("shared_expert_intermediate_size")
    if shared is None:
        shared = int(config.get("n_shared_experts") or 0) * ffn
    return Experts(
        number=number,
        per_token=int(config.get("num_experts_per_tok", 1)),
        ffn=ffn,
        shared_ffn=int(shared),
        dense_layers=int(config.get("first_k_dense_replace", 0)),
        every=int(
            config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1
        ),
    )


def _hf_latent(config: Mapping[str, Any]) -> Latent | None:
    if not config.get("kv_lora_rank"):
        return None
    return Latent(
        q_rank=int(config.get("q_lora_rank") or 0),
        kv_rank=int(config["kv_lora_rank"]),
        nope_width=int(config["qk_nope_head_dim"]),
        rope_width=int(config["qk_rope_head_dim"]),
        value_width=int(config["v_head_dim"]),
    )
