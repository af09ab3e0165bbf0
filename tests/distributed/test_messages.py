"""The messages that the cost model prices between cores are those that processes send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.collectives import Group, collective
from rpeg.cost.hardware import Link, Machine, load_machine
from rpeg.cost.layers import MEASURED
from rpeg.cost.plans import Plans
from rpeg.cost.profiles.layouts import Layout
from rpeg.cost.profiles.moving import tensor_messages
from rpeg.cost.profiles.profiling import OBJECT_MESSAGES, STEP_OBJECTS
from rpeg.cost.profiles.shapes import ModelShape
from rpeg.cost.training import Software, step_time
from rpeg.passes.layout_names import parse_layout
from tests.distributed.launching import torchrun

SHAPE = load_architecture("models/tiny-qwen3-digits/config.json")
HOP_S = 1.0
LINK = Link(1e30, 2, HOP_S, reduces_in_switch=False, efficiency=1.0)
CORE = replace(
    load_machine("h100"),
    flops={"fp32": 1e30},
    hbm_bytes_per_s=1e30,
    kernel_s=0.0,
    launch_s=0.0,
    link=LINK,
    nic=LINK,
)
"""Does everything in no time but wait for messages."""


def hops(counts: Mapping[str, int], machine: Machine) -> float:
    """Seconds of messages that were counted, of no bytes."""
    group = Group.of(machine, 2)
    return sum(n * float(collective(machine, kind, 0.0, group)) for kind, n in counts.items())


@pytest.mark.parametrize("names", ["dp2,dp2zero1", "tp2,pp2"])
def test_messages_of_an_update_and_a_publish(names: str, tmp_path: Path) -> None:
    done = torchrun("messages_program.py", tmp_path, 2, LAYOUTS=names)
    assert done.returncode == 0, done.stderr
    messages = json.loads((tmp_path / "messages.json").read_text())
    assert messages.pop("step") == {"books": {"all_gather": STEP_OBJECTS * OBJECT_MESSAGES}}
    for name, counts in messages.items():
        told = predicted(Layout(**parse_layout(name)))  # type: ignore[arg-type]
        assert told == {what: hops(found, CORE) for what, found in counts.items()}, (name, counts)


def predicted(layout: Layout) -> dict[str, float]:
    """Seconds of an update's and a publish's messages."""
    plans = Plans.of(
        batch=8,
        micro=8 / layout.dp,
        seq=16,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        sp=0,
        zero=layout.zero,
    )
    own = Software(host=MEASURED, step_s=0.0)
    update = float(step_time(SHAPE, CORE, plans, "fp32", own).total)
    publish = tensor_messages(ModelShape("actor", SHAPE, 1.0, 4.0), layout, CORE).seconds
    return {"update": round(update, 6), "publish": round(publish, 6)}
