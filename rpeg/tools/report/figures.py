"""Figures of an estimate's JSON that know their path in it: a page shows what `--json` says.

The path of a figure, such as `stages.0.seconds`, is the `data-key` of the element that shows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A value of a JSON document and the way to it."""

    value: Any
    path: str = ""

    def __getitem__(self, key: str | int) -> Figure:
        return Figure(self.value[key], f"{self.path}.{key}" if self.path else str(key))

    def __iter__(self) -> Iterator[Figure]:
        """The elements of a list."""
        return (self[k] for k in range(len(self.value)))

    def get(self, key: str) -> Figure | None:
        """A member of an object, if it has it."""
        return self[key] if key in self.value else None

    def items(self) -> Iterator[tuple[str, Figure]]:
        """The members of an object, in its order."""
        return ((name, self[name]) for name in self.value)

    @property
    def number(self) -> float:
        """The value of a number."""
        return float(self.value)

    @property
    def text(self) -> str:
        """The value of a name."""
        return str(self.value)

    @property
    def attributes(self) -> dict[str, str]:
        """`data-key` and `data-value`, the path and the JSON of the value."""
        return {"data-key": self.path, "data-value": json.dumps(self.value)}
