"""`expect` lines and plans: one of each name, lengths as plain numbers, times with a unit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rpeg.frontend import check
from tests.unit.passes.pipelines import COLLECTED, grpo, place

LENGTHS = "lognormal(mean=500, cv=0.5)"


def errors(*lines: str) -> list[str]:
    """Messages of a pipeline with these lines at its end."""
    text = grpo().rstrip().removesuffix("}") + "".join(f"  {line}\n" for line in lines) + "}\n"
    return [d.message for d in check(text, "p.rpeg")]


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("y", "lognormal(mean=20ms, cv=0.5)", "mean: `y` has lengths in tokens, not times"),
        ("train", "lognormal(mean=2s, cv=0.5)", "mean: `train` has lengths in tokens, not times"),
        ("correct", "lognormal(mean=20, cv=0.5)", "mean: `correct` takes a time, which needs a u"),
        ("correct", "lognormal(mean=0.2, cv=0.5)", "mean: `correct` takes a time, which needs a"),
        ("y", "lognormal(mean=9000, cv=0.5, cap=4096)", "mean=9000: expected at most cap=4096"),
        ("correct", "lognormal(mean=20s, cv=1.0, cap=10)", "mean=20: expected at most cap=10"),
    ],
)
def test_a_mean_that_can_not_be(name: str, written: str, message: str) -> None:
    (found,) = errors(f"expect {name} = {written}")
    assert found.startswith(message)


@pytest.mark.parametrize(
    "line",
    [
        f"expect train = {LENGTHS}",
        "expect train = lognormal(mean=4096, cv=0.5, cap=4096)",
        "expect y = lognormal(mean=8, cv=0.5, cap=8)",
        "expect correct = lognormal(mean=20ms, cv=0.5)",
        "expect lp_old = lognormal(mean=40ms, cv=0.5)",
    ],
)
def test_a_mean_that_can_be(line: str) -> None:
    assert not errors(line)


@pytest.mark.parametrize("changes", [(), COLLECTED])
@pytest.mark.parametrize("cap", [9, 99999])
def test_a_cap_beyond_what_is_sampled(changes: Sequence[tuple[str, str]], cap: int) -> None:
    """At its place, and without harm: it is a warning."""
    line = f"  expect y = lognormal(mean=4, cv=0.5, cap={cap})\n"
    text = grpo(*changes).rstrip().removesuffix("}") + line + "}\n"
    (found,) = check(text, "p.rpeg")
    assert (found.severity, str(found.at)) == ("warning", place(text, f"{cap})"))
    assert found.message == (
        f"cap={cap}: `y` has max_tokens=8, where its lengths are cut: write cap=8, or leave it out"
    )


def test_a_second_line_of_a_name_is_refused() -> None:
    (found,) = errors(f"expect y = {LENGTHS}", 'expect y = histogram("lengths.txt")')
    assert found.startswith("`y` already has an expect line at ")
    assert not errors(f"expect y = {LENGTHS}", f"expect train = {LENGTHS}")


def plan(name: str) -> str:
    return f'plan {name} on "h100-8" {{\n    pool all_{name} = nodes(0..0)\n  }}'


@pytest.mark.parametrize("name", ["one", "actor"])
def test_a_plan_of_a_name_that_is_taken_is_refused(name: str) -> None:
    found = errors(plan("one"), plan(name))
    (taken,) = [text for text in found if "already" in text]
    assert taken.startswith(f"`{name}` is already defined at ")
    assert taken.endswith(": give the plan another name")
