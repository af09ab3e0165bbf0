"""What records say of machines, layouts and engines in other words than ours."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.generation import Engine, Requests, Serving, concurrency, serving_memory
from rpeg.cost.hardware import load_machine
from rpeg.cost.hugging_face import from_hugging_face
from rpeg.cost.memory import Keeping, training_memory
from rpeg.cost.plans import FULL, SELECTIVE, Plans
from rpeg.cost.training import step_time
from rpeg.cost.validation import generate
from rpeg.cost.validation.eras import CANDIDATES, COMMON, MANY, Timed, fit
from rpeg.cost.validation.facts import architecture, attention_share, precision, run, shard
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.predictions import outcomes, timings
from rpeg.cost.validation.rows import Row, Unknown, read_rows
from rpeg.cost.validation.scores import group
from rpeg.cost.validation.validate import SHIPPED_ROWS


def row(**fields: Any) -> Row:
    """A training step of 70B parameters."""
    usual = {
        "hardware": {"gpu": "H100", "count": 64, "gpus_per_node": 8},
        "model": {"name": "Llama3-70B", "layers": 80, "hidden": 8192},
        "parallelism": {"tp": 1},
        "batch": {"global": 128, "micro": 1},
        "lengths": {"seq": 8192},
        "framework": "NeMo",
    }
    told = {**usual, **fields}
    return Row("one", str(told.pop("kind", "train")), told)


def served(**fields: Any) -> Row:
    return row(kind="generate", lengths={"prompt": 128, "response": 128}, **fields)


@pytest.mark.parametrize(
    ("gpu", "device"),
    [
        ("NVIDIA H100-SXM5-80GB", "h100"),
        ("GB300 NVL72", "gb300"),
        ("H800", "h800"),
        ("NVIDIA A100-SXM4-40GB", "a100_40gb"),
        ("A100 80GB", "a100"),
        ("L40S", "l40s"),
        ("AMD Instinct MI325X", "mi325x"),
        ("H20-3e", "h20"),
    ],
)
def test_names_of_gpus(gpu: str, device: str) -> None:
    assert machine(row(hardware={"gpu": gpu})).device == load_machine(device).device


def test_a_card_isnt_the_module_of_its_name() -> None:
    module, card = (machine(row(hardware={"gpu": gpu})) for gpu in ("H100 SXM", "H100 PCIe"))
    assert card.flops["bf16"] == 756e12
    assert card.flops["fp8"] / module.flops["fp8"] == pytest.approx(756e12 / module.flops["bf16"])
    assert card.link.bytes_per_s == 64e9
    assert not card.link.reduces_in_switch


def test_a_limit_of_power_slows_clocks_by_its_cube_root() -> None:
    free, limited = (machine(row(hardware={"gpu": gpu})) for gpu in ("H100", "H100, 500 W"))
    assert limited.flops["bf16"] == pytest.approx(free.flops["bf16"] * (500 / 700) ** (1 / 3))
    assert limited.hbm_bytes_per_s == free.hbm_bytes_per_s
    assert machine(row(hardware={"gpu": "H100, 700 W"})) == free


def test_networks_of_clouds_start_slowly() -> None:
    slow = machine(row(hardware={"gpu": "H100", "system": "Google Cloud A3 Mega"})).nic.latency_s
    assert slow > 5 * machine(row()).nic.latency_s


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("float8", "fp8"),
        ("FP8-CS", "fp8"),
        ("BF16 (KV cache FP8)", "bf16"),
        ("FP8 (weights+KV cache FP8)", "fp8"),
        ("NVFP4", "fp4"),
        ("bf16-true", "bf16"),
    ],
)
def test_names_of_precisions(told: str, kind: str) -> None:
    assert precision(row(precision=told)) == kind


@pytest.mark.parametrize(
    ("zero", "cp", "ranks"),
    [
        ("FSDP size 64", 1, 64),
        ("FSDP 8", 2, 16),
        ("FSDP2", 1, math.inf),
        ("HSDP", 1, 8),
        ("FSDP+DP", 1, 32),
        (None, 1, math.inf),
    ],
)
def test_ranks_that_split_weights(zero: str | None, cp: int, ranks: float) -> None:
    one = row(parallelism={"zero": zero, "cp": cp})
    assert shard(one, architecture(one), machine(one)) == ranks


def test_zero_alone_is_a_layout() -> None:
    assert run(row(parallelism={"zero": "HSDP"})).plans.zero == 3
    with pytest.raises(Unknown, match=r"no parallelism\.tp"):
        run(row(parallelism={"cp": 1}))


def test_nodes_and_tokens_stand_for_gpus_and_sequences() -> None:
    told = run(row())
    nodes = run(row(hardware={"gpu": "H100", "nodes": 8, "gpus_per_node": 8}))
    tokens = run(row(batch={"global_tokens": 128 * 8192, "micro": 1}))
    assert nodes.gpus == told.gpus
    assert tokens.plans.batch == told.plans.batch


@pytest.mark.parametrize("unit", ["GB", "GiB/GPU", "GB per GPU"])
def test_memory_in_other_words(unit: str) -> None:
    one = row(measured={"peak_memory_gb": {"value": 60.0, "unit": unit}})
    (found,) = outcomes(one, {}, None)
    assert found.predicted is not None
    assert group(found) == "peak memory"


def test_copies_of_shards_gather_less_and_hold_more() -> None:
    shape, hardware = load_architecture("llama3-8b"), load_machine("h100")
    each = {"dp": 1024, "batch": 1024, "seq": 2048, "zero": 3}
    whole, copied = Plans.of(**each), Plans.of(**each, shard=8)
    assert step_time(shape, hardware, copied).total < step_time(shape, hardware, whole).total
    assert training_memory(shape, copied).weights > training_memory(shape, whole).weights
    assert Plans.of(**{**each, "zero": 1}, shard=8).shards == 1024


def test_a_mixture_is_known_by_its_shape() -> None:
    told = {"name": "a DeepSeek R1", "layers": 61, "hidden": 7168, "experts": 256, "topk": 8}
    assert architecture(row(model=told)).latent is not None
    assert architecture(row(model={**told, "experts": 64})).latent is None


@pytest.mark.parametrize("name", ["Nemotron-H-56B", "Nemotron_3_Nano"])
def test_a_state_is_held_instead_of_a_cache(name: str) -> None:
    shape, hardware = load_architecture(name), load_machine("h100")
    usual = replace(shape, state_space=None)
    assert shape.cached_bytes() < 0.15 * usual.cached_bytes()
    serving, engine = Serving.of(shape, hardware, 8), Engine()
    short, long = (float(serving.step(64, context, engine)) for context in (100, 10_000))
    assert long < 1.5 * short
    stateless = replace(serving, shape=replace(shape, state_space=_tiny(shape)))
    assert short > float(stateless.step(64, 100, engine))
    plans = Plans.of(dp=8, batch=8, seq=8192)
    assert training_memory(shape, plans).activations > 0
    assert step_time(shape, hardware, plans).total > 0


def _tiny(shape: Any) -> Any:
    """Its state spaces with states of one element."""
    return replace(shape.state_space, state_width=1)


def test_states_are_known_by_their_shape() -> None:
    told = {"name": "mine", "layers": 118, "hidden": 8192, "extra": {"hybrid": True}}
    assert architecture(row(model=told)).state_space is not None
    with pytest.raises(Unknown, match="state-space"):
        architecture(row(model={**told, "layers": 117}))


def test_deepep_spreads_experts_wherever_it_runs() -> None:
    model = {"name": "GPT-OSS 20B", "layers": 24, "hidden": 2880, "experts": 32, "topk": 4}
    told = row(model=model, dispatcher="deepep", framework="NeMo AutoModel, TE + FlexAttn")
    assert run(told).plans.ep == 32
    assert run(row(model=model)).plans.ep == 1
    assert architecture(row(model=model)).sinks
    assert not architecture(told).sinks


def test_experts_of_megatron_are_split_like_the_rest_unless_told() -> None:
    model = {"name": "Grok1-314B", "layers": 64, "hidden": 6144, "experts": 8, "topk": 2}
    layout = {"tp": 4, "pp": 8, "ep": 8}
    assert run(row(model=model, parallelism=layout)).plans.etp == 4
    assert run(row(model=model, parallelism={**layout, "etp": 1})).plans.etp == 1
    bridge = row(model=model, parallelism=layout, framework="Megatron-Bridge")
    assert run(bridge).plans.etp == 1


def test_pytorchs_attention_is_of_the_second_generation() -> None:
    share = attention_share(row(framework="torchtitan"), machine(row()))
    assert share < attention_share(row(), machine(row())) == 1.0


def test_windows() -> None:
    shape = load_architecture("gpt-oss-20b")
    tokens = np.array([64.0, 128.0, 8192.0])
    np.testing.assert_allclose(shape.attended(tokens), [64, 128, (8192 + 128) / 2])
    w, length = 128, 8192
    pairs = sum(min(place + 1, w) for place in range(length)) / sum(range(1, length + 1))
    assert shape.attended_share(tokens)[2] == pytest.approx((1 + pairs) / 2, rel=0.01)
    assert load_architecture("llama3-8b").attended_share(tokens).tolist() == [1.0, 1.0, 1.0]


def test_windows_of_a_config(tmp_path: Any) -> None:
    path = tmp_path / "config.json"
    base = '"num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 9'
    kinds = '["sliding_attention", "full_attention", "sliding_attention", "full_attention"]'
    path.write_text(f'{{{base}, "sliding_window": 128, "layer_types": {kinds}}}')
    assert (from_hugging_face(path).window, from_hugging_face(path).full_every) == (128, 2)
    path.write_text(f'{{{base}, "sliding_window": 128}}')
    assert from_hugging_face(path).window == 0


def test_attention_of_each_gpu_splits_the_latent_cache() -> None:
    shape, hardware = load_architecture("deepseek-v3"), load_machine("b200")
    engine, requests = Engine(), Requests.of(3000, 1024, 1024)
    copied = Serving.of(shape, hardware, 4, precision="fp4")
    own = replace(copied, attention_dp=True)
    assert own.cached == pytest.approx(copied.cached / 4)
    assert own.weights > copied.weights
    assert concurrency(own, requests, engine) > 2 * concurrency(copied, requests, engine)
    assert serving_memory(own, requests, engine).total < hardware.memory_bytes


@pytest.mark.parametrize(
    ("layout", "locator", "own"),
    [
        ({"tp": 4, "ep": 4}, "", True),
        ({"tp": 4}, "", False),
        ({"tp": 4}, "B200 DEP4 (FP4)", True),
        ({"tp": 4, "attention_dp": True}, "", True),
        ({"tp": 1, "ep": 1}, "", False),
    ],
)
def test_who_attends_for_sequences_of_its_own(layout: Any, locator: str, own: bool) -> None:
    model = {"name": "DeepSeek-V3", "layers": 61, "hidden": 7168}
    one = served(model=model, parallelism=layout, source={"locator": locator})
    assert generate.attention_dp(one, architecture(one), layout["tp"]) is own


def test_engines() -> None:
    old, new = (served(framework=f"vLLM {version}") for version in ("0.5.4", "0.6.0"))
    assert (generate.era(old), generate.era(new)) == ("vllm-0.5 bf16", "vllm bf16")
    assert generate.engine(old, 0.0).sequence_s > generate.engine(new, 0.0).sequence_s == 0.0
    assert generate.engine(new, 0.0).most_sequences == 256


@pytest.mark.parametrize("batch", [{"global": 8}, {"concurrency": 8}])
@pytest.mark.parametrize("name", ["avg_latency", "mean_latency_ms", "e2e_latency"])
def test_latencies(batch: dict[str, int], name: str) -> None:
    unit = "ms" if name.endswith("ms") else "s"
    one = served(batch=batch, parallelism={"tp": 8}, measured={name: {"value": 2.0, "unit": unit}})
    (found,) = outcomes(one, {}, timings([one])["one"])
    assert found.predicted is not None


def test_a_pipeline_of_pytorch_holds_its_weights_whole() -> None:
    shape = load_architecture("llama3.1-405b")
    layout = {"tp": 8, "pp": 8, "dp": 8, "batch": 64, "seq": 8192, "zero": 3, "recompute": FULL}
    split, whole = (
        training_memory(shape, Plans.of(**layout), Keeping(whole_in_pipeline=held))
        for held in (False, True)
    )
    rank = shape.parameters / 64
    assert 5 * rank < float(whole.total - split.total) < 6 * rank * 1.1


def test_selected_activations() -> None:
    shape = load_architecture("llama3-8b")
    plans = Plans.of(dp=8, batch=16, micro=2, seq=8192, zero=3, recompute=SELECTIVE)
    some, rest = (training_memory(shape, plans, Keeping(selected=s)) for s in (0.37, 1.0))
    assert some.activations == pytest.approx(0.37 * rest.activations)


def test_an_engine_with_many_rows_doesnt_stand_for_all() -> None:
    def timed(era: str, slow: float) -> Timed:
        return Timed("generate", era, era, slow, np.ones(len(CANDIDATES["generate"])))

    few = [timed("a", 1.0)] * 100 + [timed("b", 1.3), timed("c", 1.4)]
    assert fit(few)["generate", COMMON].slowdown == pytest.approx(1.3)
    many = [timed(f"e{i}", 1.3) for i in range(MANY)] + [timed("a", 1.0)] * 100
    assert fit(many)["generate", COMMON].slowdown == pytest.approx(1.0)


ODD = (None, 0, -1, "weird", "8 GPUs", True, [1], {"a": 1}, 1e9, float("inf"))


@pytest.mark.parametrize("kind", ["train", "generate", "rl_step", "collective", "memory"])
def test_odd_fields_of_every_kind_are_no_errors(kind: str) -> None:
    """A table or field that is missing, null or something else: a prediction, or a reason."""
    whole = [one for one in read_rows(SHIPPED_ROWS) if one.kind == kind]
    for one in whole[:: len(whole) // 3][:3]:
        for name, table in one.fields.items():
            inner = list(table) if isinstance(table, dict) and name != "measured" else []
            changed = [{**table, key: odd} for key in inner for odd in ODD]
            changed += [{k: v for k, v in table.items() if k != key} for key in inner]
            for value in (*changed, *ODD):
                odd_row = Row(one.id, kind, {**one.fields, name: value})
                for outcome in outcomes(odd_row, {}, timings([odd_row]).get(one.id)):
                    assert outcome.reason or (outcome.predicted and outcome.predicted > 0)
