"""What a judge's template may hold: fields that are filled, the response among them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation, hint

FIELDS = ("prompt", "response", "answer")
_FIELD = re.compile(r"(?<![\w\\])\{([A-Za-z_]\w*)\}")
"""A word in braces, if it isn't the argument of a command of TeX such as `\\boxed{score}`."""


def template_rules(template: str) -> Iterator[Violation]:
    """Fields that nothing fills, and the response left out."""
    place = violations.setting("template")
    for name in dict.fromkeys(_FIELD.findall(template)):
        if name not in FIELDS:
            known = ", ".join(f"{{{field}}}" for field in FIELDS)
            text = f"template: nothing fills {{{name}}}{hint(name, FIELDS)}; known: {known}"
            yield Violation("setting-range", text, place)
    if "{response}" not in template:
        yield Violation(
            "setting-range",
            "template: the judge has to see what it judges: write {response} where it goes, "
            "and {prompt} or {answer} where it needs them",
            place,
        )
