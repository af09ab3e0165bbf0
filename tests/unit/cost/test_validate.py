"""The command: rows in, tables and JSON out; constants are fitted without the source."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rpeg.cost.layers import CAPTURED, EAGER, FUSED, LOOPED, Host
from rpeg.cost.plans import NO_RECOMPUTE, SELECTIVE
from rpeg.cost.validation import megatron
from rpeg.cost.validation.eras import (
    CANDIDATES,
    COMMON,
    DEFAULTS,
    FEWEST,
    Era,
    Timed,
    as_toml,
    chosen,
    fit,
)
from rpeg.cost.validation.facts import launches
from rpeg.cost.validation.machines import machine
from rpeg.cost.validation.names import common
from rpeg.cost.validation.predictions import outcomes, timing, timings
from rpeg.cost.validation.rows import Row, RowError, Unknown, publisher, read_rows
from rpeg.cost.validation.scores import reasons, score
from rpeg.resources import resource
from rpeg.tools.rpeg import main

MODEL: dict[str, Any] = {"name": "Llama3-8B", "layers": 32, "hidden": 4096, "vocab": None}
STEP: dict[str, Any] = {
    "id": "one",
    "kind": "train",
    "source": {"url": "https://github.com/owner/repository/blob/main/table.md"},
    "hardware": {"gpu": "H100", "gpu_class": "H100", "count": 64, "gpus_per_node": 8},
    "model": MODEL,
    "parallelism": {"tp": 1, "pp": 1, "dp": 64},
    "batch": {"global": 512, "micro": 1},
    "lengths": {"seq": 8192},
    "precision": "BF16",
    "framework": "NeMo",
    "measured": {
        "step_time": {"value": 6.5, "unit": "s"},
        "tokens_per_s_per_gpu": {"value": 10083, "unit": "tokens/s/GPU"},
        "loss": {"value": 1.0, "unit": "nats"},
    },
}
ALL_REDUCE: dict[str, Any] = {
    "kind": "collective",
    "operation": "all_reduce",
    "message_bytes": 2**20,
    "library": "NCCL",
}


def row(**changes: Any) -> Row:
    fields = {**STEP, **changes}
    return Row(fields["id"], fields["kind"], fields)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"measured": {"step_time": {"value": -1, "unit": "s"}}}, "no measured value that is"),
        ({"measured": {"step_time": {"value": "ten", "unit": "s"}}}, "no measured value that is"),
        ({"measured": {"step_time": "ten"}}, "no measured value that is"),
        ({"measured": {"step_time": {"unit": "s"}}}, "no measured value that is"),
        ({"measured": {}}, "no measured"),
        ({"kind": ""}, "no kind"),
        ({"measured": {"step_time": {"value": 6.5, "unit": "parsec"}}}, 'unit "parsec"'),
        ({"measured": {"mfu": {"value": 38.0}}}, "no unit"),
        ({"parallelism": {"tp": 0}}, "parallelism.tp 0 is not a whole number of at least 1"),
        ({"parallelism": {"tp": -1}}, "parallelism.tp -1 is not a whole number of at least 1"),
        ({"parallelism": {"tp": 2.5}}, "parallelism.tp 2.5 is not a whole number of at least 1"),
        ({"parallelism": {"tp": True}}, "parallelism.tp true is not a whole number of at least 1"),
        ({"parallelism": {"tp": 1, "tpp": 2}}, "unknown parallelism.tpp"),
        ({"parallelism": {"tp": 1, "vppp": 2}}, "unknown parallelism.vppp: did you mean vpp?"),
        ({"parallelism": "tp8"}, 'parallelism "tp8" is not an object'),
        ({"model": {**MODEL, "layers": -4}}, "model.layers -4 is not a whole number of at least 1"),
        ({"model": {**MODEL, "heads": "x"}}, 'model.heads "x" is not a whole number of at least 1'),
        ({"model": {**MODEL, "head": 32}}, "unknown model.head: did you mean heads?"),
        ({"hardware": {"machine": 3, "count": 64}}, "hardware.machine 3 is not a text"),
        ({"batch": {"global": 512, "micro": 0}}, "batch.micro 0 is not a number above 0"),
        ({"lengths": {"seq": float("inf")}}, "lengths.seq Infinity is not a number above 0"),
        ({"staleness": "k"}, 'staleness "k" is not a whole number of at least 0'),
        ({**ALL_REDUCE, "message_bytes": -8}, "message_bytes -8 is not a number above 0"),
        ({"precision": "int3"}, 'precision "int3" is not bf16, fp16, fp8 or fp4'),
        ({"precision": 16}, "precision 16 is not bf16, fp16, fp8 or fp4"),
        (
            {"recipe_values": {"vllm_gpu_memory_utilization": 90}},
            "recipe_values.vllm_gpu_memory_utilization 90 is not a number above 0 and at most 1",
        ),
        ({"parallelism": {"tp": 3}}, "parallelism.tp doesn't divide the heads"),
        ({"parallelism": {"tp": 8, "pp": 4, "dp": 3}}, "tp·pp·cp·dp doesn't divide the number"),
    ],
)
def test_what_cannot_be_predicted_is_told(changes: dict[str, Any], why: str) -> None:
    one = row(**changes)
    found = outcomes(one, {}, timings([one]).get(one.id))
    assert found
    assert all(o.predicted is None and o.reason.startswith(why) for o in found)
    assert sum(reasons(found).values()) == 1
    json.dumps([o.as_dict() for o in found], allow_nan=False)


def test_remarks_and_texts_that_begin_with_a_number() -> None:
    told = {
        "model": {**MODEL, "experts": 0, "params": "8.0B"},
        "hardware": {**STEP["hardware"], "notes": "two racks"},
        "batch": {"global": 512, "micro": "1 (of each rank)"},
    }
    np.testing.assert_array_equal(timing(row(**told)).predicted, timing(row()).predicted)


def test_units_of_a_time_in_other_words() -> None:
    for unit, value in (("s/step", 6.5), ("seconds", 6.5), ("ms", 6500), ("milliseconds", 6500)):
        assert timing(row(measured={"step_time": {"value": value, "unit": unit}})).measured == 6.5


@pytest.mark.parametrize(
    ("changes", "name", "own", "factors"),
    [
        ({}, "step_time", "s", {"ms": 1e3, "us": 1e6, "min": 1 / 60, "hours": 1 / 3600, "": 1}),
        ({}, "step_time_ms", "ms", {"": 1, "s": 1e-3}),
        ({}, "tokens_per_s_per_gpu", "tokens/s/GPU", {"tok/s": 1, "tokens per hour": 3600, "": 1}),
        ({}, "tokens_per_s", "tokens/s (all GPUs)", {"total tokens/s": 1, "tokens/s/GPU": 1 / 64}),
        (
            {},
            "model_tflops_per_gpu",
            "TFLOP/s/GPU",
            {"TFLOPS": 1, "GFLOPs/s": 1e3, "PFLOP/s": 1e-3},
        ),
        ({}, "mfu", "fraction", {"% of 989": 100}),
        ({}, "days_300B_tokens", "days", {"h": 24, "": 1}),
        ({}, "peak_memory", "bytes", {"GB": 1e-9, "GiB per GPU": 2**-30, "MiB": 2**-20}),
        (ALL_REDUCE, "latency", "us", {"ms": 1e-3, "µs": 1, "ns (not labelled)": 1e3, "": 1}),
        (ALL_REDUCE, "busbw", "GB/s", {"Gb/s": 8, "Gbps": 8, "GBps": 1, "MiB/s": 1e9 / 2**20}),
    ],
)
def test_units(changes: dict[str, Any], name: str, own: str, factors: dict[str, float]) -> None:
    """Whatever unit a source prints, the model means the same; in none of the kind, nothing."""

    def predicted(unit: str) -> tuple[float | None, str]:
        one = row(**changes, measured={name: {"value": 110.0, "unit": unit}})
        (found,) = outcomes(one, {}, timings([one]).get(one.id))
        return found.predicted, found.reason

    expected, reason = predicted(own)
    assert expected, reason
    for unit, factor in factors.items():
        assert predicted(unit)[0] == pytest.approx(factor * expected), unit
    for unit in ("parsec", "W"):
        assert predicted(unit) == (None, f'unit "{unit}"')


@pytest.mark.parametrize("unit", ["samples/s/GPU", "tokens/s", "samples", "ms", "GB/s"])
def test_a_unit_of_another_quantity(unit: str) -> None:
    one = row(measured={"samples_per_s": {"value": 78.0, "unit": unit}})
    assert outcomes(one, {}, None)[0].reason == f'unit "{unit}"'


def test_constants_are_fitted_to_a_quantity_in_a_unit_of_its_own() -> None:
    rate = {"value": 10083, "unit": "tokens/s/GPU"}
    alone = row(measured={"tokens_per_s_per_gpu": rate})
    lost = {"value": 6.5, "unit": "parsec"}
    both = row(measured={"step_time": lost, "tokens_per_s_per_gpu": rate})
    assert timing(both).measured == timing(alone).measured


def test_an_empty_record_is_listed_and_an_id_is_used_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("{}\n" + json.dumps({**STEP, "measured": {}}) + "\n")
    assert main(["validate-model", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"no kind +1  no kind, measured\n", printed)
    assert re.search(r"training step, dense +1  no measured\n", printed)
    assert "missed" not in printed
    file.write_text("{}\n" + 2 * (json.dumps(STEP) + "\n"))
    assert main(["validate-model", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert f"{file}:3: `one` is the id of the record at {file}:2 too" in told


def test_the_worst_are_at_least_none(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["validate-model", "--worst", "-1"])
    assert "expected a whole number of at least 0, not -1" in capsys.readouterr().err


def test_quantities_of_one_step_agree() -> None:
    one = row()
    found = {o.quantity: o for o in outcomes(one, fit([timing(one)]), timing(one))}
    step, rate = found["step_time"].predicted, found["tokens_per_s_per_gpu"].predicted
    assert step and rate
    assert step * rate == pytest.approx(512 * 8192 / 64)
    assert found["loss"].predicted is None
    assert "isn't a time" in found["loss"].reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hardware": {"count": 64}}, "no hardware.gpu"),
        ({"hardware": {"gpu": "TPU v5", "count": 64}}, "no machine for TPU v5"),
        ({"lengths": {}}, "no lengths.seq"),
        ({"parallelism": {}}, "no parallelism.tp"),
        ({"batch": {}}, "no batch.global"),
        ({"model": {"name": "secret"}}, "no model.layers"),
    ],
)
def test_reasons(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Unknown, match=reason):
        timing(row(**changes))


def test_files_beside_the_record(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.toml").write_text(resource("clusters/h100.toml").read_text())
    own = {
        **STEP,
        "hardware": {"machine": "mine.toml", "count": 64},
        "model": {"config": "config.json"},
    }
    alike = Row("own", "train", own, tmp_path)
    np.testing.assert_allclose(timing(alike).predicted, timing(row()).predicted)
    lost = {**own, "hardware": {"machine": "gone.toml", "count": 64}}
    with pytest.raises(Unknown, match="cannot read"):
        timing(Row("lost", "train", lost, tmp_path))


@pytest.mark.parametrize(
    ("told", "rate"), [("RoCE 1600 Gb/s per node", 25e9), ("4 x HDR 200 Gb/s per node", 12.5e9)]
)
def test_network_of_the_record(told: str, rate: float) -> None:
    hardware = {**STEP["hardware"], "interconnect": told}
    assert machine(row(hardware=hardware)).nic.bytes_per_s == rate


@pytest.mark.parametrize(
    ("framework", "gpu", "host"),
    [
        ("Megatron-Bridge, NeMo container 26.04", "H100", FUSED),
        ("Megatron-Bridge, NeMo container 26.04", "GB200", CAPTURED),
        ("Megatron-Bridge", "H100", EAGER),
        ("prime-rl", "H100", LOOPED),
    ],
)
def test_how_a_framework_launches_experts(framework: str, gpu: str, host: Host) -> None:
    one = row(framework=framework, hardware={"gpu": gpu, "gpus_per_node": 4 + 4 * (gpu == "H100")})
    assert launches(one, machine(one)) == host


def test_megatrons_arguments() -> None:
    layout = {"--pipeline-model-parallel-layout": "Et*3|(tt|)*6mL"}
    assert megatron.chunks(layout, 2.0) == 4.0
    assert megatron.chunks({"--num-virtual-stages-per-pipeline-rank": 2}, 4.0) == 2.0
    selective: dict[str, Any] = {"--recompute-granularity": "selective"}
    assert megatron.recompute(selective) == SELECTIVE
    assert megatron.recompute({**selective, "--recompute-modules": "[mlp]"}) == NO_RECOMPUTE


def test_a_figure_of_one_digit_judges_nothing() -> None:
    (coarse,) = outcomes(row(measured={"mfu": {"value": 0.4, "unit": "fraction"}}), {}, None)
    assert "coarsely" in coarse.reason


def test_rates_of_a_dispatch() -> None:
    known = machine(row())
    for count, link in ((8, known.link), (16, known.nic)):
        one = row(
            kind="collective",
            operation="MoE all-to-all dispatch",
            library="DeepEP",
            hardware={**STEP["hardware"], "count": count},
            measured={"bottleneck_bw": {"value": 50, "unit": "GB/s"}},
        )
        assert outcomes(one, {}, None)[0].predicted == pytest.approx(link.reached / 1e9)


def timed(measured: float, source: str = "s", era: str = "nemo bf16") -> Timed:
    predicted = np.linspace(1.0, 2.0, len(CANDIDATES["train"]))
    return Timed("train", era, source, measured, predicted)


def test_constants_are_medians() -> None:
    eras = fit([timed(2.0)] * 4 + [timed(9.0)] * 2)
    own = eras["train", "nemo bf16"]
    assert own.slowdown * np.interp(own.second, CANDIDATES["train"], timed(1).predicted) == 2.0


def test_eras_fall_back() -> None:
    eras = fit([timed(2.0) for _ in range(FEWEST)])
    own, common = eras["train", "nemo bf16"], eras["train", COMMON]
    assert chosen(eras, "train", "nemo fp8") == own
    assert chosen(eras, "train", "other bf16") == common
    assert chosen({}, "train", "nemo bf16") == Era(1.0, DEFAULTS["train"])


def test_constants_are_written(tmp_path: Path) -> None:
    assert '["train"."nemo bf16"]' in as_toml(fit([timed(2.0) for _ in range(FEWEST)]))


@pytest.mark.parametrize(
    ("name", "unit", "ours"),
    [
        ("step_time", "s", "step_time"),
        ("iteration_time_s", "s", "step_time"),
        ("tokens_per_second", "tokens/s/GPU", "tokens_per_s_per_gpu"),
        ("tokens_per_s", "tokens/s (all GPUs)", "tokens_per_s"),
        ("throughput_tok_per_sec", "tokens/s", "output_tokens_per_s"),
        ("days_300B_tokens", "days", "days_300B_tokens"),
        ("MFU", "%", "mfu"),
        ("tokens_per_sec_per_device", "tokens/s", "tokens_per_s_per_gpu"),
        ("train_step_timing", "s", "step_time"),
        ("peak_memory_gb", "GB", "peak_memory"),
    ],
)
def test_names_of_one_quantity(name: str, unit: str, ours: str) -> None:
    assert common(name, unit) == ours


def test_ranks_and_errors() -> None:
    one = row()
    told = [o for o in outcomes(one, {}, timing(one)) if o.quantity == "step_time"]
    result = score("x", told)
    assert (result.records, result.predicted) == (1, 1)
    assert result.median == told[0].error


def test_publishers() -> None:
    assert publisher("https://github.com/a/b/blob/x.md") == "a/b"
    assert publisher("https://example.org/x") == "example.org"
    assert publisher("A paper, table 2") == "A paper"


def test_rows_in_another_form(tmp_path: Path) -> None:
    with pytest.raises(RowError, match=r"no \*\.jsonl"):
        read_rows(tmp_path)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n[]\n')
    with pytest.raises(RowError, match=r"a\.jsonl:2: not an object"):
        read_rows(tmp_path)
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe{}")
    with pytest.raises(RowError, match=r"a\.jsonl: not UTF-8 text"):
        read_rows(tmp_path)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "rows.jsonl").write_text(json.dumps(STEP) + "\n")
    out = tmp_path / "out.json"
    assert main(["validate-model", str(tmp_path), "--json", str(out), "--worst", "1"]) == 0
    printed = capsys.readouterr().out
    assert "training step, dense" in printed
    assert "gemm_efficiency" in printed
    found = json.loads(out.read_text())
    keys = ["id", "kind", "quantity", "unit", "measured", "predicted", "reason"]
    assert [list(entry) for entry in found] == 3 * [keys]
    assert found[0]["predicted"] == pytest.approx(6.5, rel=0.25)


@pytest.mark.parametrize("table", ["hardware", "model", "parallelism", "batch", "lengths"])
@pytest.mark.parametrize("value", [None, 0, -1, "weird", "3 / 4", True, [1], {"a": 1}, 1e9])
def test_odd_values_are_no_errors(table: str, value: Any) -> None:
    """Whatever stands in a record: a positive prediction, or a reason."""
    for key in STEP[table]:
        odd = row(**{table: {**STEP[table], key: value}})
        for outcome in outcomes(odd, {}, timings([odd]).get(odd.id)):
            assert outcome.reason or (outcome.predicted and outcome.predicted > 0)


def test_no_such_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate-model", "nowhere"]) == 1
    assert "nowhere: not a folder" in capsys.readouterr().err
