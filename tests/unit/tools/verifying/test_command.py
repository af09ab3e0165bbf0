"""What `rpeg verify` refuses, before anything runs."""

from __future__ import annotations

import pytest

from tests.unit.tools.commands import Shell


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["p.mlir"], 2, "rpeg verify takes .rpeg text"),
        (["p.rpeg", "--layouts", "dp2,cp2"], 2, "`cp2`: context parallelism (cp) does not compile"),
        (["p.rpeg", "--layouts", "dp2,xx"], 2, "`xx` is not a layout"),
        (["p.rpeg", "--layouts", "tp2,,pp2"], 2, "`` is not a layout"),
        (["p.rpeg", "--layouts", ""], 2, "`` is not a layout"),
        (["p.rpeg", "--layouts", "vpp2"], 2, "`vpp2`: vpp=2 cuts pipeline stages: write pp=2"),
        (["p.rpeg", "--layouts", "dp0"], 2, "`dp0` is not a layout"),
        (["p.rpeg", "--keep", "full"], 1, "full is not empty: name a new folder"),
        (["p.rpeg", "--model", "nowhere"], 1, "nowhere is not a model folder"),
        (["p.rpeg", "--set", "steps"], 1, "expected name=value"),
        (["p.rpeg", "--steps", "0"], 2, "expected a whole number of at least 1, not 0"),
    ],
)
def test_refusals(shell: Shell, words: list[str], code: int, said: str) -> None:
    shell.write()
    shell.write(name="p.mlir", text="builtin.module {}")
    (shell.folder / "full").mkdir()
    (shell.folder / "full" / "file").touch()
    done = shell("verify", *words)
    assert done.code == code, done
    assert said in done.err
    assert done.out == ""
