"""The commands that the documentation shows work, and print what it shows.

In README.md and docs/**/*.md a fenced block `console` holds lines `$ command`, each followed by
what it prints. The shown lines must come in that order in the real output; other lines may stand
between, and `...` inside a line stands for anything. `<!-- not run: reason -->` on the line before
a block skips it. The blocks of one page run in order, in one scratch folder that sees the
checkout's folders.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SLOW = {"generate-eval-export.md", "verify.md"}
"""Pages that train."""
LENT = ("clusters", "data", "docs", "examples", "models")
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n+)?```console\n(?P<body>.*?)^```$", re.M | re.S
)


@dataclass(frozen=True)
class Command:
    line: str
    shown: tuple[str, ...]


def commands(page: str) -> Iterator[Command]:
    """The commands of a page's blocks, in order, without those of skipped blocks."""
    for block in BLOCK.finditer(page):
        if block["skip"]:
            continue
        for part in re.split(r"^\$ ", block["body"], flags=re.M)[1:]:
            line, *shown = part.replace("\\\n", "").splitlines()
            yield Command(line, tuple(text for text in shown if text.strip()))


def missing(shown: tuple[str, ...], output: str) -> str | None:
    """The first shown line that does not come, in order, in the output."""
    printed = iter(output.splitlines())
    for line in shown:
        pattern = ".*".join(re.escape(part) for part in line.strip().split("..."))
        if not any(re.fullmatch(pattern, text.strip()) for text in printed):
            return line
    return None


def test_blocks_are_read() -> None:
    skipped = "<!-- not run: long -->\n```console\n$ d\n```\n"
    page = "```console\n$ a \\\n  b\nx\n$ c\n```\n"
    assert list(commands(page)) == [Command("a   b", ("x",)), Command("c", ())]
    assert list(commands(skipped + page + skipped)) == list(commands(page))


def test_output_is_compared() -> None:
    assert missing(("a 1", "z ...s"), "a 1\nb\nz 12 s\n") is None
    assert missing(("z", "a"), "a\nz\n") == "a"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(ROOT)),
            marks=[pytest.mark.slow] if page.name in SLOW else [],
        )
        for page in PAGES
    ],
)
def test_page(page: Path, tmp_path: Path) -> None:
    for name in LENT:
        (tmp_path / name).symlink_to(ROOT / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in commands(page.read_text(encoding="utf-8")):
        run = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command.line],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=300,
        )
        assert run.returncode == 0, f"$ {command.line}\n{run.stdout}"
        line = missing(command.shown, run.stdout)
        assert line is None, f"$ {command.line}\ndid not print: {line}\nbut:\n{run.stdout}"
