"""Whatever the input, rpeg-opt ends with a code, and every error has a place in the text.

Half of the mutants are of `.rpeg` texts, half of `.mlir`; of each, some are edits of characters,
most are edits of trees and modules, which the parser takes. A failure shows the command that
repeats it; `seeding` says where the seed comes from. More of them, with another one:

    RPEG_FUZZ_SEED=123 RPEG_FUZZ_MUTANTS=100000 pytest -m slow tests/unit/tools/fuzzing/test_fuzz.py
"""

from __future__ import annotations

import gc
import os
import random
import traceback
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from rpeg.frontend import ast
from rpeg.ir.rules.explain import rules
from tests.unit.tools.fuzzing import characters, modules, trees
from tests.unit.tools.fuzzing.corpus import mistakes, seeds
from tests.unit.tools.fuzzing.judge import Tally, judge
from tests.unit.tools.fuzzing.seeding import FROM, SEED, again

FORMS = ("rpeg", "mlir")
QUICK = 60
MUTANTS = int(os.environ.get("RPEG_FUZZ_MUTANTS", "20000"))
WORKERS = 2
GENTLE = 0.5
"""The share of the mutants of mistaken trees whose mistake likely stays."""
CHARACTERS = 0.25
"""The share of mutants that are edits of characters."""
PARSED = 0.3
"""The share of mutants that have to reach the verifier."""
HITS, ENOUGH = 20, 20_000
"""How many mutants have to break each rule, of at least so many in all."""


class Found(AssertionError):
    """A broken promise, with the mutant that shows it."""


def mutant(form: str, number: int, draw: random.Random) -> str:
    """A mutant: two of three are of texts that break a rule, each rule's in its turn."""
    turn, mistaken = divmod(number, 3)
    held = mistakes(form) if mistaken else seeds(form)
    seed = held[(2 * turn + mistaken - 1 if mistaken else turn) % len(held)]
    if draw.random() < CHARACTERS:
        return characters.mutant(seed.text, draw.randrange(2**63))
    if isinstance(seed.content, ast.File):
        return trees.mutant(seed.content, draw, gently=mistaken > 0 and draw.random() < GENTLE)
    return modules.mutant(seed.content, draw)


def fuzz(form: str, seed: int, start: int, stop: int) -> Tally:
    """Judges the mutants `start` to `stop` of a seed. Raises Found."""
    tally = Tally()
    for number in range(start, stop):
        draw = random.Random(f"{seed} {form} {number}")
        text = mutant(form, number, draw)
        try:
            judge(text, form, draw, tally)
        except Exception:
            raise Found(
                f"{text}\n{traceback.format_exc()[-4000:]}\n"
                + again(seed, number, f"test_fuzz.py::test_mutants[{form}]")
            ) from None
    return tally


def ready() -> None:
    """Reads every seed; looking for garbage often, and through the seeds, would take long."""
    for form in FORMS:
        seeds(form)
        mistakes(form)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@pytest.mark.parametrize("form", FORMS)
def test_mutants(form: str) -> None:
    print(f"RPEG_FUZZ_SEED={SEED}")
    tally = fuzz(form, SEED, FROM, FROM + QUICK)
    assert tally.inputs == QUICK


def test_a_failure_shows_how_to_repeat_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fuzz.__globals__, "judge", lambda *_: 1 / 0)
    with pytest.raises(Found) as failure:
        fuzz("mlir", 5, 7, 8)
    test = "tests/unit/tools/fuzzing/test_fuzz.py::test_mutants[mlir]"
    command = f"RPEG_FUZZ_SEED=5 RPEG_FUZZ_FROM=7 python -m pytest '{test}'"
    assert str(failure.value).endswith(command)


@pytest.mark.slow
def test_more_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    half, size = MUTANTS // len(FORMS), 500
    jobs = [(form, SEED, at, min(at + size, half)) for at in range(0, half, size) for form in FORMS]
    tally = Tally()
    with ProcessPoolExecutor(WORKERS, get_context("forkserver"), ready) as pool:
        for found in pool.map(fuzz, *zip(*jobs, strict=True)):
            tally.add(found)
    with capsys.disabled():
        print(f"\nRPEG_FUZZ_SEED={SEED}\n{tally}")
    assert tally.inputs == half * len(FORMS)
    assert tally.parsed >= PARSED * tally.inputs
    seldom = {code: tally.rules[code] for code in rules() if tally.rules[code] < HITS}
    assert not seldom or MUTANTS < ENOUGH
