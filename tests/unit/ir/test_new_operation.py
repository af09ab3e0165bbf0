"""A new operation is one class: text, MLIR, checks, messages and documentation follow from it."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest
from xdsl.ir import Attribute, Dialect
from xdsl.irdl import irdl_op_definition, traits_def
from xdsl.traits import Pure

from rpeg.frontend import check, load
from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.ir import dialect
from rpeg.ir.base import RpegOp
from rpeg.ir.definitions import gives, operand, required, setting
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.parse import parse_module
from rpeg.ir.types.values import ResponseFieldType
from rpeg.ir.vocabulary import tables as vocabulary
from rpeg.ir.vocabulary.settings import FLOAT, word
from rpeg.tools.opt.targets import mlir


@irdl_op_definition
class ShapeRewardOp(RpegOp):
    """A reward bent by a curve."""

    name = "rpeg.shape_reward"
    SURFACE: ClassVar[str] = "shape_reward"
    reward = operand("seq.reward")
    power = required(FLOAT, least=0.0)
    curve = setting(word("root", "square"), "root")
    shaped = gives("seq.reward")
    traits = traits_def(Pure())

    def infer(self) -> Sequence[Attribute]:
        return [ResponseFieldType("reward")]

    def rules(self) -> Iterator[Violation]:
        if self.float_of("power") == 1.0:
            yield Violation("setting-range", "a power of 1 changes nothing: remove the line")


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    operations = (*dialect.OPERATIONS, ShapeRewardOp)
    held = list(dialect.Rpeg.attributes)
    monkeypatch.setattr(vocabulary, "OPERATIONS", operations)
    monkeypatch.setattr(dialect, "Rpeg", Dialect("rpeg", list(operations), held))
    forget()
    yield
    forget()


def forget() -> None:
    vocabulary.operations.cache_clear()
    vocabulary.operation_class.cache_clear()


def text(line: str) -> str:
    return f"""rpeg 0.1

pipeline p {{
  model actor = policy("x")
  data train = prompts("y")
  verifier good = outcome("rule:math")

  step i < 3 {{
    q = batch(train, size=8)
    y, lp = generate(actor, q, max_tokens=8)
    r = score(good, y)
    s = {line}
  }}
}}
"""


def test_text_to_mlir_and_back() -> None:
    source = text("shape_reward(r, power=0.5)")
    loaded = load(source, "f")
    assert loaded.module is not None
    assert render(lift(loaded.module, loaded.sources)) == source
    for generic in (False, True):
        printed = mlir(loaded.module, generic)
        assert "rpeg.shape_reward" in printed
        module, sources, problems = parse_module(printed, "m")
        assert module is not None, problems
        assert diagnose(module, sources) == []
        assert module.is_structurally_equivalent(loaded.module)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("shape_rewards(r, power=0.5)", "did you mean `shape_reward`?"),
        ("shape_reward(r, powr=0.5)", "shape_reward has no setting `powr`; did you mean `power`?"),
        ("shape_reward(r)", "shape_reward needs the setting `power`: write power=0.2"),
        ("shape_reward(r, power=-1)", "power=-1.0: expected at least 0"),
        ("shape_reward(r, power=2, curve=sqare)", "did you mean `square`?"),
        ("shape_reward(y, power=2)", "takes per-response reward as `reward`; `y` is trajectories"),
        ("shape_reward(r, power=1)", "a power of 1 changes nothing: remove the line"),
    ],
)
def test_messages(line: str, message: str) -> None:
    assert [message in d.message for d in check(text(line), "f")] == [True]


def test_signature() -> None:
    signature = vocabulary.operations()["shape_reward"]
    assert signature.call == "shape_reward(reward)"
    assert signature.doc == "A reward bent by a curve."
    assert list(signature.settings) == ["power", "curve"]
