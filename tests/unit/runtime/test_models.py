"""Model folders: shapes, tokenizers, weights, and the two tiny models that the repository ships."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rpeg.runtime.errors import DataFailure, ModelFailure
from rpeg.runtime.models.model_source import ModelSource, open_source
from rpeg.runtime.models.shape import parse_shape, read_shape
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Row

MODELS = Path(__file__).parents[3] / "models"
DIGITS = MODELS / "tiny-qwen3-digits"
BASE = {
    "model_type": "qwen2",
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "use one of llama, qwen2, qwen3"),
        ({"use_sliding_window": True}, "use_sliding_window"),
        ({"hidden_act": "gelu"}, "only \\['silu'\\]"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "only Llama 3's"),
        ({"model_type": "llama", "attention_bias": True}, "attention_bias"),
    ],
)
def test_shapes_that_cannot_be_trained_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFailure, match=message):
        parse_shape(BASE | change)


def test_rotary_settings_are_read_from_new_and_old_files() -> None:
    assert parse_shape(BASE | {"rope_theta": 5e5}).rope_theta == 5e5
    new = parse_shape(BASE | {"rope_parameters": {"rope_theta": 7.0, "rope_type": "default"}})
    assert (new.rope_theta, new.rope_factor) == (7.0, None)


def test_defaults_and_counts() -> None:
    shape = parse_shape(BASE)
    assert (shape.kv_heads, shape.head_dim, shape.qkv_bias) == (2, 4, True)
    sizes = [torch.Size(size).numel() for _, size in shape.tensors()]
    assert shape.parameters == sum(sizes) == 2 * 80 + 8 + (3 * 72 + 64 + 16 + 3 * 96)


def test_a_folder_that_is_no_model_says_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFailure, match=r"no config\.json"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelFailure, match="model_type None"):
        read_shape(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ModelFailure, match="num_attention_heads"):
        read_shape(tmp_path)


def test_the_tiny_models_are_what_the_script_writes(tmp_path: Path) -> None:
    script = tmp_path / "make_tiny.py"
    script.write_bytes((MODELS / "make_tiny.py").read_bytes())
    subprocess.run([sys.executable, script], check=True)
    written = [path for path in tmp_path.rglob("*.json")]
    assert len(written) == 6
    for path in written:
        assert path.read_bytes() == (MODELS / path.relative_to(tmp_path)).read_bytes()


def test_digits_tokenizer() -> None:
    tokenizer = Tokenizer(DIGITS)
    assert (tokenizer.eos_ids, tokenizer.pad_id) == ({1}, 0)
    ids = tokenizer.encode_completion("12, 3=(4)")
    assert len(ids) == len("12, 3=(4)") + 1 and ids[-1] == 1
    assert tokenizer.decode(ids) == "12, 3=(4)"
    with pytest.raises(ModelFailure, match="can't encode 'abc'"):
        tokenizer.encode("abc")


def test_byte_tokenizer_takes_any_text() -> None:
    tokenizer = Tokenizer(MODELS / "tiny-qwen2")
    text = "naïve ✓\n\tquestion?  "
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode(text)) == len(text.encode())


def test_end_and_padding_from_any_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((DIGITS / "tokenizer.json").read_bytes())
    with pytest.raises(ModelFailure, match="no eos_token_id"):
        Tokenizer(tmp_path)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 5], "pad_token_id": 1}')
    both = Tokenizer(tmp_path)
    assert (both.eos_ids, both.pad_id) == ({1, 5}, None), "an end that pads must stay samplable"
    (tmp_path / "tokenizer_config.json").write_text('{"pad_token": {"content": "<pad>"}}')
    assert Tokenizer(tmp_path).pad_id == 0


def test_fresh_weights_follow_seed_and_name() -> None:
    one, same, other = ModelSource(DIGITS, 0), ModelSource(DIGITS, 0), ModelSource(DIGITS, 1)
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(one.read(name), same.read(name))
    assert not torch.equal(one.read(name), other.read(name))
    assert not torch.equal(one.read(name), one.read(name.replace("layers.0", "layers.1")))
    assert float(one.read(name).std()) == pytest.approx(0.02, rel=0.05)
    assert one.read("model.norm.weight").eq(1).all()


def test_weights_are_read_from_safetensors_and_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((DIGITS / "config.json").read_bytes())
    norm = torch.arange(128).bfloat16()
    save_file(
        {"model.norm.weight": norm, "model.embed_tokens.weight": torch.zeros(2, 128)},
        tmp_path / "model.safetensors",
    )
    source = open_source(tmp_path, str(tmp_path), seed=0)
    assert torch.equal(source.read("model.norm.weight"), norm.float())
    with pytest.raises(ModelFailure, match=r"\(2, 128\), config.json says \(23, 128\)"):
        source.read("model.embed_tokens.weight")
    with pytest.raises(ModelFailure, match=r"no weight model\.layers"):
        source.read("model.layers.0.mlp.up_proj.weight")


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes((DIGITS / "config.json").read_bytes())
    path = tmp_path / "model.safetensors"
    save_file({"model.norm.weight": torch.ones(128)}, path)
    for damaged in (path.read_bytes()[:-8], bytes(range(256))):
        path.write_bytes(damaged)
        with pytest.raises(ModelFailure, match=r"model\.safetensors is damaged.*again"):
            ModelSource(tmp_path, 0)


def test_a_tokenizer_larger_than_the_model_is_refused(tmp_path: Path) -> None:
    config = json.loads((DIGITS / "config.json").read_bytes()) | {"vocab_size": 22}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "tokenizer.json").write_bytes((DIGITS / "tokenizer.json").read_bytes())
    with pytest.raises(ModelFailure, match=r"has 23 tokens, config\.json says vocab_size 22"):
        _ = ModelSource(tmp_path, 0).tokenizer
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFailure, match=r"tokenizer\.json is not a tokenizer"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not valid JSON"),
        ('{"model_type": "llama", "num_attention_heads": 2}', "config.json has no 'vocab_size'"),
        ("[]", "config.json is not a model configuration"),
    ],
)
def test_bad_configurations_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelFailure, match=message):
        read_shape(tmp_path)


def test_a_prompt_that_cannot_be_encoded_is_named_by_its_place() -> None:
    tokenizer = Tokenizer(DIGITS)
    with pytest.raises(DataFailure, match=r"rows\.jsonl:7: the tokenizer can't encode 'abc'"):
        tokenizer.encode_prompt(Row("abc", place="rows.jsonl:7"))
    with pytest.raises(DataFailure, match=r"rows\.jsonl:8: the prompt is empty"):
        tokenizer.encode_prompt(Row("", place="rows.jsonl:8"))


def test_configurations_of_the_tiny_models_are_sorted_json() -> None:
    for path in MODELS.glob("*/config.json"):
        content = json.loads(path.read_text(encoding="utf-8"))
        assert list(content) == sorted(content)
