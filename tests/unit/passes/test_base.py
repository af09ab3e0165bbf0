"""What every pass has: kinds, conditions, counts, refusals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from rpeg.ir.ops.sampling import LogprobOp
from rpeg.ir.vocabulary.records import ALLOW
from rpeg.passes import PASSES
from rpeg.passes.base import Condition, Kind, Legality, RpegPass, pipelines
from rpeg.passes.legality import Reason, legal
from tests.unit.passes.pipelines import grpo, one, parse, place, refusals, run


def _never(op: Operation) -> Iterator[Reason]:
    yield op, "never"
    yield op, "and not here"


def _always(op: Operation) -> Iterator[Reason]:
    return iter(())


@dataclass(frozen=True)
class Structural(RpegPass):
    """Changes what is trained."""

    name = "rpeg-structural"
    KIND: ClassVar[Kind] = "S"
    ALLOW: ClassVar[str] = "bounded_async"
    STATISTICS: ClassVar[dict[str, str]] = {"things done": "for the test"}

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for pipeline in pipelines(op):
            assert self.allowed(pipeline).kind == self.ALLOW
            self.count("things done", 2)


@dataclass(frozen=True)
class Asked(RpegPass):
    """Was asked for a rewrite that is not legal."""

    name = "rpeg-asked"
    LEGALITY: ClassVar[Legality] = (
        Condition("a", "A.", _always),
        Condition("b", "B.", _never),
        Condition("c", "C.", _never),
    )

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        self.require(one(op, LogprobOp))


def test_a_structural_pass_needs_permission() -> None:
    (found,) = refusals(parse(grpo()), Structural())
    assert found.endswith("add `allow bounded_async(...)` to permit it")
    step = Structural()
    run(parse(grpo(("step i", "allow bounded_async(staleness=1)\n  step i"))), step, step)
    assert step.statistics.counts == {"things done": 4}
    assert Structural().statistics.counts == {}


def test_a_refusal_lists_every_broken_condition_at_its_place() -> None:
    text = grpo()
    at = place(text, "logprob(actor@i")
    assert refusals(parse(text), Asked()) == [f"{at}: never", f"{at}: and not here"] * 2
    assert not legal(Asked.LEGALITY, one(parse(text), LogprobOp))
    assert legal(Asked.LEGALITY[:1], one(parse(text), LogprobOp))


def test_a_count_without_a_meaning_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="does not say what"):
        Structural().count("others")


def test_statistics_are_no_option() -> None:
    assert str(Structural()) == "rpeg-structural"
    assert Structural() == Structural()


@pytest.mark.parametrize("name", PASSES)
def test_what_a_pass_declares(name: str) -> None:
    cls = PASSES[name]()
    assert issubclass(cls, RpegPass)
    assert (cls.KIND == "X") == (cls.ALLOW == "")
    assert cls.ALLOW in {"", *ALLOW}
    names = [condition.name for condition in cls.LEGALITY]
    assert len({*names}) == len(names)
