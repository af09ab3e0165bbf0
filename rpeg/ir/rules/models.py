"""Rules about two models at once: trunks that share weights, tokenizers that share tokens.

They hold what is known of a source without loading it: a model's folder that is here. Sources
elsewhere (`hf:`, `run:`) are taken to fit.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, StringAttr, SymbolRefAttr
from xdsl.ir import Operation, SSAValue

from rpeg.ir.declared import declaration
from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.sources import location_of
from rpeg.ir.types.flow import symbol_text
from rpeg.ir.types.values import TrajectoriesType, WeightsType
from rpeg.resources import found

SHAPE = (
    "model_type",
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
"""Fields of `config.json` that weights can be copied across only where they are equal."""


def like_trunks(op: Operation, giver: str, taker: str) -> Iterator[Violation]:
    """Weights go from one model to another only where both have the same trunk and heads."""
    gives, takes = _role(op, giver), _role(op, taker)
    if gives != takes and (gives, takes) != ("actor_critic", "policy"):
        text = f"`{giver}` is a {gives} model and `{taker}` a {takes} model: they have other heads"
        yield Violation("unlike-trunks", f"{text}; declare both alike")
        return
    mine, theirs = _config(op, giver), _config(op, taker)
    other = next((f for f in SHAPE if mine and theirs and mine.get(f) != theirs.get(f)), None)
    if other is not None:
        yield Violation(
            "unlike-trunks",
            f"`{giver}` has {other} = {mine.get(other)} and `{taker}` {theirs.get(other)}: weights "
            f"of one do not fit the other; start `{taker}` from {giver}@0",
        )


def enough_layers(model: Operation, name: str) -> Iterator[Violation]:
    """A trunk shares no more layers than it has."""
    shared, layers = model.properties.get("shared_layers"), _config(model, name).get(SHAPE[1])
    if isinstance(shared, IntegerAttr) and isinstance(layers, int) and shared.value.data > layers:
        text = f"shared_layers={shared.value.data}: the trunk of `{name}` has {layers} layers"
        yield Violation("unlike-trunks", text, violations.setting("shared_layers"))


def same_tokens(op: Operation, weights: SSAValue, y: SSAValue) -> Iterator[Violation]:
    """A model reads the tokens that another wrote: both number them alike."""
    if not (isinstance(weights.type, WeightsType) and isinstance(y.type, TrajectoriesType)):
        return
    reader, writer = weights.type.owner, y.type.owner
    if _root(op, reader) == _root(op, writer):
        return
    mine, theirs = _tokenizer(op, reader), _tokenizer(op, writer)
    if mine is not None and theirs is not None and mine != theirs:
        yield Violation(
            "unlike-tokenizers",
            f"`{reader}` reads the tokens of `{writer}`, and its tokenizer numbers them "
            f"differently: take a model with the tokenizer of {_root(op, writer)}",
            violations.operand(0),
        )


def _role(op: Operation, name: str) -> str:
    model = declaration(op, name)
    held = model.properties.get("form") if model is not None else None
    return held.data if isinstance(held, StringAttr) else ""


def _root(op: Operation, name: str) -> str | None:
    """The source outside the file that a model's weights start from."""
    seen: set[str] = set()
    while name not in seen:
        seen.add(name)
        model = declaration(op, name)
        match model.properties.get("source") if model is not None else None:
            case SymbolRefAttr() as held:
                name = symbol_text(held)
            case StringAttr() as held:
                return held.data
            case _:
                return None
    return None


def _folder(op: Operation, name: str) -> Path | None:
    """The folder of a model, if its source is a path that is here."""
    uri, at = _root(op, name), location_of(op)
    if uri is None or ":" in uri:
        return None
    folder = found(Path(at.filename.data).parent if at is not None else Path(), uri)
    return folder if folder.is_dir() else None


def _config(op: Operation, name: str) -> Mapping[str, Any]:
    """`config.json` of a model; empty where it is not known, which its launch tells."""
    folder = _folder(op, name)
    try:
        held = json.loads((folder / "config.json").read_bytes()) if folder is not None else {}
    except (OSError, ValueError):
        return {}
    return held if isinstance(held, dict) else {}


def _tokenizer(op: Operation, name: str) -> str | None:
    """A digest of a model's tokenizer, if it is known."""
    folder = _folder(op, name)
    path = folder / "tokenizer.json" if folder is not None else None
    if path is None or not path.is_file():
        return None
    state = path.stat()
    return _digest(path, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _digest(path: Path, _changed: int, _size: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
