"""Files of clusters: one that gives any speeds is whole, and each figure is in its range."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rpeg.cost.hardware import NoSpeedsError
from rpeg.cost.platform import load_platform
from rpeg.ir.clusters import ClusterError
from rpeg.resources import resource
from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import Shell

ALPS = resource("clusters/alps.toml").read_text(encoding="utf-8")


def without(section: str) -> str:
    return re.sub(rf"\[{section}\]\n([^\n]+\n)+", "", ALPS)


def with_value(key: str, value: str) -> str:
    """The last figure of that name."""
    head, _, tail = ALPS.rpartition(f"\n{key} = {{ value = ")
    return f"{head}\n{key} = {{ value = {value},{tail.partition(',')[2]}"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bf16_tflops", "0", ":13:1: bf16_tflops must be at least 0.001, not 0"),
        ("hbm_gb_per_s", "inf", ":15:1: hbm_gb_per_s must be finite, not inf"),
        ("hbm_gb_per_s", "nan", "hbm_gb_per_s must be finite, not nan"),
        ("hbm_gb_per_s", '"4 TB"', "hbm_gb_per_s has another form: write hbm_gb_per_s = {"),
        ("gpus", "0", "gpus must be at least 1, not 0"),
        ("oversubscription", "0.0", "oversubscription must be at least 1, not 0.0"),
        ("gemm_efficiency", "7.6", "gemm_efficiency must be at least 0.001 and at most 1, not 7.6"),
        ("gemm_efficiency", '"?"', "gemm_efficiency = { value = 0.8, "),
        ("nic_efficiency", "0", "nic_efficiency must be at least 0.001 and at most 1, not 0"),
        ("kernel_us", "true", "kernel_us has another form"),
        ("gpus_per_node", "0", ":6:1: gpus_per_node is 0 and [device] has bf16_tflops"),
    ],
)
def test_figures_out_of_range(tmp_path: Path, key: str, value: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(with_value(key, value))
    with pytest.raises(ClusterError) as error:
        load_platform(str(path))
    assert message in str(error.value)
    assert not isinstance(error.value, NoSpeedsError)


KEYS = re.findall(r"^(\w+) = \{", ALPS, re.MULTILINE)


def test_every_figure_is_held_to_its_range(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    for key in KEYS:
        for value in ("-1", "nan", "1e300", "true", '"many"', "[4]", "4, unit = 1"):
            path.write_text(with_value(key, value))
            told = rf"c\.toml:\d+:1: {key} (must be|has another form)"
            with pytest.raises(ClusterError, match=told):
                load_platform(str(path))


RATES = [key for key in KEYS if key.endswith(("_per_s", "_tflops", "_efficiency", "memory_gb"))]


@pytest.mark.parametrize("key", sorted({*RATES}))
def test_rates_have_a_lower_bound(tmp_path: Path, key: str) -> None:
    """Times are finite, and none that nobody could wait for."""
    path = tmp_path / "c.toml"
    for value in ("1e-300", "1e-9"):
        path.write_text(with_value(key, value))
        with pytest.raises(ClusterError, match=f"{key} must be at least 0.001"):
            load_platform(str(path))
    path.write_text(with_value(key, "0.001"))
    load_platform(str(path))


@pytest.mark.parametrize("key", [key for key in KEYS if key.endswith("_us")])
def test_latencies_are_below_a_second(tmp_path: Path, key: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(with_value(key, "1e7"))
    with pytest.raises(ClusterError, match=f"{key} must be at most 1,000,000, not"):
        load_platform(str(path))


@pytest.mark.parametrize(
    ("key", "given", "value"),
    [
        ("max_nodes", "2", "2"),
        ("hbm_gb_per_s", "3200.5", "3200.5"),
        ("hbm_gb_per_s", "{ value = 3200 }", "3200"),
        ("hbm_gb_per_s", "-1", "4"),
        ("hbm_gb_per_s", "true", "4"),
    ],
)
def test_a_plain_number_is_told_in_its_form(
    tmp_path: Path, key: str, given: str, value: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(re.sub(rf"(?m)^{key} = .*$", f"{key} = {given}", ALPS))
    with pytest.raises(ClusterError) as error:
        load_platform(str(path))
    form = f'{key} = {{ value = {value}, source = "default", cite = "" }}'
    assert str(error.value).endswith(f"{key} has another form: write {form}")


def test_reserved_memory_leaves_some(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(with_value("reserved_gb", "200"))
    told = r"c.toml:\d+:1: reserved_gb is 200, and memory_gb of \[device\] 96: write less"
    with pytest.raises(ClusterError, match=told):
        load_platform(str(path))


def test_memories_are_in_powers_of_two() -> None:
    """Those of hosts as those of devices."""
    alps = load_platform("alps-1").machine
    assert (alps.memory_bytes, alps.host_memory_bytes) == (96 * 2**30, 512 * 2**30)


@pytest.mark.parametrize("value", ["-96", "0", "nan", "200000"])
@pytest.mark.parametrize("speeds", [True, False], ids=["speeds", "no speeds"])
def test_memory_that_nothing_has(shell: Shell, value: str, speeds: bool) -> None:
    """At its place, also where nothing is priced: the device's comes first in the file."""
    whole = ALPS if speeds else re.sub(r"(?m)^\w+_(per_s|tflops) .*\n", "", without_speeds())
    text = re.sub(r"(?m)^memory_gb = \{ value = [^,]+", f"memory_gb = {{ value = {value}", whole)
    (shell.folder / "c.toml").write_text(text)
    shell.write(text=grpo())
    done = shell("check", "p.rpeg", "--cluster", "c.toml")
    line = text.splitlines().index(next(n for n in text.splitlines() if "memory_gb" in n)) + 1
    must = {"nan": "finite", "200000": "at most 100,000"}.get(value, "at least 0.001")
    assert f"c.toml:{line}:1: memory_gb must be {must}, not {value}" in done.err
    assert (done.code, done.out) == (2, "")


def without_speeds() -> str:
    return ALPS.split("[gpu_link]")[0]


@pytest.mark.parametrize("more", [(), ("--gpus", "4")])
def test_a_file_of_no_size_tells_what_to_write(shell: Shell, more: tuple[str, ...]) -> None:
    """Not what names of shipped machines take."""
    (shell.folder / "c.toml").write_text(re.sub(r"max_nodes.*\n", "", ALPS))
    shell.write(text=grpo())
    for command in ("check", "explain"):
        done = shell(command, "p.rpeg", "--cluster", "c.toml", *more)
        assert done.code == 2
        assert "max_nodes" in done.err
        assert "c.toml-" not in done.err and '"alps-' not in done.err
        assert more or "c.toml:1:1: nothing tells how many nodes there are: write" in done.err


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("nic", "gb_per_s is missing from [nic]"),
        ("host", "memory_gb is missing from [host]"),
        ("constants", "is missing from [constants]"),
    ],
)
def test_some_speeds_are_not_enough(shell: Shell, section: str, message: str) -> None:
    (shell.folder / "c.toml").write_text(without(section))
    shell.write(text=grpo())
    done = shell("check", "p.rpeg", "--cluster", "c.toml")
    assert (done.code, done.out) == (2, "")
    assert "error: --cluster: c.toml:" in done.err and message in done.err


def test_a_file_without_speeds(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        "\n".join(
            line
            for line in ALPS.split("[gpu_link]")[0].splitlines()
            if "_per_s" not in line and "tflops" not in line
        )
    )
    with pytest.raises(NoSpeedsError, match="gives no speeds"):
        load_platform(str(path))
