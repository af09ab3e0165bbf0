"""L1 means what L0 means: hand-written modules beside the pipelines that they execute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import cast

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rpeg.interp import InterpreterError
from rpeg.interp.handlers.updates import Training
from rpeg.interp.l1 import InOrder, Shuffled, rows, shards
from rpeg.interp.l1.buffers import Group, Queue
from rpeg.interp.l1.frame import PlacedFrame
from rpeg.interp.l1.handlers import HANDLERS, arrive
from rpeg.interp.l1.shards import Home, Shards
from rpeg.interp.network import Tensors
from rpeg.interp.values import Weights
from rpeg.ir.ops.movement import PublishOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.types.buffer import BufferType
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass
from rpeg.runtime.losses import Totals
from rpeg.sharding.boxes import Box, NotHeldError, Sharding, Transfer, transfers
from rpeg.sharding.decoder import Block, Decoder, Split, Unit
from tests.unit.interp.l1.executing import GRPO, L0, PLANNED, Eager, Placed, module_of
from tests.unit.interp.meaning import rewritten

FILES = sorted(path.stem for path in Path(__file__).parent.glob("*.mlir"))


def test_every_file_has_its_l0() -> None:
    assert sorted(L0) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_file_means_its_l0(name: str, placed: Placed) -> None:
    assert placed.differences(L0[name], module_of(name), InOrder()) == []


@settings(max_examples=2, phases=[Phase.generate])
@given(seed=st.integers(0, 2**16))
@pytest.mark.parametrize("name", ["buffered", "streamed", "streamed_update", "window"])
def test_no_order_changes_a_number(name: str, seed: int, placed: Placed) -> None:
    assert placed.differences(L0[name], module_of(name), Shuffled(seed)) == []


@pytest.mark.parametrize(
    "options", [{"dp": 2}, {"tp": 2}, {"pp": 2, "vpp": 1}, {"dp": 2, "tp": 2, "zero": 1}]
)
def test_an_annotated_pipeline_means_its_l0(options: dict[str, int], placed: Placed) -> None:
    annotated = rewritten(GRPO, RpegAnnotateParallelismPass(**options))
    assert placed.differences(GRPO, annotated, Shuffled(1)) == []


@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_of_two_pools_means_its_l0(name: str, placed: Placed) -> None:
    l0, planned = PLANNED[name]
    annotated = rewritten(planned, RpegAnnotateParallelismPass(plan="two"))
    assert placed.differences(l0, annotated, Shuffled(1)) == []


def test_a_window_lets_an_engine_run_ahead(placed: Placed) -> None:
    timing = Eager()
    assert placed.differences(L0["window"], module_of("window"), timing) == []
    assert timing.lead("rpeg.generate", "rpeg.update") == 2  # the step itself, and one ahead


@pytest.mark.parametrize(("capacity", "lead"), [(4, 1), (8, 2)])
def test_a_full_buffer_holds_an_engine_back(capacity: int, lead: int, placed: Placed) -> None:
    timing = Eager()
    module = module_of("buffered", ("capacity = 4", f"capacity = {capacity}"))
    assert placed.differences(L0["buffered"], module, timing) == []
    assert timing.lead("rpeg.push", "rpeg.pop") == lead


def test_groups_that_wait_too_long_are_dropped() -> None:
    step = next(op for op in module_of("buffered").walk() if isinstance(op, StepOp))
    kind = step.states[-1].type
    assert isinstance(kind, BufferType)
    queue = Queue(kind)
    queue.push(Group(step=0, values=()))
    assert queue.has(1, step=1)  # the buffer's age
    assert not queue.has(1, step=2)
    assert queue.dropped == 1


def test_a_buffer_that_nobody_empties_is_a_deadlock(placed: Placed) -> None:
    less = module_of("buffered", ("{groups = 4 : i64}", "{groups = 2 : i64}"))
    with pytest.raises(InterpreterError, match=r"deadlock: in step 2 `engine` waits for room in"):
        placed.differences(L0["buffered"], less, InOrder())


def test_weights_that_were_never_sent_are_refused(placed: Placed) -> None:
    publish = 'rpeg.publish %actor_1 attributes {pool = "engine", par = #rpeg.record<par, '
    unsent = module_of("publish", (f"{publish}{{pp", f"{publish}{{tp"))
    with pytest.raises(InterpreterError, match=r"add rpeg\.reshard, or publish them there"):
        placed.differences(L0["publish"], unsent, InOrder())


# ---- planted bugs


def test_a_box_off_by_one_is_found(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(source: Sharding, target: Sharding) -> list[Transfer]:
        plan = transfers(source, target)
        return [_off_by_one(t, source) for t in plan]

    monkeypatch.setattr(shards, "transfers", shifted)
    assert placed.differences(L0["publish"], module_of("publish"), InOrder())


def _off_by_one(t: Transfer, source: Sharding) -> Transfer:
    """The first rows of a matrix that another rank sends, one row further."""
    box, held = t.src_box, source[t.src][t.src_array].box
    if t.src == t.dst or len(box.low) < 2 or box.high[0] + 1 > held.shape[0]:
        return t
    low, high = ((side[0] + 1, *side[1:]) for side in (box.low, box.high))
    return replace(t, src_box=Box(low, high))


def test_a_part_that_no_rank_holds_is_named(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = Split.blocks

    def short(split: Split, unit: Unit, rank: int) -> list[Block]:
        found = blocks(split, unit, rank)
        return found[:-1] if unit.join == "stack" and rank else found

    monkeypatch.setattr(Split, "blocks", short)
    with pytest.raises(NotHeldError, match=r"no rank holds model.layers.0.mlp.up_proj.weight"):
        placed.differences(L0["publish"], module_of("publish"), InOrder())


def test_chunks_joined_as_they_come_are_found(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    join = rows.join

    def unordered(values: Sequence[object], where: Sequence[Tensor]) -> object:
        start = [0, *accumulate(len(part) for part in where)]
        return join(values, [torch.arange(a, b) for a, b in pairwise(start)])

    monkeypatch.setattr(rows, "join", unordered)
    assert placed.differences(L0["streamed"], module_of("streamed"), Eager())


def test_a_stale_publish_is_found(placed: Placed, monkeypatch: pytest.MonkeyPatch) -> None:
    published: list[Weights] = []

    def late(op: PublishOp, frame: PlacedFrame) -> tuple[Weights]:
        (new,) = arrive(op, frame)
        published.append(new)
        return (published[max(0, len(published) - 2)],)

    monkeypatch.setitem(cast(dict[type, object], HANDLERS), PublishOp, late)
    found = placed.differences(L0["publish"], module_of("publish"), InOrder())
    assert found[0].startswith("behaviour y of step 2")


def test_a_normaliser_of_one_replica_is_found(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = Training._loss

    def local(self: Training, part: Tensor, totals: Totals, said: list[Tensor]) -> Tensor:
        lengths = self.rows.mask[part].sum(dim=1)
        return loss(self, part, Totals(int(lengths.sum()), len(part)), said)

    monkeypatch.setattr(Training, "_loss", local)
    assert placed.differences(L0["microbatches"], module_of("microbatches"), InOrder())


def test_replicas_that_drift_apart_are_named(
    placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = Shards.cut

    def drifting(tensors: Tensors, decoder: Decoder, at: Home) -> Shards:
        made = cut(tensors, decoder, at)
        made._arrays[at.first + at.ranks - 1][-1][0] += 1.0
        return made

    monkeypatch.setattr(Shards, "cut", drifting)
    with pytest.raises(InterpreterError, match="is not the same on the replicas of dp2 on `all`"):
        placed.differences(L0["microbatches"], module_of("microbatches"), InOrder())
