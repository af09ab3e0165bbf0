"""Seeded mutants of a text: characters, words and lines dropped, doubled, swapped, replaced."""

from __future__ import annotations

import random
import re

_WORD = re.compile(r"[A-Za-z_]\w*|\d[\d.e+-]*|[^\w\s]")
_CHARACTERS = "abz019_ \t\n(){}[]<>=,.:;@$%#!\"'\\+-/*é"


def mutant(text: str, seed: int) -> str:
    """The text after one to three random edits."""
    draw = random.Random(seed)
    for _ in range(draw.randint(1, 3)):
        text = draw.choice((_character, _word, _word, _line, _line))(text, draw)
    return text


def _character(text: str, draw: random.Random) -> str:
    at = draw.randrange(len(text) + 1)
    width = draw.choice((0, 1))
    return text[:at] + draw.choice(("", draw.choice(_CHARACTERS))) + text[at + width :]


def _word(text: str, draw: random.Random) -> str:
    words = list(_WORD.finditer(text))
    if not words:
        return text
    one, other = draw.choice(words), draw.choice(words)
    new = draw.choice(
        ("", one[0] * 2, other[0], str(draw.randint(-5, 10**6)), f"{one[0]} {other[0]}")
    )
    return text[: one.start()] + new + text[one.end() :]


def _line(text: str, draw: random.Random) -> str:
    lines = text.split("\n")
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    match draw.choice(("drop", "double", "swap", "move")):
        case "drop":
            del lines[one]
        case "double":
            lines.insert(one, lines[one])
        case "swap":
            lines[one], lines[other] = lines[other], lines[one]
        case _:
            lines.insert(other, lines.pop(one))
    return "\n".join(lines)
