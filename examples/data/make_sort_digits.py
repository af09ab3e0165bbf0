"""Writes `sort_digits/*.jsonl`: put a row of digits in order, `5281407=` -> `0124578`.

Six sets, no prompt in two of them: `warmup` (demonstrations of 4 to 7 digits), `stopping` (where
the warm-up is measured, to end it), `train` and `heldout` (5 to 7 digits), `preferences` and
`judged` (pairs: the right answer, and the same digits in another order). Always the same bytes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

SETS = {
    "heldout": (1024, 5),
    "stopping": (256, 5),
    "train": (8000, 5),
    "warmup": (6000, 4),
    "judged": (256, 5),
    "preferences": (2000, 5),
}
"""Name -> (rows, fewest digits)."""
MOST_DIGITS = 7
SEED = 1


def fresh_digits(numbers: random.Random, fewest: int, seen: set[str]) -> Iterator[str]:
    """Rows of digits that nobody has seen."""
    while True:
        length = numbers.randrange(fewest, MOST_DIGITS + 1)
        digits = "".join(str(numbers.randrange(10)) for _ in range(length))
        if digits not in seen:
            seen.add(digits)
            yield digits


def misplaced(numbers: random.Random, right: str) -> str:
    """The same digits in another order; any other digits where all are the same."""
    digits = list(right)
    if len(set(digits)) == 1:
        return str((int(right[0]) + 1) % 10) * len(right)
    while "".join(digits) == right:
        numbers.shuffle(digits)
    return "".join(digits)


def make_row(name: str, digits: str, numbers: random.Random) -> dict[str, str]:
    """One row of the set `name`."""
    prompt, right = f"{digits}=", "".join(sorted(digits))
    if name in ("judged", "preferences"):
        return {"prompt": prompt, "chosen": right, "rejected": misplaced(numbers, right)}
    return {"prompt": prompt, "completion" if name == "warmup" else "answer": right}


def main(folder: Path) -> None:
    """Writes all sets into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers, seen = random.Random(SEED), set[str]()
    for name, (rows, fewest) in SETS.items():
        digits = fresh_digits(numbers, fewest, seen)
        lines = [json.dumps(make_row(name, next(digits), numbers)) for _ in range(rows)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("sort_digits"))
