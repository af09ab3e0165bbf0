"""Text, IR, text again: the second text has the meaning of the first, and is canonical."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import load
from rpeg.frontend.format import format_source
from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.frontend.written import duration, number, size
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.text.parse import parse_module
from rpeg.tools.opt.targets import mlir
from tests.unit.frontend.programs import programs

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.rpeg"))


def loaded(text: str) -> tuple[ModuleOp, str]:
    """The module of a text, without the hash of its source, and the text that it lifts to."""
    found = load(text, "f")
    assert found.module is not None, found.diagnostics
    found.module.attributes.clear()
    return found.module, render(lift(found.module, found.sources))


def law(text: str) -> None:
    module, lifted = loaded(text)
    again, twice = loaded(lifted)
    assert again.is_structurally_equivalent(module)
    assert twice == lifted == format_source(lifted, "f")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples(path: Path) -> None:
    law(path.read_text(encoding="utf-8"))


@settings(max_examples=25)
@given(programs())
def test_small_programs(text: str) -> None:
    law(text)


def test_defaults_and_params_are_gone() -> None:
    _, text = loaded((EXAMPLES[0].parent / "grpo_countdown.rpeg").read_text(encoding="utf-8"))
    assert "y, lp = generate(actor@i, q, n=8, max_tokens=64)\n" in text
    assert "param" not in text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (duration(0.0), "0.0s"),
        (duration(0.02), "20ms"),
        (duration(90.0), "90s"),
        (duration(7200.0), "2h"),
        (duration(1e-9), "0.000000001s"),
        (size(512 * 2**20), "512MiB"),
        (size(1000), "0.9765625KiB"),
        (number(1e-6), "1e-6"),
        (number(3e-4), "3e-4"),
        (number(0.001), "0.001"),
        (number(1e22), "1e22"),
        (number(-0.5), "-0.5"),
    ],
)
def test_numbers_and_units(written: str, text: str) -> None:
    assert written == text


def lifted_mlir(body: str) -> str:
    text = f"""
rpeg.pipeline @p {{
  rpeg.model @actor policy("x")
  rpeg.data @train prompts("y")
  rpeg.step i < 3 (%actor : !rpeg.weights<@actor, policy>,
                   %train : !rpeg.cursor<@train, prompts>) {{
{body}
  }}
}}"""
    module, sources, problems = parse_module(text, "f")
    assert module is not None, problems
    return render(lift(module, sources))


def test_names_become_legal_and_unique() -> None:
    text = lifted_mlir(
        """
    %0, %c = rpeg.batch %train {size = 4}
    %step, %a.b = rpeg.generate %actor, %0 {max_tokens = 3}
    %actor_1, %lp = rpeg.generate %actor, %0 {max_tokens = 3} attributes {stage = "actor"}
    rpeg.yield %actor, %c
    """
    )
    assert "batch = batch(train, size=4)" in text
    assert "step_2, a_b = generate(actor@i, batch, max_tokens=3)" in text
    assert "actor_2, lp = generate(actor@i, batch, max_tokens=3)" in text


def test_a_step_that_goes_on_with_an_old_version_has_no_text() -> None:
    with pytest.raises(DiagnosticsError, match="`train` continues with a version that is not its"):
        lifted_mlir(
            """
    %q, %c = rpeg.batch %train {size = 4}
    rpeg.yield %actor, %train
    """
        )


def test_printed_forms_are_one_module() -> None:
    module, _ = loaded((EXAMPLES[0].parent / "dapo.rpeg").read_text(encoding="utf-8"))
    for generic in (False, True):
        again, _, problems = parse_module(mlir(module, generic), "f")
        assert again is not None, problems
        assert again.is_structurally_equivalent(module)


def test_expected_names_keep_their_number() -> None:
    """xDSL's hints lose the number of `acc_2`, which an expectation calls the value by."""
    source = (EXAMPLES[0].parent / "dapo.rpeg").read_text(encoding="utf-8")
    text = source.replace("acc, ", "acc_2, ").replace("expect acc =", "expect acc_2 =")
    law(text)
    assert "expect acc_2 =" in loaded(text)[1]
