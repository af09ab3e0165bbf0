"""MLIR's own mlir-opt reads what rpeg-opt prints, and rpeg-opt reads it back: the same module."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ArrayAttr, ModuleOp
from xdsl.ir import Attribute

from rpeg.ir.text.locations import own_place, plan_line
from rpeg.ir.text.parse import parse_module
from rpeg.ir.types.attributes import RecordAttr, SecondsAttr, plain
from rpeg.tools.diffing.compare import compare
from rpeg.tools.diffing.facts import facts
from rpeg.tools.opt.targets import mlir
from tests.unit.tools.opt import EXAMPLES, ROOT, opt

TOOL = os.environ.get("MLIR_OPT", "mlir-opt-19")
WRITTEN = [*EXAMPLES, *sorted((ROOT / "tests" / "filecheck" / "dialect").glob("*.mlir"))]
LEVELS = ("", "rpeg-annotate-parallelism{dp=2}", "rpeg-schedule", "rpeg-lower-to-programs")
PLACES = "--print-debuginfo"

each_file = pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)


@pytest.fixture(scope="module")
def tool() -> str:
    """The path of mlir-opt. `.ci/run` installs it and sets RPEG_NEEDS_MLIR_OPT."""
    found = shutil.which(TOOL)
    if found is not None:
        return found
    reason = f"{TOOL} is not here: install MLIR 19 (`make mlir-opt`), or set MLIR_OPT to its name"
    if os.environ.get("RPEG_NEEDS_MLIR_OPT"):
        pytest.fail(reason)
    pytest.skip(reason)


def through(tool: str, text: str, *flags: str) -> str:
    """What mlir-opt prints of a text."""
    command = [tool, "--allow-unregistered-dialect", "--mlir-print-local-scope", *flags]
    run = subprocess.run(command, input=text, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def module_of(text: str) -> ModuleOp:
    module, _, problems = parse_module(text, "f")
    assert module is not None, problems
    return module


def generic(path: Path, *flags: str) -> str:
    run = opt(str(path), "--print-op-generic", *flags)
    assert run.code == 0, run.err
    return run.out


@each_file
def test_every_file_passes_through(tool: str, path: Path) -> None:
    printed = generic(path)
    returned = through(tool, printed)
    assert module_of(returned).is_structurally_equivalent(module_of(printed))
    assert opt(stdin=returned).code == 0


def lowered(path: Path) -> Iterator[str]:
    """The file at L1, L2 and L3, in the generic form with places; down to what compiles today."""
    for count in range(2, len(LEVELS) + 1):
        run = opt(str(path), "-p", ",".join(LEVELS[1:count]), "--print-op-generic", PLACES)
        if run.code != 0:
            assert count == len(LEVELS) and " compile" in run.err, run.err
            return
        yield run.out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_lower_levels_pass_through_with_their_places(tool: str, path: Path) -> None:
    for printed in lowered(path):
        returned = through(tool, printed, "--mlir-print-debuginfo")
        before, after = module_of(printed), module_of(returned)
        assert after.is_structurally_equivalent(before)
        assert [*places(after)] == [*places(before)]
        differ = compare(facts(before), facts(after))
        assert {change.kind for change in differ} <= {"renamed"}


def places(module: ModuleOp) -> Iterator[tuple[Attribute | None, Attribute | None]]:
    return ((own_place(op), plan_line(op)) for op in module.walk() if op is not module)


def test_some_example_reaches_l3() -> None:
    assert len([*lowered(ROOT / "examples" / "grpo_countdown.rpeg")]) == len(LEVELS) - 1


NUMBERS = (0.1, -0.0, 1e-5, 1e22, 5e-324, 0.30000000000000004, 3.9e14 / 7, -99999999999999.25)
TEXTS = ("", "é😀\u2028", 'a "b" \\ <{[(', "\t\n\r\x00\x7f", "}])>")


def values() -> Mapping[str, Attribute]:
    held = [*map(plain, NUMBERS), *map(plain, TEXTS), plain(True), plain(-(2**62))]
    held += [SecondsAttr.of(abs(number)) for number in NUMBERS]
    record = RecordAttr.make(
        "outer", {"inner": RecordAttr.make("word", {}), "all": ArrayAttr(held)}
    )
    return {f"test.value_{n}": value for n, value in enumerate([*held, record])}


def test_values_of_every_kind_pass_through(tool: str) -> None:
    module = ModuleOp([], dict(values()))
    for printed in (mlir(module, True), through(tool, mlir(module, True))):
        assert module_of(printed).attributes == module.attributes


NAMES = """
rpeg.pipeline @"a b" {
  rpeg.model @"é 1" policy("models/tiny-qwen2")
  rpeg.model @ref policy(@"é 1")
  rpeg.step i < 3 (%actor : !rpeg.weights<@"é 1", policy>) {
    %ref = rpeg.get @ref : !rpeg.weights<@ref, policy>
    rpeg.yield %actor
  }
}
"""


def test_names_that_need_quotes_pass_through(tool: str) -> None:
    module = module_of(NAMES)
    for printed in (mlir(module), mlir(module, True), through(tool, mlir(module, True))):
        assert module_of(printed).is_structurally_equivalent(module)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_language_says_the_same(path: Path) -> None:
    text = opt(str(path), "--verify-each", "-t", "rpeg")
    assert text.code == 0, text.err
    again = opt("-f", "rpeg", "-", "-t", "rpeg", stdin=text.out)
    assert again.out == text.out
    first, second = (module_of(generic_of(t)) for t in (path.read_text("utf-8"), text.out))
    first.attributes.clear()  # the hash of the text: params are resolved in the second
    second.attributes.clear()
    assert second.is_structurally_equivalent(first)


def generic_of(text: str) -> str:
    return opt("-f", "rpeg", "-", "--print-op-generic", stdin=text).out
