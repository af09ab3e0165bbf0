"""One optimizer step and one publish of the demo's model under each of LAYOUTS, which split batches
alike, and the end of a step: process 0 writes how many messages of each kind are waited for.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rpeg import runtime as rt
from rpeg.passes.layout_names import parse_layout
from rpeg.runtime import world
from tests.unit.runtime.conftest import make_trajectories

KINDS = {
    **dict.fromkeys(("all_reduce", "reduce_scatter_tensor"), "all_reduce"),
    **dict.fromkeys(("all_gather", "all_gather_into_tensor"), "all_gather"),
    "broadcast": "broadcast",
    **dict.fromkeys(("isend", "irecv"), "point_to_point"),
}
counted: Counter[str] = Counter()


def count(name: str) -> None:
    """Has calls of a collective count, unless a process is alone in its group."""
    original: Callable[..., Any] = getattr(dist, name)

    def counting(*arguments: Any, group: Any = None, **more: Any) -> Any:
        if dist.get_world_size(group) > 1:
            counted[KINDS[name]] += 1
        return original(*arguments, group=group, **more)

    for module in (dist, dist.distributed_c10d):
        setattr(module, name, counting)


def taken() -> dict[str, int]:
    """What was counted since the last time."""
    found = dict(counted)
    counted.clear()
    return found


def main() -> None:
    for name in KINDS:  # before Megatron-Core binds them
        count(name)
    names = os.environ["LAYOUTS"].split(",")
    run = rt.start(pipeline="messages", steps=2, processes=2, source_sha256="0")
    found: dict[str, dict[str, dict[str, int]]] = {}
    for i in run.loop():
        if i == 0:
            found |= {name: sent(run, name) for name in names}
            run.report(y := make_trajectories(8), r=torch.ones(len(y.rows)))
        else:  # what the first step ended with
            found["step"] = {"books": taken()}
    if world.rank() == 0:
        Path("messages.json").write_text(json.dumps(found))
    world.exit_at_once()


def sent(run: rt.Run, name: str) -> dict[str, dict[str, int]]:
    """Messages of an update and of a publish under a layout."""
    layout = rt.Layout(**parse_layout(name))  # type: ignore[arg-type]
    actor = rt.Trainer(
        run,
        f"actor_{name}",
        role="policy",
        source="models/tiny-qwen3-digits",
        groups=run.groups(layout),
        dtype="fp32",
        optimizer=rt.AdamW(lr=1e-3),
        horizon=1,
    )
    weights = rt.LatestWeights(run, actor)
    y = make_trajectories(8)
    pg = rt.ppo_clip(y, torch.ones(8), torch.zeros(y.tokens.shape), clip_low=0.2, clip_high=0.2)
    taken()
    actor.update(pg, agg="token_mean")
    update = taken()
    weights.publish(actor)
    return {"update": update, "publish": taken()}


main()
