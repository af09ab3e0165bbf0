"""What stages lose to weights that are on their way meanwhile."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from rpeg.cost.platform import load_platform
from rpeg.cost.profiles.contention import Meeting, lost
from rpeg.cost.profiles.moving import Passage
from rpeg.cost.profiles.profiling import profiles
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.cost.profiles.stage import Profile
from rpeg.ir.stages import stage_name
from rpeg.passes.base import pipelines
from tests.unit.cost.placing import example, placed

ASYNC = example("async_grpo_alps64")


def priced(text: str) -> tuple[Setting, Mapping[str, Profile]]:
    pipeline = next(pipelines(placed(text, "alps64")))
    setting = Setting.of(pipeline, load_platform("alps-64"), Inputs())
    table = profiles(setting)
    return setting, {stage_name(op): table[op] for op in setting.stages.values()}


def test_two_that_share_a_card_take_longer_by_the_product_of_their_shares() -> None:
    """Minute by minute: 10 s of which 4 are messages, beside 2 s of weights. While both want the
    card each has half, so 0.4 · 2 s of messages are left when the weights are through.
    """
    step, sent, own, alone = 1e-4, 2.0, 0.0, 0.0
    while own < 10.0:
        messages = own % 1.0 < 0.4
        both = messages and sent > 0.0
        sent -= step / 2 if both else step
        own += step / 2 if both else step
        alone += step
    met = Meeting(Passage(card=2.0, memory=0.0), (None,))  # type: ignore[arg-type]
    found = lost(Profile(10.0, card_s=4.0), met)
    assert found == pytest.approx(0.8)
    assert alone - 10.0 == pytest.approx(found, rel=0.01)


def test_decoding_shares_its_memory_with_new_weights() -> None:
    """2 bytes a weight are written, read and written, at the share that decoding reads."""
    setting, found = priced(ASYNC)
    y = found["y"]
    alone = y.seconds - y.breakdown["contention"]
    passing = 3.0 * setting.models["actor"].weight_bytes / setting.machine.memory_rate
    assert y.breakdown["contention"] == pytest.approx(passing * y.memory_s / alone)
    assert 0.3 < y.memory_s / alone < 1.0


def test_who_waits_for_new_weights_meets_none() -> None:
    text = ASYNC.replace("@[i-$staleness..i]", "@i").replace(" bound=strict, overflow=drop,", "")
    _, found = priced(text.replace("  param staleness = 2\n", ""))
    assert not any("contention" in profile.breakdown for profile in found.values())


def test_the_trainer_meets_them_where_it_goes_on() -> None:
    met = {name for name, profile in priced(ASYNC)[1].items() if "contention" in profile.breakdown}
    assert met == {"y", "lp_ref", "prox"}
    waits = ASYNC.replace("overlap=true, ", "")
    met = {name for name, profile in priced(waits)[1].items() if "contention" in profile.breakdown}
    assert met == {"y"}
