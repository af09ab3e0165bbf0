"""The examples broken at random, one character at a time: no exception, and messages that help."""

from __future__ import annotations

import random
from pathlib import Path

from rpeg.frontend.parse import parse

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.rpeg"))
BREAKS = 500


def places(text: str) -> list[int]:
    """Offsets of the characters outside comments that are no spaces."""
    found, start = [], 0
    for line in text.split("\n"):
        code = line.partition("#")[0]
        found += [start + column for column, c in enumerate(code) if not c.isspace()]
        start += len(line) + 1
    return found


def broken(text: str, rng: random.Random) -> tuple[str, int]:
    """A text with one character left out, put in, or put in the place of another; and its line."""
    at = rng.choice(places(text))
    new = rng.choice(["", "", *"(){}[],=@.$\"x1<;:'"])
    kept = at if new and rng.random() < 0.5 else at + 1
    return text[:at] + new + text[kept:], text.count("\n", 0, at) + 1


def test_breaks_get_few_messages_at_the_right_line() -> None:
    rng = random.Random(0)
    texts = [path.read_text(encoding="utf-8") for path in EXAMPLES]
    reported = single = on_the_line = 0
    for _ in range(BREAKS):
        text, line = broken(rng.choice(texts), rng)
        _, diagnostics = parse(text, "f")
        reported += bool(diagnostics)
        single += len(diagnostics) == 1
        on_the_line += any(d.at.line == line for d in diagnostics)
    assert reported > BREAKS / 2
    assert single / reported > 0.97
    assert on_the_line / reported > 0.95
