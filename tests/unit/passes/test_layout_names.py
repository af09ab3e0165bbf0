from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.passes.layout_names import LayoutNameError, Value, layout_name, parse_layout


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tp2", {"tp": 2}),
        ("tp2sp", {"tp": 2, "sp": True}),
        ("sptp2", {"tp": 2, "sp": True}),
        ("tp2pp2vpp2", {"tp": 2, "pp": 2, "vpp": 2}),
        ("vpp2pp4", {"pp": 4, "vpp": 2}),
        ("dp16zero1", {"dp": 16, "zero": 1}),
        ("pp2full", {"pp": 2, "recompute": "full"}),
        ("dp2selective", {"dp": 2, "recompute": "selective"}),
        ("dp2+actor=tp2", {"dp": 2, "others": "actor=tp2"}),
        ("dp4+a=tp2dp2+b=pp4", {"dp": 4, "others": "a=tp2dp2+b=pp4"}),
    ],
)
def test_names(name: str, settings: dict[str, Value]) -> None:
    assert parse_layout(name) == settings


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "is not a layout"),
        ("tp", "is not a layout"),
        ("2tp", "is not a layout"),
        ("tp2 pp2", "is not a layout"),
        ("tp2,pp2", "is not a layout"),
        ("TP2", "is not a layout"),
        ("sp2", "is not a layout"),
        ("tp0", "is not a layout"),
        ("tp02", "is not a layout"),
        ("tp\u0662", "is not a layout"),
        ("tp2\u0662", "is not a layout"),
        ("tp1048577", "1048577 is too wide, at most 1048576"),
        ("dp2tp" + "9" * 5000, r"9\.\.\. is too wide"),
        ("tp2tp2", "says tp twice"),
        ("fullselective", "says recompute twice"),
        ("cp2", r"context parallelism \(cp\) does not compile yet"),
        ("dp2ep2", r"expert parallelism \(ep\) does not compile yet"),
        ("dp2+", "`` gives no model a layout: write MODEL=LAYOUT behind"),
        ("dp2+tp2", "`tp2` gives no model a layout"),
        ("dp2+1a=tp2", "`1a=tp2` gives no model a layout"),
        ("dp2+a=tp2+a=pp2", "gives `a` two layouts"),
        ("dp2+a=tpp", "`tpp` is not a layout"),
        ("lora", r"low-rank adapters \(lora\) does not compile yet"),
    ],
)
def test_what_is_no_name(name: str, why: str) -> None:
    with pytest.raises(LayoutNameError, match=why):
        parse_layout(name)


WIDTHS = {axis: st.integers(1, 64) for axis in ("dp", "tp", "pp", "vpp")}


@given(
    st.fixed_dictionaries(
        {
            **WIDTHS,
            "zero": st.integers(0, 1),
            "sp": st.booleans(),
            "recompute": st.sampled_from(["none", "selective", "full"]),
        }
    )
)
def test_a_name_means_the_settings_that_it_was_made_of(settings: dict[str, Value]) -> None:
    defaults = {**dict.fromkeys(WIDTHS, 1), "zero": 0, "sp": False, "recompute": "none"}
    assert defaults | parse_layout(layout_name(settings)) == settings
