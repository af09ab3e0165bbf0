"""What commands write: refusals come first, nothing is half done, only folders bring folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.tools import output
from rpeg.tools.console import Failure
from tests.unit.tools.commands import Shell

CLUSTERS = Path(__file__).parents[3] / "clusters"


def test_a_file_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "b.html"
    output.refuse(file, [])
    assert not file.exists(), "refusing writes nothing"
    output.write(file, "one")
    file.chmod(0o640)
    output.write(file, "two")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("two", 0o640)
    assert list(file.parent.iterdir()) == [file]


def test_what_fails_half_way_leaves_what_was_there(tmp_path: Path) -> None:
    file = tmp_path / "f.png"
    file.write_text("old")
    with pytest.raises(KeyboardInterrupt), output.replacing(file) as fresh:
        fresh.write_text("half")
        raise KeyboardInterrupt
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_links_stay_and_devices_are_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    output.write(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "text"
    output.write(Path("/dev/null"), "text")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    ("name", "why"), [("", "it is a folder"), ("file/x/y", "{0}/file is not a folder")]
)
def test_names_that_can_be_no_file(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Failure, match=why.format(tmp_path)):
        output.refuse(tmp_path / name, [])
    with pytest.raises(Failure, match="can't be written"):
        output.write(tmp_path / name, "")


@pytest.mark.parametrize(
    "words",
    [
        *("report p.rpeg -o", "report tiny -o", "simulate p.rpeg --trace", "calibrate -o"),
        *("validate-model --json", "validate-model --write-eras", "export none -o"),
        *("compile p.rpeg -o", "verify p.rpeg --keep"),
    ],
)
def test_commands_refuse_before_they_work(words: str, shell: Shell) -> None:
    before = shell.names()
    done = shell(*words.split(), "rows.jsonl/x.png" if "tiny" in words else "rows.jsonl/x.toml")
    assert done.code == 1
    assert "rows.jsonl" in done.err and len(done.err.splitlines()) == 1
    assert (done.out, shell.names()) == ("", before)


def test_a_picture_has_an_ending_that_says_how_it_is_drawn(shell: Shell) -> None:
    done = shell("report", "tiny", "-o", "x.bmp")
    assert (done.code, done.err) == (2, "error: x.bmp: a picture's name ends in .png, .svg, .pdf\n")


@pytest.mark.parametrize(
    "words",
    [
        *("report p.rpeg -o", "report tiny -o", "simulate p.rpeg --trace", "calibrate -o"),
        *("validate-model --json", "validate-model --write-eras"),
    ],
)
def test_files_go_into_folders_that_are_there(words: str, shell: Shell) -> None:
    before, ending = shell.names(), {"simulate": "json", "report": "html"}
    name = f"none/x.{ending.get(words.split()[0], 'toml') if 'tiny' not in words else 'png'}"
    done = shell(*words.split(), name)
    why = "there is no folder none: make it, or name another"
    assert (done.code, done.err) == (1, f"error: {name} can't be written: {why}\n")
    assert (done.out, shell.names()) == ("", before)


def test_a_folder_is_made_with_those_above(shell: Shell) -> None:
    done = shell("compile", "p.rpeg", "-o", "a/b/c")
    assert (done.code, done.err) == (0, "")
    assert (shell.folder / "a" / "b" / "c" / "launch.sh").is_file()


@pytest.mark.parametrize(
    ("words", "out"),
    [
        ("report p.rpeg --cluster c.toml -o", "p.rpeg"),
        ("report p.rpeg --cluster c.toml -o", "c.toml"),
        ("report ./p.rpeg:grpo --cluster c.toml -o", "link.html"),
        ("simulate p.rpeg --cluster c.toml --trace", "tiny/../p.rpeg"),
        ("simulate p.rpeg --cluster c.toml --arch actor=tiny/config.json --trace", "hard.json"),
        ("validate-model records --json", "records/r.jsonl"),
        ("compile tiny/in.rpeg --force -o", "tiny"),
        ("export tiny --force -o", "./tiny"),
    ],
)
def test_what_is_read_is_not_replaced(words: str, out: str, shell: Shell) -> None:
    shell.write(name="tiny/in.rpeg")
    (shell.folder / "tiny" / ".rpeg.json").write_text("{}")  # as in a package
    (shell.folder / "c.toml").write_text((CLUSTERS / "h100.toml").read_text())
    (shell.folder / "link.html").symlink_to("p.rpeg")
    (shell.folder / "hard.json").hardlink_to(shell.folder / "tiny" / "config.json")
    (shell.folder / "records").mkdir()
    (shell.folder / "records" / "r.jsonl").write_text("{}")
    before = {name: (shell.folder / name).read_bytes() for name in ("p.rpeg", "c.toml")}
    done = shell(*words.split(), out)
    assert (done.code, done.out) == (2, "")
    assert "to write\n" in done.err and "this command" in done.err
    assert before == {name: (shell.folder / name).read_bytes() for name in before}
    assert (shell.folder / "tiny" / "in.rpeg").exists()


@pytest.mark.parametrize(
    ("words", "ending"),
    [("report p.rpeg -o", ".html or .htm"), ("simulate p.rpeg --trace", ".json")],
)
def test_names_of_another_kind_of_file_are_refused(words: str, ending: str, shell: Shell) -> None:
    for name in ("rows.jsonl", "other.rpeg"):
        done = shell(*words.split(), name)
        assert done.code == 2
        assert done.err == f"error: {name}: the name must end in {ending}\n"
