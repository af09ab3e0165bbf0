"""The job that both sides run: one GRPO step of a small Qwen3. Imports neither side.

128 completions of 64 tokens are 8192 tokens per step; the model has 3.97 M parameters.
"""

from __future__ import annotations

import json
import string
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

VOCAB = 128
CONFIG: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "tie_word_embeddings": True,
    "attention_bias": False,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "pad_token_id": 0,
}
LEARNING_RATE = 1e-4
CLIP_GRADIENT = 1.0


@dataclass(frozen=True)
class Job:
    """Sizes of one step, and the precision."""

    prompts: int = 16
    completions: int = 8
    tokens: int = 64
    steps: int = 6
    """Steps to be ready for: every round asks for one, after one to warm up."""
    dtype: str = "fp32"

    @staticmethod
    def read(text: str) -> Job:
        """From what `write` gave."""
        return Job(**json.loads(text))

    def write(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    def texts(self) -> list[str]:
        """The prompts: 5 to 7 characters each, no two the same."""
        letters = string.ascii_letters
        return [f"{letters[k % 52]}{k:03d}" + "+" * (k % 3) + "=" for k in range(self.prompts)]


def reward(text: str) -> float:
    """A number in [0, 1) that differs among completions: every group has something to learn."""
    return sum((place + 1) * ord(letter) for place, letter in enumerate(text)) % 997 / 997


def write_model(folder: Path, *, end: int) -> Path:
    """The model's folder without weights; `end` is the id that ends a completion.

    An id that the vocabulary does not hold ends none: every completion has its full length.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    letters = [chr(33 + k) for k in range(94)] + [chr(192 + k) for k in range(VOCAB - 96)]
    vocab = {token: k for k, token in enumerate(["<pad>", "<eos>", *letters])}
    tokenizer = Tokenizer(models.WordLevel(vocab))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<pad>"])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>"}
    if end < VOCAB:
        names["eos_token"] = "<eos>"
    (folder / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    config = json.dumps(CONFIG | {"eos_token_id": end})
    (folder / "config.json").write_text(config, encoding="utf-8")
    return folder
