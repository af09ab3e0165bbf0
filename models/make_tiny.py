"""Writes the two tiny models of the examples and tests: shapes and tokenizers, no weights.

    python models/make_tiny.py

A folder without weights is a shape: a run draws its weights from its own seed. The files are the
same on every machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.decoders import Fuse
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Split

HERE = Path(__file__).parent
PAD, EOS = "<pad>", "<eos>"

DIGITS = "0123456789+-*/=(), #:"
"""Everything that the arithmetic and sorting tasks are written in."""


def characters(alphabet: str) -> Tokenizer:
    """One token a character; other characters are refused."""
    vocab = {token: index for index, token in enumerate([PAD, EOS, *alphabet])}
    tokenizer = Tokenizer(WordLevel(vocab))
    tokenizer.pre_tokenizer = Split(Regex("."), behavior="isolated")
    tokenizer.decoder = Fuse()
    return with_specials(tokenizer)


def bytes_() -> Tokenizer:
    """One token a byte: any text, no merges."""
    vocab = {token: index for index, token in enumerate([PAD, EOS, *sorted(ByteLevel.alphabet())])}
    tokenizer = Tokenizer(BPE(vocab, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    return with_specials(tokenizer)


def with_specials(tokenizer: Tokenizer) -> Tokenizer:
    """Marks padding and end as special: decoding leaves them out."""
    tokenizer.add_special_tokens([PAD, EOS])
    return tokenizer


def write(name: str, tokenizer: Tokenizer, **config: Any) -> None:
    """Writes one model folder."""
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    specials = {"pad_token_id": 0, "eos_token_id": 1, "vocab_size": tokenizer.get_vocab_size()}
    dump(folder / "config.json", config | specials)
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": PAD, "eos_token": EOS}
    dump(folder / "tokenizer_config.json", tokens)
    tokenizer.save(str(folder / "tokenizer.json"))


def dump(path: Path, content: dict[str, Any]) -> None:
    """One key a line, sorted."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


COMMON = {
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 512,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}


def main() -> None:
    """Writes both."""
    write(
        "tiny-qwen3-digits",
        characters(DIGITS),
        **COMMON,
        architectures=["Qwen3ForCausalLM"],
        attention_bias=False,
        head_dim=32,
        model_type="qwen3",
        num_key_value_heads=4,
    )
    write(
        "tiny-qwen2",
        bytes_(),
        **COMMON,
        architectures=["Qwen2ForCausalLM"],
        model_type="qwen2",
        num_key_value_heads=2,
    )


if __name__ == "__main__":
    main()
