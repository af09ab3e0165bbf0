"""Random programs go from text to IR to text, and from IR to MLIR's generic form and back.

RPEG_FUZZ_SEED=123 RPEG_FUZZ_PROGRAMS=100000 pytest -m slow tests/unit/tools/fuzzing
"""

from __future__ import annotations

import os
import random
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from rpeg.frontend import load
from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.ir.text.parse import parse_module
from rpeg.ir.vocabulary.tables import (
    ALLOW,
    CLAUSES,
    EXPECT,
    POOLS,
    RECORDS,
    constructors,
    operations,
)
from rpeg.tools.opt.targets import mlir
from tests.unit.tools.fuzzing.corpus import seeds
from tests.unit.tools.fuzzing.programs import program, words
from tests.unit.tools.fuzzing.test_fuzz import HELD, SEED, WORKERS, Found, ready

KINDS = ("model", "data", "verifier", "tool", "state")
QUICK = 60
PROGRAMS = int(os.environ.get("RPEG_FUZZ_PROGRAMS", "1000"))


def law(text: str) -> None:
    """Whatever is written of a text reads as the module of the text."""
    first = load(text, "f")
    assert first.module is not None, first.diagnostics
    first.module.attributes.clear()  # the hash of the text
    lifted = render(lift(first.module, first.sources))
    second = load(lifted, "f")
    assert second.module is not None, second.diagnostics
    second.module.attributes.clear()
    assert second.module.is_structurally_equivalent(first.module)
    third, _, problems = parse_module(mlir(first.module, generic=True), "f")
    assert third is not None, problems
    assert third.is_structurally_equivalent(first.module)


def laws(seed: int, start: int, stop: int) -> int:
    """Holds the programs `start` to `stop` of a seed to the law. Raises Found."""
    for number in range(start, stop):
        text = program(number, random.Random(f"{seed} program {number}"))
        try:
            law(text)
        except Exception:
            raise Found(
                f"program {number} of RPEG_FUZZ_SEED={seed}:\n{text}\n"
                f"{traceback.format_exc()[-4000:]}"
            ) from None
    return stop - start


def test_programs() -> None:
    print(f"RPEG_FUZZ_SEED={SEED}")
    assert laws(SEED, 0, QUICK) == QUICK


def test_the_whole_vocabulary_is_in_them() -> None:
    """Unedited: edits are random, and what one leaves out another has."""
    found = {word for seed in seeds("rpeg") for word in words(seed.text)}
    declared = {form for kind in KINDS for form in constructors(kind)}
    assert {*operations(), *declared, *RECORDS, *CLAUSES, *ALLOW, *EXPECT, *POOLS} - found == set()


@pytest.mark.slow
def test_more_programs(capsys: pytest.CaptureFixture[str]) -> None:
    size = 250
    jobs = [(HELD, at, min(at + size, PROGRAMS)) for at in range(0, PROGRAMS, size)]
    with ProcessPoolExecutor(WORKERS, get_context("forkserver"), ready) as pool:
        done = sum(pool.map(laws, *zip(*jobs, strict=True)))
    with capsys.disabled():
        print(f"\nRPEG_FUZZ_SEED={HELD}: {done} programs")
    assert done == PROGRAMS
