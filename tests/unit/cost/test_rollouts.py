"""Steps of reinforcement learning: what is in flight, what waits for what, how weights arrive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.cost.architecture import Architecture
from rpeg.cost.architecture_files import load_architecture
from rpeg.cost.generation import ACCEPTED, Engine, Requests, Serving, generation_time
from rpeg.cost.publish import TENSOR_S, by_tensor_s, weight_bytes
from rpeg.cost.rl import REST, REST_SHARED, Learning, RlStep, Rollout, rl_step
from rpeg.cost.training import Software
from rpeg.cost.validation import rl_step as records
from rpeg.cost.validation.rows import Row
from tests.unit.cost.figures import DENSE, H100, MIXTURE, plans

TAILED = Requests.of(256.0, 512.0, 1024.0, longest=8192.0)
POLICY = Learning(DENSE, H100, plans(), updates=1.0, passes=3.0)


def rollout(ahead: float = 1.0, jobs: Requests = TAILED) -> Rollout:
    return Rollout(Serving.of(DENSE, H100), jobs, 4.0, ahead)


def step(ahead: float, learning: Learning = POLICY) -> RlStep:
    return rl_step(rollout(ahead), learning, Engine(), Software(), apart=True)


def test_a_refilled_slot_waits_for_no_longest_response() -> None:
    assert rollout().refilled_s(Engine()) < rollout().seconds(Engine())


@given(st.floats(1.0, 16.0), st.floats(1.0, 4.0))
def test_more_steps_in_flight_are_never_slower(ahead: float, more: float) -> None:
    assert step(ahead * more).total <= step(ahead).total * (1 + 1e-12)


def test_a_step_waits_for_weights_of_as_many_steps_ago() -> None:
    """Generating a batch, training on it and publishing is a cycle of 1 + ahead steps."""
    one = step(1.0)
    cycle = one.generate + POLICY.passes * one.forward + one.update + one.publish
    assert one.total * (1.0 - REST) == pytest.approx(cycle / 2.0, rel=1e-9)


def test_a_trainer_that_is_slower_sets_the_pace() -> None:
    slow = replace(POLICY, passes=1e4)
    one = step(8.0, slow)
    train = slow.passes * one.forward + one.update + one.publish
    assert one.total * (1.0 - REST) == pytest.approx(float(train), rel=1e-9)


def test_a_critic_takes_an_update_of_its_own() -> None:
    jobs = Requests.of(64.0, 512.0, 512.0)
    alone, beside = (
        rl_step(rollout(1.0, jobs), learning, Engine(), Software(), apart=False).total
        for learning in (POLICY, replace(POLICY, models=2.0))
    )
    update = POLICY.update_s(Software())
    assert beside - alone == pytest.approx(update / (1.0 - REST_SHARED), rel=1e-9)


@pytest.mark.parametrize("longest", [1024.0, 2000.0, 8192.0, 1e5])
def test_tokens_are_conserved_while_sequences_end(longest: float) -> None:
    """Where all that takes time is a second of the host a sequence and step, tokens are seconds."""
    host = Engine(sequence_s=1.0, step_s=0.0, graph_kernel_s=0.0)
    jobs = Requests.of(4096.0, 1.0, 1024.0, longest=longest)
    seconds = float(generation_time(Serving.of(DENSE, H100), jobs, host))
    assert seconds == pytest.approx(4096.0 * 1024.0, rel=0.03)


def test_experts_are_read_for_the_few_that_are_left() -> None:
    """Of a mixture half the sequences read more than half of the weights, so that a slow end takes
    longer than full slots and one sequence alone.
    """
    serving, jobs = Serving.of(MIXTURE, H100, tp=8), Requests.of(64.0, 64.0, 512.0, longest=2048.0)
    full = serving.step(64.0, jobs.context, Engine())
    alone = serving.step(1.0, jobs.context, Engine())
    bound = 512.0 * full + 1536.0 * alone + serving.prefill(64.0 * 64.0, 64.0)
    assert generation_time(serving, jobs, Engine()) > 1.05 * bound


def test_proposed_tokens_save_steps_and_read_more_experts() -> None:
    jobs = Requests.of(8.0, 64.0, 512.0)
    gains = []
    for shape in (DENSE, MIXTURE):
        plain, drafted = (
            generation_time(Serving.of(shape, H100, tp=8), jobs, Engine(drafted=count))
            for count in (0.0, 1.0)
        )
        gains.append(float(plain / drafted))
    assert Engine(drafted=1.0).tokens_a_step == pytest.approx(1.0 + ACCEPTED)
    assert 1.0 < gains[1] < gains[0] <= 1.0 + ACCEPTED


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("qwen2.5-7b", 28 * 7 + 2),
        ("qwen3-30b-a3b", 48 * (4 + 128 * 3) + 2),
        ("deepseek-v3", 61 * 5 + 3 * 3 + 58 * 257 * 3 + 2),
    ],
)
def test_tensors_of_a_checkpoint(name: str, tensors: int) -> None:
    assert load_architecture(name).tensors == tensors


def test_weights_go_by_tensor_and_through_cards_between_domains() -> None:
    shape = load_architecture("qwen3-30b-a3b")
    host = TENSOR_S * shape.tensors
    for gpus, link in ((8.0, H100.link), (16.0, H100.nic)):
        seconds = float(by_tensor_s(shape, H100, np.asarray(gpus)))
        assert seconds == pytest.approx(host + weight_bytes(shape) / link.reached)


def job(shape: Architecture = DENSE, **fields: object) -> records.Job:
    told = {
        "hardware": {"gpu": "H100", "count": 64},
        "model": {"name": shape.name},
        "parallelism": {"tp": 8},
        "batch": {"global": 256, "generation_samples": 512},
        "lengths": {"seq": 4096, "response": 1000},
        **fields,
    }
    return records.job(Row("one", "rl_step", told))


def test_a_record_may_tell_who_samples() -> None:
    hardware = {"gpu": "H100", "count": 96, "generation_count": 32}
    told = job(hardware=hardware, placement="disaggregated", staleness=8)
    assert (told.rollout.replicas, told.learning.plans.gpus, told.rollout.ahead) == (32, 64, 8)


def test_narrow_weights_leave_room_for_the_cache() -> None:
    wide, narrow = (job(precision=kind).rollout.serving for kind in ("bf16", "fp8"))
    assert narrow.room(Engine()) > wide.room(Engine())


def test_what_isnt_packed_is_padded_to_the_longest() -> None:
    packed, padded = (job(recipe_values={"sequence_packing": on}) for on in (True, False))
    assert padded.learning.plans.seq > 2.0 * packed.learning.plans.seq


def test_one_update_a_batch_needs_no_probabilities_of_before() -> None:
    again, once = (job(recipe_values={"force_on_policy_ratio": on}) for on in (False, True))
    assert again.learning.passes - once.learning.passes == 1.0
