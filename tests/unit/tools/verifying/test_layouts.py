"""Which layouts are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.divisibility import Counts
from rpeg.tools.console import Failure
from rpeg.tools.verifying.layouts import (
    USUAL,
    Chosen,
    check_names,
    chosen,
    refuse_useless,
    rows_divisor,
)

FITS = Counts(layers=4, heads=4, kv_heads=2, ffn=48)


def test_the_usual_ones_that_fit() -> None:
    assert chosen(None, {"actor": FITS}) == Chosen(("dp1", *USUAL), {}, ())
    few = {"actor": replace(FITS, layers=2), "ref": replace(FITS, kv_heads=1)}
    found = chosen(None, few)
    assert found.layouts == ("dp1", "pp2", "dp2", "dp2zero1")
    assert found.notes[0].startswith("not tried: tp2, 1 key-value heads can't be split 2 ways")
    assert any(note.startswith("not tried: pp2vpp2, 2 layers") for note in found.notes)


def test_the_wanted_ones_come_after_one_process_once() -> None:
    assert chosen(["tp2", "dp1", "tp2"], {}).layouts == ("dp1", "tp2")


def test_wanted_ones_that_do_not_fit_are_refused_by_name() -> None:
    found = chosen(["tp2", "tp3", "dp2+critic=tp2"], {"actor": FITS})
    assert found.layouts == ("dp1", "tp2")
    why = "4 attention heads can't be split 3 ways (tp=3): write a divisor; "
    assert found.refused["tp3"].startswith(why)
    said = "there is no model `critic`; the pipeline has: actor"
    assert found.refused["dp2+critic=tp2"] == said


def test_a_model_with_a_layout_of_its_own_need_not_fit_that_of_the_others() -> None:
    models = {"actor": FITS, "critic": replace(FITS, kv_heads=1)}
    assert chosen(["tp2+critic=dp2"], models).refused == {}
    assert list(chosen(["tp2"], models).refused) == ["tp2"]


def test_what_no_pipeline_can_take_ends_it_all() -> None:
    grpo, ppo = ({"actor": FITS}, {"actor": FITS, "critic": FITS})
    wanted = ["dp2+critic=tp2"]
    refuse_useless([chosen(wanted, grpo), chosen(wanted, ppo)])
    with pytest.raises(Failure, match=r"^tp3: 4 attention heads can't be split 3 ways"):
        refuse_useless([chosen([*wanted, "tp3"], grpo), chosen([*wanted, "tp3"], ppo)])


@pytest.mark.parametrize("name", ["cp2", "lora", "tp", "dq2"])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(Failure, match=name):
        check_names(["dp2", name])


def test_rows_divide_by_every_width_and_two_minibatches() -> None:
    assert rows_divisor(["dp1", "tp2"]) == 2
    assert rows_divisor(["dp1", "dp3", "dp4zero1"]) == 12
