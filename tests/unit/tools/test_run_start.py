"""What `rpeg run` says before its program speaks."""

from __future__ import annotations

import pytest

from tests.unit.tools.commands import Shell


@pytest.fixture(autouse=True)
def on_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rpeg.tools.commands.run.cores_here", lambda: 2)
    monkeypatch.setattr("rpeg.tools.commands.run.launch", lambda package, variables: 0)


def test_each_stage_is_told_once(shell: Shell) -> None:
    done = shell("run", "p.rpeg", "--processes", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == ["compiled runs/p/program", "starting 2 processes"]


def test_more_processes_than_cores(shell: Shell) -> None:
    done = shell("run", "p.rpeg", "--layout", "dp4")
    assert done.code == 0
    said = "note: 4 processes share this machine's 2 cores: each waits for the others\n"
    assert done.err == said
