"""`rpeg calibrate`: constants are those that explain the times, and the file is read everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.collectives import ALL_GATHER, ALL_REDUCE, BROADCAST, Group, collective
from rpeg.cost.generation import Engine, Serving, eager
from rpeg.cost.hardware import Link, load_machine
from rpeg.cost.kernels import matmul
from rpeg.ir.clusters import load_cluster
from rpeg.tools.calibrating import idle, measure, probe
from rpeg.tools.calibrating.describe import cluster_file
from rpeg.tools.calibrating.fit import line, wire
from rpeg.tools.calibrating.measured import Exchange, Measured, Timed
from rpeg.tools.commands import calibrate
from tests.unit.tools.commands import Shell

EXAMPLES = Path(__file__).parents[3] / "examples"

RATE, HEAD = 60e9, 8e-6
LINK = Link(2.5e9, 2, 40e-6, reduces_in_switch=False, efficiency=1.0)


def timed(*sizes: float) -> tuple[Timed, ...]:
    return tuple(Timed(size, size / RATE + HEAD) for size in sizes)


LAUNCH, PRODUCT, ATTEND = 12e-6, 0.7e-6, 1.5e-6
ATTENTION = 30e9


def decode_steps() -> tuple[Timed, ...]:
    """As the cost model has them on a core that launches and multiplies at such a pace."""
    core = replace(
        load_machine("h100"),
        flops={"fp32": RATE},
        gemm_efficiency=1.0,
        hbm_bytes_per_s=1e10,
        hbm_efficiency=1.0,
        launch_s=LAUNCH,
        product_s=PRODUCT,
    )
    width, heads = probe.HIDDEN, probe.HEADS
    shape = replace(
        load_architecture("llama3-8b"),
        layers=probe.LAYERS,
        hidden=width,
        ffn=probe.FFN,
        heads=heads,
        kv_heads=heads,
        head_width=probe.HEAD_DIM,
        vocabulary=1,
    )
    engine = eager(Engine(sequence_s=0.0, step_s=0.0, graph_kernel_s=0.0))
    alone = replace(engine, step_launches=0.0)
    serving = Serving.of(shape, core, precision="fp32", cache_bytes=4.0)
    steps = ((n, float(serving.step(n, probe.PAST, alone))) for n in probe.SEQUENCES)
    return tuple(Timed(float(n), seconds) for n, seconds in steps)


def exchanges() -> tuple[Exchange, ...]:
    machine = replace(load_machine("h100"), link=LINK, flops={"fp32": RATE})
    group = Group.of(machine, 2)
    return tuple(
        Exchange(name, size, float(collective(machine, name, size, group)))
        for name in (ALL_REDUCE, ALL_GATHER, BROADCAST)
        for size in 4096.0 * 4.0 ** np.arange(7)
    )


def heads(number: float) -> Timed:
    """So many short sequences' heads, as attention goes over them."""
    flops = 2.0 * probe.PAST**2 * probe.HEAD_DIM
    return Timed(number, number * (flops / ATTENTION + ATTEND))


@pytest.fixture
def found() -> Measured:
    cubes = timed(*(2.0 * side**3 for side in (32, 64, 128, 256, 512)))
    return Measured(
        device="a chip",
        backend="gloo",
        processes=2,
        gpus=0,
        cores=4,
        memory_bytes=16e9,
        reserved_bytes=0.25e9,
        host_bytes=32e9,
        matmuls=cubes,
        attention=(Timed(3e9, 3e9 / ATTENTION),),
        heads=(heads(512.0),),
        streams=(Timed(1e9, 0.1),),
        host_copies=(Timed(1e9, 0.25), Timed(1e9, 0.2)),
        forwards=decode_steps(),
        collectives=exchanges(),
    )


def test_a_line_through_its_times() -> None:
    fitted = line(timed(1e5, 1e6, 1e7, 1e9))
    assert fitted.rate == pytest.approx(RATE)
    assert fitted.head == pytest.approx(HEAD)
    assert fitted.error(timed(1e5, 1e9)) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("times", [(3.0,), (3.0, 1.0)], ids=["one", "less time for more work"])
def test_without_a_line_the_best_rate_counts(times: tuple[float, ...]) -> None:
    fitted = line([Timed(10.0 * (n + 1), t) for n, t in enumerate(times)])
    assert fitted.head == 0.0
    assert fitted.rate == max(10.0 * (n + 1) / t for n, t in enumerate(times))


def test_a_wire_from_collectives(found: Measured) -> None:
    fitted = wire(found)
    assert fitted.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=0.02)
    assert fitted.latency_s == pytest.approx(LINK.latency_s, rel=0.05)
    assert fitted.error < 0.01


def test_the_file_is_a_cluster(found: Measured, tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    path.write_text(cluster_file("here", found, "2026-01-02"))
    cluster, machine = load_cluster(str(path)), load_machine(str(path))
    assert (cluster.name, cluster.gpus, cluster.cores) == ("here", 0, 4)
    assert machine.flops == {"fp32": pytest.approx(RATE, rel=1e-3)}
    assert machine.memory_rate == pytest.approx(1e10)
    assert machine.host_bytes_per_s == pytest.approx(5e9)
    assert machine.attention_rate == pytest.approx(30e9, rel=1e-3)
    assert machine.link.reached == pytest.approx(LINK.bytes_per_s, rel=0.02)
    assert machine.reserved_bytes == 0.25e9
    assert machine.launch_s == pytest.approx(LAUNCH, rel=0.02)
    assert machine.product_s == pytest.approx(PRODUCT, rel=0.1)
    assert machine.attend_s == pytest.approx(ATTEND, rel=1e-3)
    fit = float(matmul(machine, "bf16", 128.0, 128.0, 128.0))
    assert fit == pytest.approx(2.0 * 128**3 / RATE + HEAD, rel=1e-3)


def test_gpus_compute_in_bf16(found: Measured, tmp_path: Path) -> None:
    path = tmp_path / "box.toml"
    path.write_text(cluster_file("box", replace(found, gpus=2), "2026-01-02"))
    assert list(load_machine(str(path)).flops) == ["bf16"]
    assert load_cluster(str(path)).gpus == 2


def test_a_step_on_cores_counts_cores(found: Measured, shell: Shell) -> None:
    (shell.folder / "here.toml").write_text(cluster_file("here", found, "2026-01-02"))
    words = ("explain", str(EXAMPLES / "ppo_critic.rpeg"), "--cluster", "here.toml")
    assert ", 4 cores" in shell(*words).out.splitlines()[0]
    figures = json.loads(shell(*words, "--json").out)
    assert (figures["gpus"], figures["cores"]) == (0, 4)


def test_one_process_alone(found: Measured, tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    path.write_text(cluster_file("one", replace(found, processes=1, collectives=()), "2026-01-02"))
    assert "one process alone" in path.read_text()
    assert load_machine(str(path)).link.gpus == 1


def test_measurements_as_json(found: Measured) -> None:
    assert Measured.of_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_command(found: Measured, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(calibrate, "measure", lambda *many: asked.append(many) or found)
    monkeypatch.setattr(calibrate, "others_share", lambda: 0.42)
    monkeypatch.setattr(calibrate, "visible_gpus", lambda: 0)
    monkeypatch.setattr(calibrate, "cores_here", lambda: 2)
    done = shell("calibrate", "-o", "here.toml", "--processes", "2", "--json")
    assert (done.code, asked) == (0, [(2, 5)])
    assert Measured.of_json(json.loads(done.out)) == found
    assert "other programs use 42 %" in done.err
    assert load_cluster("here.toml").cores == 4


def test_more_processes_than_the_machine_has_places_for(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibrate, "measure", lambda *many: pytest.fail("started"))
    monkeypatch.setattr(calibrate, "visible_gpus", lambda: 0)
    monkeypatch.setattr(calibrate, "cores_here", lambda: 2)
    done = shell("calibrate", "-o", "here.toml", "--processes", "200")
    assert done.code == 1
    assert "--processes 200: each needs a core of its own, and this machine has 2 cores" in done.err
    monkeypatch.setattr(calibrate, "visible_gpus", lambda: 1)
    assert (
        "a GPU of its own, and this machine has 1 GPU"
        in shell("calibrate", "-o", "h.toml", "--processes", "2").err
    )


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("here.txt", "here.txt: write it as here.toml"),
        ("p.rpeg/here.toml", "p.rpeg/here.toml can't be written: p.rpeg is not a folder"),
    ],
)
def test_files_that_can_not_be(out: str, why: str, shell: Shell) -> None:
    done = shell("calibrate", "-o", out)
    assert done.code == 1
    assert done.err.startswith(f"error: {why}")


def test_without_torch(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = shell("calibrate", "-o", "here.toml")
    assert done.code == 1
    assert "pip install 'rpeg[run]'" in done.err


def test_processes_that_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "PROGRAM", "rpeg.no_such_program")
    monkeypatch.setattr(measure, "_launcher", lambda processes: ["python3", "-m"])
    with pytest.raises(measure.CalibrationError, match="no_such_program"):
        measure.measure(2, 1)


def test_the_tiny_steps_run() -> None:
    """In the embedded engine as it is; how long they take, machines tell."""
    import torch

    from rpeg.tools.calibrating.ranks import ON_CORES, Bench, Work, forwards

    class Once(Bench):
        def seconds(self, work: Work) -> float:
            work()
            return 1.0

    found = list(forwards(Once(torch.device("cpu"), ON_CORES, 1)))
    assert [step.work for step in found] == list(probe.SEQUENCES)


def test_who_else_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n")
    monkeypatch.setattr(idle, "_STAT", stat)
    later = "cpu  130 0 60 850 60 0 0 0 0 0\n"
    monkeypatch.setattr("time.sleep", lambda seconds: stat.write_text(later))
    assert idle.others_share() == pytest.approx(0.4)
    monkeypatch.setattr(idle, "_STAT", tmp_path / "none")
    assert idle.others_share() is None
