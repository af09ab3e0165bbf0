"""What a judge is asked, and what it answered: templates and numbers."""

from __future__ import annotations

import re

from rpeg.runtime.trajectories import Row

_FIELD = re.compile(r"\{(prompt|response|answer)\}")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def filled(template: str, row: Row, response: str) -> str:
    """The template with `{prompt}`, `{response}` and `{answer}` in their places, each once: what
    they hold is not read for more.
    """
    fields = {"prompt": row.prompt, "response": response, "answer": row.answer or ""}
    return _FIELD.sub(lambda found: fields[found[1]], template)


def last_number(text: str) -> float | None:
    """The last number of a text, such as 7 in `Clear and right: 7`; None without one."""
    found = _NUMBER.findall(text)
    return float(found[-1]) if found else None
