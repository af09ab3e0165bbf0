"""Parameters against what the models' owners publish; files in another form are refused."""

import json
import math
import re
from pathlib import Path

import pytest

from rpeg.cost.architecture_files import find, load_architecture, shipped
from rpeg.divisibility import Counts
from rpeg.ir.figures import FigureError
from rpeg.resources import resource


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
        ("Nemotron-H 56B", 56.3),
        ("Nemotron_3_Nano", 31.58),
        ("Nemotron_3_Super", 120.6),
    ],
)
def test_parameters(name: str, billions: float) -> None:
    assert load_architecture(name).parameters / 1e9 == pytest.approx(billions, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "billions"), [("DeepSeek-V3", 36.6), ("Qwen3-30B-A3B", 3.04), ("Mixtral-8x7B", 12.75)]
)
def test_weights_a_token_meets(name: str, billions: float) -> None:
    assert load_architecture(name).multiplied / 1e9 == pytest.approx(billions, rel=1e-2)


def test_flops_of_state_spaces_are_the_owners() -> None:
    """NVIDIA's count for Nemotron-H 56B: 2.816e15 a sequence, attention not halved."""
    shape = load_architecture("Nemotron-H-56B")
    assert 3 * shape.forward_flops(8192, 2 * 8192**2) == pytest.approx(2.816e15, rel=5e-3)


def test_flops_are_the_counters_of_verl() -> None:
    shape = load_architecture("Qwen2.5-7B")
    tokens, length = 8192.0, 1024.0
    attention = 2 * shape.layers * shape.query_width * tokens * length
    assert shape.forward_flops(tokens, tokens * length) == 2 * shape.multiplied * tokens + attention


def test_latent_attention_caches_ranks() -> None:
    assert load_architecture("DeepSeek-V3").cached_bytes() == 61 * (512 + 64) * 2


CONFIG = {
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


def config(folder: Path, **changed: object) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG | changed, indent=2))
    return str(path)


def test_hugging_face(tmp_path: Path) -> None:
    known = find("Qwen3-30B-A3B")
    assert known
    assert load_architecture(config(tmp_path)).parameters == known.parameters


@pytest.mark.parametrize("key", CONFIG)
def test_every_key_of_a_config_is_held_to_its_range(tmp_path: Path, key: str) -> None:
    line = list(CONFIG).index(key) + 2
    for value in (-1, 0.5, math.nan, 10**30, [4], {}, *(["many"] if key != "model_type" else ())):
        with pytest.raises(FigureError, match=rf"config\.json:{line}:3: {key} must be"):
            load_architecture(config(tmp_path, **{key: value}))


@pytest.mark.parametrize("kind", ["bert", "t5", "xlm-roberta"])
def test_a_model_that_is_no_decoder(tmp_path: Path, kind: str) -> None:
    with pytest.raises(FigureError, match=rf'config.json:2:3: "{kind}" is not a decoder by itself'):
        load_architecture(config(tmp_path, model_type=kind))


def test_what_of_a_config_is_not_priced(tmp_path: Path) -> None:
    assert load_architecture(config(tmp_path)).notes == ()
    found = load_architecture(config(tmp_path, model_type="foobar", quantization_config={"b": 4}))
    assert [note.partition("config.json: ")[2] for note in found.notes] == [
        'model_type "foobar" is not known: priced as a causal decoder with gated MLPs',
        "quantization_config is passed over: weights have the dtype that the pipeline says",
    ]


def test_keys_that_a_config_lacks(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"text_config": {"hidden_size": 8}}))
    with pytest.raises(FigureError, match=r"config.json:1:1: num_attention_heads or n_head"):
        load_architecture(str(path))
    path.write_text('{"hidden_size": 8,\n 3}')
    with pytest.raises(FigureError, match=r"config.json:2:2: not JSON: Expecting"):
        load_architecture(str(path))


@pytest.mark.parametrize("heads", ["32", 0, True, 32.5])
def test_heads_that_are_no_count_split_no_model(heads: object) -> None:
    with pytest.raises(TypeError, match="heads must be a whole number"):
        Counts.of_config(CONFIG | {"num_attention_heads": heads})


MIXTURE = resource("architectures/deepseek-v3.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("key", re.findall(r"^(\w+) = \d", MIXTURE, re.MULTILINE))
def test_every_key_of_a_file_is_held_to_its_range(tmp_path: Path, key: str) -> None:
    path = tmp_path / "x.toml"
    told = rf"x\.toml:\d+:1: {key} (must be|has another form)"
    for value in ("-1", "0.5", "nan", "10000000000", '"many"', "[4]"):
        path.write_text(re.sub(rf"^{key} = \d+", f"{key} = {value}", MIXTURE, count=1, flags=re.M))
        with pytest.raises(FigureError, match=told):
            load_architecture(str(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\nsource = "s"\nlayer = 3\n', 'x.toml:3:1: unknown "layer": did you mean'),
        ('name = "x"\nsource = "s"\nlayers = "3"\n', "x.toml:3:1: layers has another form"),
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


def test_a_folder_of_hugging_face_is_its_config() -> None:
    folder = resource("models/tiny-qwen2")
    assert load_architecture(str(folder)) == load_architecture(str(folder / "config.json"))
