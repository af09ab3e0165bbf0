"""Cluster names, sizes and files."""

import os
from pathlib import Path

import pytest

from rpeg.ir.clusters import Cluster, ClusterError, Device, known_clusters, load_cluster

LAB = """
name = "lab"
max_nodes = { value = 3, source = "measured", cite = "counted" }
gpus_per_node = { value = 2, source = "measured", cite = "counted" }
cores_per_node = { value = 16, source = "datasheet", cite = "its box" }
[device]
name = "L40S"
memory_gb = { value = 48, source = "datasheet", cite = "its box" }
"""


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    path = tmp_path / "lab.toml"
    path.write_text(LAB)
    return path


@pytest.mark.parametrize(
    ("name", "nodes", "gpus"), [("alps-64", 64, 256), ("h100-8", 8, 64), ("alps", 2688, 10752)]
)
def test_sizes(name: str, nodes: int, gpus: int) -> None:
    cluster = load_cluster(name)
    assert (cluster.name, cluster.nodes, cluster.gpus) == (name, nodes, gpus)


def test_whole_cluster(lab: Path) -> None:
    assert load_cluster(str(lab)) == Cluster("lab", 3, 2, 16, Device("L40S", 48 * 2**30))


@pytest.mark.parametrize("name", ["cpu", "cpu-1"])
def test_cpu_is_this_machine(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5}, raising=False)
    assert load_cluster(name) == Cluster(name, 1, 0, 3, None)


def test_known() -> None:
    assert {"alps", "cpu", "h100", "gb200", "mi300x"} <= set(known_clusters())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alp-64", 'no cluster "alp-64": did you mean "alps-64"? known are a100, a100_40gb'),
        ("summit", 'no cluster "summit": known are'),
        ("alps-", 'no cluster "alps-": did you mean "alps"?'),
        ("alps-2689", "alps has 1 to 2688 nodes"),
        ("alps-0", "alps has 1 to 2688 nodes"),
        ("cpu-2", "cpu has 1 node"),
        ("h100", '"h100" has no fixed size: write how many nodes, "h100-8"'),
        ("h100-100001", "h100 has 1 to 100000 nodes"),
        ("h100-0", "h100 has 1 to 100000 nodes"),
        ("none.toml", "cannot read none.toml: No such file or directory"),
    ],
)
def test_no_such_cluster(name: str, message: str) -> None:
    with pytest.raises(ClusterError) as error:
        load_cluster(name)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "lab"', "", 'name is missing from the top of the file: write name = "..."'),
        ("value = 2", "value = -2", "lab.toml:4:1: gpus_per_node must be at least 0, not -2"),
        ("value = 2", "value = 1.5", "gpus_per_node must be a whole number, not 1.5"),
        ("value = 2", "value = true", "gpus_per_node has another form: write gpus_per_node = {"),
        ("value = 16", "value = 0", "cores_per_node must be at least 1, not 0"),
        ("value = 48", "value = nan", "memory_gb must be finite, not nan"),
        (', cite = "counted" }\ncores', " }\ncores", "gpus_per_node has another form"),
        ('source = "datasheet"', 'source = "hearsay"', 'source of cores_per_node is "hearsay"'),
        ("memory_gb", "# memory_gb", "lab.toml:6:1: memory_gb is missing from [device]: write"),
        ("[device]", "[gpu]", 'lab.toml:6:1: unknown "gpu"'),
        ("memory_gb", "memory", 'lab.toml:8:1: unknown "memory": did you mean "memory_gb"?'),
        ("[device]", "[device", "lab.toml:6:8: not TOML: Expected"),
        ('name = "lab"', 'name = "lab"\nname = "lab"', '3:1: "name" is written twice: keep one'),
        ("[device]", "[device]\n[device]", "7:1: [device] is written twice: keep one"),
    ],
)
def test_files_in_another_form(lab: Path, old: str, new: str, message: str) -> None:
    lab.write_text(LAB.replace(old, new, 1))
    with pytest.raises(ClusterError) as error:
        load_cluster(str(lab))
    assert message in str(error.value)


def test_a_file_that_is_no_text(lab: Path) -> None:
    lab.write_bytes(b"\xff\xfe")
    with pytest.raises(ClusterError) as error:
        load_cluster(str(lab))
    assert str(error.value) == f"{lab}: not UTF-8 text"
