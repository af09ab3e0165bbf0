"""Which layouts are tried."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.fit import Counts
from rpeg.tools.console import Failure
from rpeg.tools.verifying.layouts import USUAL, check_names, chosen, rows_divisor

FITS = Counts(layers=4, heads=4, kv_heads=2, ffn=48)


def test_the_usual_ones_that_fit() -> None:
    assert chosen(None, [FITS]) == (["dp1", *USUAL], [])
    layouts, notes = chosen(None, [replace(FITS, layers=2), replace(FITS, kv_heads=1)])
    assert layouts == ["dp1", "pp2", "dp2", "dp2zero1"]
    assert notes[0].startswith("not tried: tp2, 1 key-value heads can't be split 2 ways")
    assert any(note.startswith("not tried: pp2vpp2, 2 layers") for note in notes)


def test_the_wanted_ones_come_after_one_process_once() -> None:
    assert chosen(["tp2", "dp1", "tp2"], []) == (["dp1", "tp2"], [])


def test_wanted_ones_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        Failure, match=r"^tp3: 4 attention heads can't be split 3 ways \(tp=3\): write a divisor; "
    ):
        chosen(["tp2", "tp3"], [FITS])


@pytest.mark.parametrize("name", ["cp2", "lora", "tp", "dq2"])
def test_odd_names_are_refused(name: str) -> None:
    with pytest.raises(Failure, match=name):
        check_names(["dp2", name])


def test_rows_divide_by_every_width_and_two_minibatches() -> None:
    assert rows_divisor(["dp1", "tp2"]) == 2
    assert rows_divisor(["dp1", "dp3", "dp4zero1"]) == 12
