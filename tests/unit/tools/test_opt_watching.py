"""rpeg-opt around its passes: dumps, times, statistics, verification, crashes, completions."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.ops.sampling import GenerateOp
from rpeg.passes import PASSES
from rpeg.passes.base import Levels, RpegPass
from rpeg.tools.opt.timing import Timer
from rpeg.tools.rpeg import main as rpeg
from tests.unit.tools.opt import ROOT, opt

GRPO = str(ROOT / "examples" / "grpo_countdown.rpeg")
PIPELINE = "rpeg-canonicalize,rpeg-annotate-parallelism{dp=2}"


@dataclass(frozen=True)
class Crashes(RpegPass):
    """Raises what no pass should."""

    name = "rpeg-crash"
    LEVELS: ClassVar[Levels] = MappingProxyType({"L0": "L0", "L1": "L1"})

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        {}["nothing"]  # type: ignore[index]


@dataclass(frozen=True)
class Breaks(RpegPass):
    """Leaves IR that its verifier refuses."""

    name = "rpeg-break"
    LEVELS: ClassVar[Levels] = MappingProxyType({"L0": "L0", "L1": "L1"})

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        for inner in op.walk():
            if isinstance(inner, GenerateOp):
                del inner.properties["max_tokens"]


@pytest.fixture(autouse=True)
def bad_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASSES, Crashes.name, lambda: Crashes)
    monkeypatch.setitem(PASSES, Breaks.name, lambda: Breaks)


def dumps(err: str) -> list[str]:
    return re.findall(r"^// -----// IR Dump (.*) //----- //$", err, re.M)


@pytest.mark.parametrize(
    ("option", "wanted"),
    [
        (
            "before-all",
            ["Before rpeg-canonicalize", "Before rpeg-annotate-parallelism{dp=2}"],
        ),
        ("after-all", ["After rpeg-canonicalize", "After rpeg-annotate-parallelism{dp=2}"]),
        ("after-change", ["After rpeg-annotate-parallelism{dp=2}"]),
    ],
)
def test_dumps(option: str, wanted: list[str]) -> None:
    run = opt(GRPO, "-p", PIPELINE, f"--print-ir-{option}")
    assert run.code == 0
    assert dumps(run.err) == wanted
    if option != "before-all":
        assert run.err.endswith(f"//----- //\n{run.out}\n")


def test_a_dump_is_what_the_next_pass_gets() -> None:
    run = opt(GRPO, "-p", f"{PIPELINE},rpeg-schedule", "--print-ir-before-all")
    last = run.err.split("//----- //\n")[-1]
    assert last.rstrip() == opt(GRPO, "-p", PIPELINE).out.rstrip()


def test_the_pass_that_broke_the_ir_is_named() -> None:
    where = r"grpo_countdown\.rpeg:17:\d+: error: after rpeg-break: generate needs the setting"
    run = opt(GRPO, "-p", f"rpeg-canonicalize,{Breaks.name},cse", "--print-ir-after-all")
    assert (run.code, run.out) == (1, "")
    assert dumps(run.err) == ["After rpeg-canonicalize", "After rpeg-break Failed"]
    assert re.search(where, run.err), run.err
    late = opt(GRPO, "-p", f"{Breaks.name},cse", "--no-verify-each")
    assert late.code == 1
    assert re.search(where.replace("rpeg-break", "the passes"), late.err), late.err


def test_a_crash_leaves_a_reproducer(tmp_path: Path) -> None:
    file = tmp_path / "crash.mlir"
    run = opt(GRPO, "-p", f"{PIPELINE},{Crashes.name}", "--crash-reproducer", str(file))
    assert (run.code, run.out) == (1, "")
    assert "KeyError: 'nothing'" in run.err
    notes = [line for line in file.read_text().splitlines() if line.startswith("// ")]
    assert notes[0] == "// rpeg-crash crashed: KeyError: 'nothing'"
    assert opt(str(file)).out == opt(GRPO, "-p", PIPELINE).out
    command = shlex.split(notes[2].removeprefix("// "))
    assert command[0] == "rpeg-opt"
    assert "KeyError: 'nothing'" in opt(*command[1:]).err


def test_where_the_reproducer_is_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run = opt(GRPO, "-p", Crashes.name)
    (file,) = tmp_path.iterdir()
    assert f"the IR before it is in {file}; to see this again:\n  rpeg-opt {file} -p" in run.err


def test_a_refusal_is_no_crash(tmp_path: Path) -> None:
    run = opt(GRPO, "-p", "rpeg-schedule", "--crash-reproducer", str(tmp_path / "crash.mlir"))
    assert run.code == 1
    assert "Traceback" not in run.err
    assert list(tmp_path.iterdir()) == []


def test_times_are_a_tree() -> None:
    run = opt(GRPO, "-p", PIPELINE, "--time-passes")
    labels = [line.rpartition(" %   ")[2] for line in run.err.splitlines()[1:]]
    steps = ["    run", "    verify", "    rest"]
    assert labels == [
        "total",
        "  parse and verify",
        "  rpeg-canonicalize",
        *steps,
        "  rpeg-annotate-parallelism{dp=2}",
        *steps,
        "  print",
        "  rest",
    ]


def test_times_of_one_key_add_up() -> None:
    timer = Timer()
    with timer.whole():
        for number in (0, 1, 0):
            with timer.span("pass", number), timer.span("run"):
                pass
    assert [len(part.parts) for part in timer.total.parts.values()] == [1, 1]
    assert timer.total.wall >= sum(part.wall for part in timer.total.parts.values())


def test_statistics() -> None:
    run = opt(GRPO, "-p", PIPELINE, "--pass-statistics")
    blocks = re.split(r"^(?=\S)", run.err, flags=re.M)[1:]
    assert [block.splitlines()[0] for block in blocks] == PIPELINE.split(",")
    assert blocks[0].splitlines()[1:] == ["      29 -> 29 operations"]
    assert "       1 publishes made explicit\n" in blocks[1]


def test_statistics_of_chunks_add_up(tmp_path: Path) -> None:
    file = tmp_path / "two.rpeg"
    file.write_text("\n# -----\n".join([Path(GRPO).read_text()] * 2))
    run = opt(str(file), "-p", PIPELINE, "--pass-statistics", "--split-input-file")
    assert run.code == 0
    assert "       2 publishes made explicit\n" in run.err


def test_xdsl_counts_nothing() -> None:
    run = opt(GRPO, "-p", "cse", "--pass-statistics")
    assert run.err.splitlines() == ["cse", "      29 -> 29 operations"]


def test_remarks_stand_beside_the_output() -> None:
    plain = opt(GRPO, "-p", "rpeg-eliminate-reference")
    told = opt(GRPO, "-p", "rpeg-eliminate-reference", "--pass-remarks")
    where = f"{GRPO}:24:10: note: rpeg-eliminate-reference does not apply"
    assert told.err.splitlines()[0] == f"{where}: its coefficient is not 0"
    assert (told.code, told.out) == (0, plain.out)
    assert plain.err == ""


def test_xdsl_remarks_nothing() -> None:
    assert opt(GRPO, "-p", "cse", "--pass-remarks").err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("tool", ["rpeg", "rpeg-opt"])
def test_completions(tool: str, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = _script(tool, shell, capsys)
    words = ["rollouts", "temperature"] if tool == "rpeg" else ["print-ir-after-change", "target"]
    assert [word for word in words if word not in script] == []


def test_bash_reads_its_script(capsys: pytest.CaptureFixture[str]) -> None:
    script = _script("rpeg", "bash", capsys)
    ask = "COMP_WORDS=(rpeg ch) COMP_CWORD=1; _shtab_rpeg rpeg ch rpeg; echo ${COMPREPLY[@]}"
    run = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
    assert run.stdout.split() == ["check"], run.stderr


def _script(tool: str, shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    if tool == "rpeg-opt":
        return opt("--completion", shell).out
    with pytest.raises(SystemExit) as ended:
        rpeg(["--completion", shell])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_no_colour_where_none_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    from io import StringIO

    from rpeg.ir.text.diagnostics import Diagnostic, Position, show

    class Terminal(StringIO):
        isatty: Callable[[], bool] = lambda self: True

    monkeypatch.setenv("TERM", "xterm-256color")
    for value, coloured in (("1", False), ("", True)):
        monkeypatch.setenv("NO_COLOR", value)
        stream = Terminal()
        show([Diagnostic(Position(1, 1), "text", file="f")], {}, stream)
        assert ("\x1b[" in stream.getvalue()) == coloured
