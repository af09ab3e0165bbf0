"""Random programs go from text to IR to text, and from IR to MLIR's two forms and back.

RPEG_FUZZ_SEED=123 RPEG_FUZZ_PROGRAMS=100000 pytest -m slow tests/unit/tools/fuzzing -k programs
"""

from __future__ import annotations

import os
import random
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend.irgen import generate
from rpeg.frontend.lift import lift
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from rpeg.ir.text.diagnostics import has_errors
from rpeg.ir.text.parse import parse_module
from rpeg.ir.text.sources import Sources
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
from tests.unit.tools.fuzzing.programs import WALK, Program, walk, words
from tests.unit.tools.fuzzing.seeding import FROM, SEED, again
from tests.unit.tools.fuzzing.test_fuzz import WORKERS, Found, ready

KINDS = ("model", "data", "verifier", "tool", "state")
QUICK = 12
"""Walks of the quick test."""
PROGRAMS = int(os.environ.get("RPEG_FUZZ_PROGRAMS", "4000"))


def law(program: Program, generic: bool) -> None:
    """Whatever is written of a program reads as its module: as text, and as MLIR in one form."""
    module = program.module
    module.attributes.clear()  # the hash of the text
    assert read(render(lift(module, program.sources))).is_structurally_equivalent(module)
    again, _, problems = parse_module(mlir(module, generic), "f")
    assert again is not None, problems
    assert again.is_structurally_equivalent(module)


def read(text: str) -> ModuleOp:
    """The module of a text. Not verified: where it is the program's own, that was."""
    file, problems = parse(text, "f")
    assert file is not None, problems
    module, found = generate(file, Sources("f"))
    assert not has_errors(found), found
    return module


def laws(seed: int, start: int, stop: int) -> int:
    """Holds the walks `start` to `stop` of a seed to the law. Raises Found."""
    for number in range(start, stop):
        text = ""
        try:
            for place, program in enumerate(walk(number, random.Random(f"{seed} walk {number}"))):
                text = program.text
                law(program, generic=(number + place) % 2 == 0)
        except Exception:
            raise Found(
                f"{text}\n{traceback.format_exc()[-4000:]}\n"
                + again(seed, number, "test_programs.py::test_programs")
            ) from None
    return (stop - start) * WALK


def test_programs() -> None:
    print(f"RPEG_FUZZ_SEED={SEED}")
    assert laws(SEED, FROM, FROM + QUICK) == QUICK * WALK


def test_the_whole_vocabulary_is_in_them() -> None:
    """Unedited: edits are random, and what one leaves out another has."""
    found = {word for seed in seeds("rpeg") for word in words(seed.text)}
    declared = {form for kind in KINDS for form in constructors(kind)}
    assert {*operations(), *declared, *RECORDS, *CLAUSES, *ALLOW, *EXPECT, *POOLS} - found == set()


@pytest.mark.slow
def test_more_programs(capsys: pytest.CaptureFixture[str]) -> None:
    walks, size = -(-PROGRAMS // WALK), 50
    jobs = [(SEED, at, min(at + size, walks)) for at in range(0, walks, size)]
    with ProcessPoolExecutor(WORKERS, get_context("forkserver"), ready) as pool:
        done = sum(pool.map(laws, *zip(*jobs, strict=True)))
    with capsys.disabled():
        print(f"\nRPEG_FUZZ_SEED={SEED}: {done} programs")
    assert done >= PROGRAMS
