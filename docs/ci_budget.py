"""Writes docs/ci.md, the table of what runs where and for how long, from what `.ci/run` measured.

    bash .ci/run
    python docs/ci_budget.py

`.ci/run` leaves its figures in build/ci/: parts.tsv (part, seconds), test.xml and slow.xml (JUnit's
form, as pytest writes it). What has no figure there is a row all the same, with a dash.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
FIGURES = ROOT / "build" / "ci"
PAGE = ROOT / "docs" / "ci.md"

HEAD = """\
# What runs where, and for how long

<!-- Written by docs/ci_budget.py from the figures of `bash .ci/run`. -->

`bash .ci/run` decides whether a change lands. It stops at the first part that fails, and after
{limit} minutes in any case. The parts below ran on {cores} cores without a GPU. All of `make test`
has to stay under 12 minutes there: a test, or a torchrun of several, that takes more than about
20 seconds is marked `slow`, and runs in `make test-slow` and in `.ci/run` only.

<!-- not run: all of continuous integration -->
```console
$ bash .ci/run
$ python docs/ci_budget.py
```

The second command writes this page anew from the figures of the first. A test fails where a part, a
folder of tests or a slow module has no row here.
"""


@dataclass
class Suite:
    """Seconds and numbers of tests of one suite, by folder and by module."""

    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    tests: Counter[str] = field(default_factory=Counter)

    def add(self, module: str, seconds: float) -> None:
        """Counts a test for its module and for the module's folder."""
        for name in (module, module.rpartition("/")[0]):
            self.seconds[name] += seconds
            self.tests[name] += 1

    def row(self, name: str) -> str:
        """`| name | tests | seconds |`."""
        if name not in self.tests:
            return f"| `{name}` | - | - |"
        return f"| `{name}` | {self.tests[name]} | {self.seconds[name]:.0f} |"


def parts() -> dict[str, str]:
    """Part of `.ci/run` -> the command that it runs."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    found = re.findall(r"^part ([\w-]+) (.+)$", text, flags=re.M)
    return {
        name: command.replace("$bin/", "").partition(" PYTEST_ARGS=")[0] for name, command in found
    }


def limit() -> int:
    """Minutes that `.ci/run` may take."""
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    return int(re.findall(r"^limit=\$\(\((\d+) \* 60\)\)", text, flags=re.M)[0])


def test_folders() -> list[str]:
    """Folders that hold tests, relative to the root."""
    tests = [*_tests("test_*.py"), *_tests("filecheck/**/*.rpeg"), *_tests("filecheck/**/*.mlir")]
    return sorted({str(path.parent.relative_to(ROOT)) for path in tests})


def slow_modules() -> list[str]:
    """Test modules with a test that is marked slow, relative to the root."""
    return sorted(
        str(path.relative_to(ROOT))
        for path in _tests("test_*.py")
        if "pytest.mark.slow" in path.read_text(encoding="utf-8")
    )


def _tests(pattern: str) -> Iterable[Path]:
    return (ROOT / "tests").rglob(pattern)


def read_suite(junit: Path) -> Suite:
    """The figures of a suite; none where the file is not there."""
    suite = Suite()
    for case in ElementTree.parse(junit).iter("testcase") if junit.exists() else ():
        suite.add(_module(case.attrib["classname"]), float(case.attrib["time"]))
    return suite


def _module(classname: str) -> str:
    """The file of a test: `tests.unit.ir.test_parse` -> `tests/unit/ir/test_parse.py`."""
    folder, names = Path(), classname.split(".")
    while names and (ROOT / folder / names[0]).is_dir():
        folder /= names.pop(0)
    lit = len(names) > 1 and names[-1] in ("rpeg", "mlir")
    return str(folder / (".".join(names) if lit else f"{names[0]}.py"))


def read_parts(path: Path) -> Mapping[str, int]:
    """Part -> seconds; none where the file is not there."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else ()
    return {name: int(seconds) for name, seconds in (line.split("\t") for line in lines)}


def page() -> Iterator[str]:
    """The lines of the page."""
    yield HEAD.format(limit=limit(), cores=os.cpu_count())
    seconds = read_parts(FIGURES / "parts.tsv")
    yield "| part | runs | seconds |\n|---|---|---|"
    for name, command in parts().items():
        yield f"| {name} | `{command}` | {seconds.get(name, '-')} |"
    yield f"| all | | {sum(seconds.values())} |"
    yield "\n## The default suite, by folder\n"
    yield "Seconds of all tests together; two workers share them.\n"
    yield from _table("folder", test_folders(), read_suite(FIGURES / "test.xml"))
    yield "\n## The slow suite, by module\n"
    yield "Two workers share these too, a module at a time.\n"
    yield from _table("module", slow_modules(), read_suite(FIGURES / "slow.xml"))


def _table(kind: str, names: list[str], suite: Suite) -> Iterator[str]:
    yield f"| {kind} | tests | seconds |\n|---|---|---|"
    yield from (suite.row(name) for name in names)


def missing(text: str) -> list[str]:
    """What has no row in the page's text."""
    rows = set(re.findall(r"^\| `?([\w./-]+)`? \|", text, flags=re.M))
    return [name for name in (*parts(), *test_folders(), *slow_modules()) if name not in rows]


def main() -> int:
    """Writes the page. Without any figures it writes nothing."""
    if not (FIGURES / "parts.tsv").exists():
        print(f"{FIGURES} holds no figures: run `bash .ci/run` first", file=sys.stderr)
        return 1
    PAGE.write_text("\n".join(page()) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
