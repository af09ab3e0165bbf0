"""The page of the examples says of each whether it compiles; the golden list of refusals knows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_right() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    said = dict(re.findall(r"^\| \[(\w+\.rpeg)\].*\| (yes|not yet) \|$", page, re.MULTILINE))
    golden = (ROOT / "tests" / "golden" / "refusals.golden").read_text()
    found = re.findall(r"== (\w+\.rpeg)\n((?:(?!== ).*\n)+)", golden)
    compiles = {
        name: all(": compiles" in line for line in lines.splitlines()) for name, lines in found
    }
    assert said == {name: "yes" if ok else "not yet" for name, ok in compiles.items()}
    assert set(said) == {p.name for p in (ROOT / "examples").glob("*.rpeg")}
