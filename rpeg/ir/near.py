"""What a misspelt word may have meant: case does not count."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(word: str, choices: Iterable[str], most: int = 1) -> list[str]:
    """The choices that are close to a word, the closest first; none where none is."""
    by_lower: dict[str, list[str]] = {}
    for choice in sorted(choices):
        by_lower.setdefault(choice.lower(), []).append(choice)
    close = difflib.get_close_matches(word.lower(), list(by_lower), most)
    return [choice for lower in close for choice in by_lower[lower]][:most]
