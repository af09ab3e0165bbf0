"""Parameters against what the models' owners publish; files in another form are refused."""

import json
from pathlib import Path

import pytest

from rpeg.cost.architecture_files import find, load_architecture, shipped
from rpeg.ir.figures import FigureError


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-7B", 7.615),
        ("Llama 3.1 405B", 405.85),
        ("Mixtral-8x7B", 46.7),
        ("DeepSeek-V3", 671.0),
        ("Qwen3-235B-A22B", 235.1),
        ("GPT-OSS-120B", 116.8),
        ("OPT-1.3B", 1.316),
    ],
)
def test_parameters(name: str, billions: float) -> None:
    assert load_architecture(name).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "billions"), [("DeepSeek-V3", 36.6), ("Qwen3-30B-A3B", 3.04), ("Mixtral-8x7B", 12.75)]
)
def test_weights_a_token_meets(name: str, billions: float) -> None:
    assert load_architecture(name).multiplied / 1e9 == pytest.approx(billions, rel=1e-2)


def test_flops_are_the_counters_of_verl() -> None:
    shape = load_architecture("Qwen2.5-7B")
    tokens, length = 8192.0, 1024.0
    attention = 2 * shape.layers * shape.query_width * tokens * length
    assert shape.forward_flops(tokens, tokens * length) == 2 * shape.multiplied * tokens + attention


def test_latent_attention_caches_ranks() -> None:
    assert load_architecture("DeepSeek-V3").cached_bytes() == 61 * (512 + 64) * 2


def test_hugging_face(tmp_path: Path) -> None:
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 48,
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151936,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "tie_word_embeddings": False,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    known = find("Qwen3-30B-A3B")
    assert known
    assert load_architecture(str(path)).parameters == known.parameters


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\nsource = "s"\nlayer = 3\n', 'x.toml:3: unknown "layer": did you mean'),
        ('name = "x"\nsource = "s"\nlayers = "3"\n', "x.toml:3: layers has another form"),
        ('name = "x"\n', "source is missing"),
    ],
)
def test_files_in_another_form(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(FigureError, match=r"x\.toml") as error:
        load_architecture(str(path))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["x.toml", "config.json"])
def test_files_that_are_no_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(FigureError, match=f"{name}: not UTF-8 text"):
        load_architecture(str(path))


def test_unknown_names() -> None:
    with pytest.raises(FigureError, match='no architecture "Llama9"'):
        load_architecture("Llama9")
    assert len(set(shipped().values())) > 60
