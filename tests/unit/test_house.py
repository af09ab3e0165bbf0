"""House rules that a machine can hold: small files, documented packages, nothing of one machine."""

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "rpeg").rglob("*.py"))
MAX_LINES = 600

# Written so that no pattern matches its own text.
OF_ONE_MACHINE = re.compile(
    r"(?<![\w.])[/](?:work|root|home|Users|opt)/\w"  # absolute paths of some machine
    r"|\.\./share[d]\b"
    r"|[f]ile:///"
    r"|(?:extra-)?index-ur[l]|find-link[s]"
    r"|https?://[\w.:-]+/simpl[e]\b"
)


def tracked_text() -> dict[str, str]:
    """Path -> text of every tracked text file."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    texts = {}
    for name in filter(None, listed.stdout.split("\0")):
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"\0"
        if b"\0" not in content:
            texts[name] = content.decode("utf-8", errors="replace")
    return texts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see /wor" + "k/main/x", True),
        ("pip install --index-ur" + "l=x", True),
        ("out/wor" + "k/x and a/op" + "t/b", False),
        ("https://arxiv.org/abs/2402.03300", False),
    ],
)
def test_pattern(text: str, found: bool) -> None:
    assert bool(OF_ONE_MACHINE.search(text)) == found


def test_nothing_of_one_machine() -> None:
    assert [
        f"{name}:{number}: {line.strip()}"
        for name, text in tracked_text().items()
        for number, line in enumerate(text.splitlines(), 1)
        if OF_ONE_MACHINE.search(line)
    ] == []


def test_files_are_small() -> None:
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {str(path): size for path, size in sizes.items() if size > MAX_LINES} == {}


def test_every_package_and_module_says_what_it_is() -> None:
    packages = {path.parent for path in MODULES}
    assert [str(folder) for folder in packages if not (folder / "__init__.py").is_file()] == []
    undocumented = [
        str(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_bytes()))
    ]
    assert undocumented == []
