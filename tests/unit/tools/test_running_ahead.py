"""`--staleness`: what a pass makes of a text is compiled, and is another program than the text."""

from __future__ import annotations

import re

import pytest

from tests.unit.passes.pipelines import place
from tests.unit.tools.commands import Shell
from tests.unit.tools.opt import opt

ALLOW = ("  step i", "  allow bounded_async(staleness=4)\n  step i")


def program(shell: Shell, out: str, *options: str, file: str = "p.rpeg") -> str:
    """The program that a text is compiled to for one process, without the name of its file."""
    done = shell("compile", file, "--processes", "1", "-o", str(shell.folder / out), *options)
    assert done.code == 0, done.err
    text = (shell.folder / out / "program_all.py").read_text(encoding="utf-8")
    return re.sub(r"from \w+\.rpeg", "from p.rpeg", text)


def identity(text: str) -> str:
    found = re.search(r'source_sha256="(\w+)"', text)
    assert found is not None
    return found[1]


def test_the_program_works_ahead(shell: Shell) -> None:
    shell.write(ALLOW)
    found = program(shell, "out", "--staleness", "2", "--correction", "icepop")
    assert "y_buffer.ahead(i)" in found and "capacity=3, max_lag=2" in found
    assert re.search(r"rt\.importance\(.*floor=0\.5, cap=5\.0, mode=\"mask\"", found)


def test_a_run_of_it_is_no_run_of_the_text(shell: Shell) -> None:
    """Nor of another staleness; one of the text that says the same is."""
    shell.write(ALLOW)
    texts = [program(shell, f"out{k}", "--staleness", k) for k in ("0", "1", "2")]
    assert program(shell, "out") == texts[0]
    assert len({identity(text) for text in texts}) == 3
    step = "rpeg-bounded-async{staleness=2}"
    written = rewritten(shell, step)
    shell.write(text=written, name="q.rpeg")
    assert program(shell, "same", file="q.rpeg") == texts[2]


def rewritten(shell: Shell, passes: str) -> str:
    done = opt(str(shell.folder / "p.rpeg"), "-p", passes, "-t", "rpeg")
    assert done.code == 0, done.err
    return done.out


@pytest.mark.parametrize("command", ["compile", "run", "verify"])
def test_what_is_refused_has_a_place(shell: Shell, command: str) -> None:
    text = shell.write(ALLOW)
    more = ["-o", str(shell.folder / "out")] if command == "compile" else []
    done = shell(command, "p.rpeg", "--staleness", "5", *more)
    assert done.code == 1
    at = place(text, "generate(actor")
    assert f"p.rpeg:{at}: error: `y` would be up to 5 steps old, the file allows 4" in done.err
    assert "out" not in shell.names()


def test_permission_is_asked_for(shell: Shell) -> None:
    shell.write()
    done = shell("compile", "p.rpeg", "--staleness", "1", "-o", str(shell.folder / "out"))
    assert done.code == 1 and "add `allow bounded_async(...)` to permit it" in done.err


def test_a_correction_of_nothing(shell: Shell) -> None:
    shell.write(ALLOW)
    done = shell("run", "p.rpeg", "--correction", "icepop")
    assert (done.code, done.out) == (2, "")
    assert "--correction is for what --staleness changes: give both" in done.err
