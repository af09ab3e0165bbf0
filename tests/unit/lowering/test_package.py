"""What `rpeg compile` writes: whole or not at all, and never over anything that is not its own."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from rpeg.frontend.resolve import identity
from rpeg.ir.text.parse import parse_module
from rpeg.lowering.package import CannotWrite, Package, package, write
from rpeg.lowering.python import Origin, source_hash
from rpeg.tools.console import Source
from tests.unit.lowering.compiled import compiled, program_of, text_of
from tests.unit.passes.pipelines import grpo

FILES = {"a.py": "a = 1\n", "launch.sh": "exit 0\n"}


def tree(folder: Path) -> dict[str, str]:
    paths = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): p.read_text() for p in paths}


def test_writing(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    write(Package(FILES), out)
    assert {name: (out / name).read_text() for name in FILES} == FILES
    assert os.access(out / "launch.sh", os.X_OK)
    assert not os.access(out / "a.py", os.X_OK)
    assert [p.name for p in out.parent.iterdir()] == ["out"]


def test_the_same_again_and_new_text(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(Package(FILES), out)
    write(Package({"b.py": "b = 1\n"}), out)
    assert [p.name for p in out.iterdir() if p.name[0] != "."] == ["b.py"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(Package(FILES), tmp_path / "out")
    assert (tmp_path / "out" / "a.py").exists()


EDITS = {
    "changed": lambda out: (out / "a.py").write_text("a = 2\n"),
    "deleted": lambda out: (out / "a.py").unlink(),
    "added": lambda out: (out / "notes.txt").write_text("mine"),
    "listing": lambda out: (out / ".rpeg.json").write_text("{"),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_package(edit: object, tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(Package(FILES), out)
    assert callable(edit)
    edit(out)
    before = tree(tmp_path)
    with pytest.raises(CannotWrite, match=r"was edited since .* --force"):
        write(Package({"b.py": "b = 1\n"}), out)
    assert tree(tmp_path) == before
    write(Package(FILES), out, force=True)
    assert (out / "a.py").read_text() == "a = 1\n"
    assert not (out / "notes.txt").exists()


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_is_not_ours_is_never_replaced(kind: str, force: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    if kind == "folder":
        out.mkdir()
        (out / "thesis.tex").write_text("years")
    else:
        out.write_text("years")
    before = tree(tmp_path)
    with pytest.raises(CannotWrite, match="is not a package of rpeg"):
        write(Package(FILES), out, force=force)
    assert tree(tmp_path) == before


def test_a_write_that_fails_leaves_what_was(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(Package(FILES), out)
    before = tree(tmp_path)
    with pytest.raises(OSError):
        write(Package({"c.py": "c = 1\n", "no/such/folder.py": ""}), out)
    assert tree(tmp_path) == before
    with pytest.raises(OSError):
        write(Package({"no/such/folder.py": ""}), tmp_path / "fresh")
    assert tree(tmp_path) == before


def canonical(text: str) -> str:
    """What of the text a run is known by, as the formatter lays it out."""
    file, problems = parse(text, "p.rpeg")
    assert file is not None, problems
    return render(identity(file))


def made(root: str = "..", name: str = "p.rpeg") -> dict[str, str]:
    module = compiled(Source(Path(name), grpo()), processes=2)
    return dict(package(module, Origin(name, source_hash(program_of(module))), root).files)


def test_what_is_in_it() -> None:
    files = made()
    assert list(files) == ["program_all.py", "plan.json", "program.mlir", "launch.sh", "README.md"]
    plan = json.loads(files["plan.json"])
    assert plan["programs"] == [{"pool": "all", "file": "program_all.py", "processes": 2}]
    assert plan["source"] == {
        "file": "p.rpeg",
        "sha256": hashlib.sha256(canonical(grpo()).encode()).hexdigest(),
    }
    assert (plan["pipeline"], plan["steps"]) == ("p", 10)
    again, _, problems = parse_module(files["program.mlir"], "program.mlir")
    assert again is not None, problems
    assert text_of(again) == files["program_all.py"]
    for name in files:
        assert name in files["README.md"] or name == "README.md"


@pytest.mark.parametrize("root", ["..", ".", "../my pipelines", '../it\'s $HOME `x` "q"'])
def test_the_launcher_finds_sources_from_anywhere(root: str, tmp_path: Path) -> None:
    """With an interpreter that only says how it was called."""
    out = tmp_path / "a package"
    write(Package(made(root)), out)
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$RPEG_ROOT"; for word; do echo "$word"; done\n')
    python.chmod(0o755)
    call = ["bash", str(out / "launch.sh"), "--more", "a b"]
    environment = {**os.environ, "PYTHON": str(python)}
    environment.pop("RPEG_ROOT", None)
    said = subprocess.run(
        call, cwd="/", env=environment, capture_output=True, text=True, check=True
    )
    where, *words = said.stdout.splitlines()
    assert where == f"{out}/{root}"
    assert words == [
        *("-m", "rpeg.runtime.launch", "--standalone", "--nproc-per-node", "2"),
        *(str(out / "program_all.py"), "--more", "a b"),
    ]
    mine = environment | {"RPEG_ROOT": "/elsewhere"}
    said = subprocess.run(call, env=mine, capture_output=True, text=True, check=True)
    assert said.stdout.splitlines()[0] == "/elsewhere"


def test_texts_of_a_package_name_no_machine() -> None:
    for name, text in made().items():
        assert str(Path.cwd()) not in text, name
        assert shlex.quote(sys.executable) not in text, name
