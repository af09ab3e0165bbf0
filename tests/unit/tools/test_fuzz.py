"""Whatever the input, rpeg-opt ends with a code, and every error has a place in the text."""

from __future__ import annotations

import re

import pytest

from tests.unit.tools.mutants import mutant
from tests.unit.tools.opt import EXAMPLES, opt

_MESSAGE = re.compile(r"<stdin>:(\d+):(\d+): (error|warning|note): \S")
QUICK = 100


def texts(form: str) -> list[str]:
    if form == "rpeg":
        return [path.read_text(encoding="utf-8") for path in EXAMPLES]
    flags = ([], ["--print-op-generic"])
    return [opt(str(path), *flags[n % 2]).out for n, path in enumerate(EXAMPLES)]


def check(form: str, seeds: range) -> None:
    originals = texts(form)
    for seed in seeds:
        text = mutant(originals[seed % len(originals)], seed)
        run = opt("-f", form, stdin=text)
        assert run.code in (0, 1), seed
        assert bool(run.out) == (run.code == 0), seed
        found = [_MESSAGE.match(message) for message in run.messages]
        assert all(found), (seed, run.err)
        assert found or run.code == 0, seed
        places = [(int(m[1]), int(m[2])) for m in found if m]
        lines = text.split("\n")
        for line, column in places:
            assert 1 <= line <= len(lines) + 1, seed
            assert 1 <= column <= len([*lines, ""][line - 1]) + 2, seed


@pytest.mark.parametrize("form", ["rpeg", "mlir"])
def test_mutants(form: str) -> None:
    check(form, range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["rpeg", "mlir"])
def test_more_mutants(form: str) -> None:
    check(form, range(QUICK, 1000))
