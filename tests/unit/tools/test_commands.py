"""`rpeg` from the outside: exit codes, messages with place and way out, no half output."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rpeg.resources import resource
from rpeg.tools.rpeg import COMMANDS
from tests.unit.passes.pipelines import GRPO, grpo, place
from tests.unit.tools.commands import PLAN, Shell, message

ROOT = Path(__file__).parents[3]
READERS = ["check", "compile -o out", "run", "fmt"]
OTHERS = "give a file, such as binary.rpeg, p.rpeg"


# ---- inputs that are none


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("none.rpeg", f"none.rpeg: No such file or directory; {OTHERS}"),
        ("none.rpeg:p", f"none.rpeg: No such file or directory; {OTHERS}"),
        ("tiny/x", "tiny/x: No such file or directory; give the path of a .rpeg file"),
        ("pp.rpeg", "pp.rpeg: No such file or directory; did you mean p.rpeg?"),
        ("tiny", "tiny: Is a directory; give the path of a .rpeg file"),
        (".", f".: Is a directory; {OTHERS}"),
        ("binary.rpeg", "binary.rpeg:2:6: this is not UTF-8 text (byte 14 of the file)"),
    ],
    ids=["missing", "with a pipeline", "nothing near", "near", "folder", "full folder", "binary"],
)
def test_files(command: str, name: str, text: str, shell: Shell) -> None:
    (shell.folder / "binary.rpeg").write_bytes(b"rpeg 0.1\nrpeg \xff\xfe")
    before = shell.names()
    done = shell(*command.split(), name)
    if command == "fmt" and name.endswith(":p"):
        text = f"none.rpeg: No such file or directory; {OTHERS}"
    assert (done.code, done.out, done.err) == (1, "", f"error: {text}\n")
    assert shell.names() == before


def test_check_takes_several_files(shell: Shell) -> None:
    shell.write(name="good.rpeg")
    shell.write(("n=2", "m=2"), name="bad.rpeg")
    done = shell("check", "bad.rpeg", "good.rpeg")
    assert done.code == 1
    assert done.err.startswith("bad.rpeg:")
    assert done.out.startswith("good.rpeg:p: no errors")


def test_a_file_that_can_not_be_read_hides_no_other(shell: Shell) -> None:
    (shell.folder / "binary.rpeg").write_bytes(b"\xff")
    shell.write(("n=2", "m=2"), name="bad.rpeg")
    shell.write(name="lines.mlir")
    names = ("binary.rpeg", "none.rpeg", "tiny", "lines.mlir", "bad.rpeg", "p.rpeg")
    done = shell("check", *names)
    assert done.code == 2, "the command is wrong for lines.mlir"
    assert done.err.startswith("error: binary.rpeg:1:1: this is not UTF-8 text")
    for name in names[:-1]:
        assert re.search(rf"^(error: )?(rpeg check takes .*)?{name}", done.err, re.M), name
    assert done.out.startswith("p.rpeg:p: no errors")
    found = json.loads(shell("check", *names, "--json").out)
    assert [(d["file"], d["line"] is None) for d in found] == [
        *(("binary.rpeg", False), ("none.rpeg", True), ("tiny", True), ("lines.mlir", True)),
        ("bad.rpeg", False),
    ]
    fmt = shell("fmt", "--check", "none.rpeg", "p.rpeg")
    assert (fmt.code, message(fmt.err)[:16]) == (1, "error: none.rpeg")


@pytest.mark.parametrize(
    ("words", "file", "rule"),
    [
        ("explain bad.rpeg", "bad.rpeg", "unknown-setting"),
        ("simulate bad.rpeg", "bad.rpeg", "unknown-setting"),
        ("diff bad.rpeg p.rpeg", "bad.rpeg", "unknown-setting"),
        ("explain p.rpeg", None, None),
        ("explain binary.rpeg", "binary.rpeg", None),
        ("rollouts none", None, None),
        ("check p.rpeg --cluster cpu --arch x", None, None),
    ],
)
def test_failures_as_json(words: str, file: str | None, rule: str | None, shell: Shell) -> None:
    """In the form of rpeg check --json, whatever the command."""
    (shell.folder / "binary.rpeg").write_bytes(b"\xff")
    shell.write(("n=2", "m=2"), name="bad.rpeg")
    done = shell(*words.split(), "--json")
    told = json.loads(done.out)["messages"][0]
    assert done.code > 0
    assert (told["file"], told["rule"], told["severity"]) == (file, rule, "error")
    assert (told["line"] is None) == (file is None)
    assert set(told) == {"file", "line", "column", "severity", "message", "rule"}


def test_control_characters_are_escaped(shell: Shell) -> None:
    (shell.folder / "nul.rpeg").write_bytes(b"rpeg 0.1\n\x1b[31m\x00")
    done = shell("check", "nul.rpeg")
    assert done.code == 1
    assert "\\x1b[31m\\x00" in done.err and "\x00" not in done.err and "\x1b" not in done.err


@pytest.mark.parametrize("command", ["check", "compile -o out", "run"])
def test_unknown_pipeline(command: str, shell: Shell) -> None:
    done = shell(*command.split(), "p.rpeg:q")
    assert done.code == 1
    assert "`q`" in message(done.err)
    assert "p" in message(done.err)
    assert "out" not in shell.names()


@pytest.mark.parametrize("command", ["compile -o out", "run"])
def test_two_pipelines(command: str, shell: Shell) -> None:
    other = grpo().removeprefix("rpeg 0.1\n").replace("pipeline p", "pipeline other")
    shell.write(text=grpo() + other, name="two.rpeg")
    done = shell(*command.split(), "two.rpeg")
    assert done.code == 2
    assert done.err == (
        "error: two.rpeg holds 2 pipelines; choose one: two.rpeg:p two.rpeg:other\n"
    )
    assert shell("check", "two.rpeg").code == 0


# ---- params


@pytest.mark.parametrize("command", ["check", "compile -o out", "run"])
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("sise=2", ["`sise`", "did you mean `size`"]),
        ("size=many", ["size"]),
        ("size", ["size"]),
    ],
    ids=["name", "kind", "no value"],
)
def test_set(command: str, given: str, words: list[str], shell: Shell) -> None:
    shell.write(("  model actor", "  param size = 4\n  model actor"), ("size=4", "size=$size"))
    before = shell.names()
    done = shell(*command.split(), "p.rpeg", "--set", given)
    assert done.code == 1
    for word in words:
        assert word in done.err
    assert shell.names() == before


def test_set_takes_effect(shell: Shell) -> None:
    shell.write(("  model actor", "  param size = 4\n  model actor"), ("size=4", "size=$size"))
    assert shell("compile", "p.rpeg", "-o", "out", "--set", "size=6", "--processes", "3").code == 0
    assert "batch(size=6" in (shell.folder / "out" / "program_all.py").read_text()


# ---- what does not compile


def refused(shell: Shell, text: str, at: str, why: str, *words: str) -> None:
    """A command stops with this message at this place, and leaves nothing behind."""
    shell.write(text=text)
    before = shell.names()
    done = shell(*words)
    assert done.code == 1
    assert message(done.err) == f"p.rpeg:{place(text, at)}: error: {why}"
    assert done.err.splitlines()[1].strip() == next(
        line.strip() for line in text.splitlines() if at in line
    )
    assert shell.names() == before


def test_a_batch_that_does_not_divide(shell: Shell) -> None:
    why = (
        "a batch of 4 rows does not divide over 3 processes (dp=3): write a multiple of 3, or a dp "
        "that divides 4, such as 2"
    )
    refused(shell, GRPO, "generate(", why, *("compile", "p.rpeg", "-o", "out", "--processes", "3"))


def test_context_parallel_plan(shell: Shell) -> None:
    why = "par(dp=2, cp=2): context parallelism (cp) does not compile yet: write cp=1"
    text = grpo().removesuffix("}\n") + PLAN.replace("tp=2", "cp=2") + "}\n"
    refused(shell, text, "y on", why, *("compile", "p.rpeg", "-o", "out", "--plan", "wide"))


@pytest.mark.parametrize("name", ["tp2sp", "dp2zero1", "pp2vpp2"])
def test_a_layout_by_name(name: str, shell: Shell) -> None:
    shell.write()
    done = shell("compile", "p.rpeg", "-o", "out", "--layout", name)
    assert done.code == 0, done.err
    assert "out: 2 processes" in done.out


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tq2", "`tq2` is not a layout: a name is dpN, tpN, "),
        ("cp2", "`cp2`: context parallelism (cp) does not compile yet"),
    ],
)
def test_layouts_that_have_no_name(name: str, why: str, shell: Shell) -> None:
    shell.write()
    done = shell("compile", "p.rpeg", "-o", "out", "--layout", name)
    assert done.code == 2
    assert done.err.startswith(f"error: {why}")


@pytest.mark.parametrize("other", [("--plan", "two"), ("--processes", "2")])
def test_a_layout_is_all_there_is_to_say(other: tuple[str, str], shell: Shell) -> None:
    shell.write()
    done = shell("compile", "p.rpeg", "-o", "out", "--layout", "tp2", *other)
    assert done.code == 2
    assert "not allowed with argument" in done.err


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("tp4", "2 key-value heads can't be split 4 ways (tp=4): write a divisor"),
        ("pp3", "2 layers can't be split 3 ways (pp=3): write a divisor"),
        ("pp2vpp2", "2 layers can't be split 4 ways (pp=2 x vpp=2): write a divisor"),
    ],
)
def test_layouts_that_do_not_fit_the_model(layout: str, why: str, shell: Shell) -> None:
    text = shell.write(('"tiny"', '"models/tiny-qwen2"'))
    done = shell("compile", "p.rpeg", "-o", "out", "--layout", layout)
    assert done.code == 1
    for model, at in (("actor", '"models/tiny'), ("ref", "actor@0")):
        assert f"p.rpeg:{place(text, at)}: error: `{model}`: {why}" in done.err


def test_layouts_that_do_not_fit_a_known_shape(shell: Shell) -> None:
    """A model of the hub that `architectures/` has, and one that a run exported."""
    why = "2 key-value heads can't be split 7 ways (tp=7): write a divisor"
    text = shell.write(('"tiny"', '"hf:Qwen/Qwen2.5-0.5B-Instruct"'))
    done = shell("compile", "p.rpeg", "-o", "out", "--layout", "tp7")
    assert done.code == 1
    at = place(text, '"hf:Qwen')
    assert f"p.rpeg:{at}: error: `actor`: {why}" in done.err
    run = shell.folder / "runs" / "warm"
    run.mkdir(parents=True)
    (run / "exports.jsonl").write_text('{"model": "actor", "step": 1, "path": "exports/1"}\n')
    shutil.copytree(resource("models/tiny-qwen2"), run / "exports" / "1")
    shell.write(('"tiny"', '"run:warm/actor"'))
    done = shell("compile", "p.rpeg", "-o", "out", "--layout", "tp4")
    assert (done.code, "2 key-value heads can't be split 4 ways (tp=4)" in done.err) == (1, True)


def test_a_model_of_the_same_file_is_known_before_its_run(shell: Shell) -> None:
    warm = grpo(('"tiny"', '"models/tiny-qwen2"'), ("pipeline p {", "pipeline warm {"))
    second = grpo(('"tiny"', '"run:warm/actor"')).removeprefix("rpeg 0.1\n")
    shell.write(text=warm + second)
    done = shell("compile", "p.rpeg:p", "-o", "out", "--layout", "tp4")
    assert (done.code, "2 key-value heads can't be split 4 ways (tp=4)" in done.err) == (1, True)
    assert shell("compile", "p.rpeg:p", "-o", "out", "--layout", "tp2").code == 0


def test_unknown_plan(shell: Shell) -> None:
    why = "there is no plan `wide`; the file has: none"
    refused(shell, GRPO, "p {", why, *("compile", "p.rpeg", "-o", "out", "--plan", "wide"))


@pytest.mark.parametrize("command", ["compile -o out", "run"])
def test_user_code_needs_permission(command: str, shell: Shell) -> None:
    text = grpo(("rule:exact_match", "python:mine:reward"))
    why = "user code runs only with --allow-python: read it first"
    refused(shell, text, '"python:mine', why, *command.split(), "p.rpeg")


def test_permission_of_user_code(shell: Shell) -> None:
    shell.write(("rule:exact_match", "python:mine:reward"))
    assert shell("compile", "p.rpeg", "-o", "out", "--allow-python", "--processes", "1").code == 0


def test_missing_data(shell: Shell) -> None:
    text = grpo(("rows.jsonl", "raws.jsonl"))
    why = (
        f"there is no {shell.folder / 'raws.jsonl'}: sources without a scheme are paths relative "
        "to the pipeline's file"
    )
    refused(shell, text, '"raws.jsonl', why, "run", "p.rpeg")


def test_missing_model(shell: Shell) -> None:
    text = grpo(('"tiny"', '"models/huge"'))
    shipped = ", ".join(
        sorted(f"models/{p.parent.name}" for p in ROOT.glob("models/*/config.json"))
    )
    why = (
        f"there is no folder {shell.folder / 'models' / 'huge'}, and no shipped model of this "
        f"name; shipped: {shipped}"
    )
    refused(shell, text, '"models/huge', why, "run", "p.rpeg")


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("tokenizer.json", None, "tiny is not a model folder: it has no tokenizer.json"),
        (
            "config.json",
            "{}",
            "tiny/config.json is not a model's configuration: it has no `model_type`",
        ),
        (
            "config.json",
            "8",
            "tiny/config.json is not a model's configuration: it has no `model_type`",
        ),
        (
            "config.json",
            "[",
            "tiny/config.json is not a model's configuration: it is not JSON: Expect",
        ),
    ],
    ids=["no tokenizer", "no kind", "no object", "no json"],
)
def test_folder_that_is_no_model(file: str, text: str | None, why: str, shell: Shell) -> None:
    path = shell.folder / "tiny" / file
    path.unlink() if text is None else path.write_text(text)
    for command, code, severity in (("check", 0, "warning"), ("run", 1, "error")):
        done = shell(command, "p.rpeg")
        assert done.code == code
        at = place(GRPO, '"tiny"')
        assert message(done.err).startswith(f"p.rpeg:{at}: {severity}: {shell.folder}/{why}")


def test_unknown_tasks(shell: Shell) -> None:
    text = shell.write(("rule:exact_match", "gym:count_down"))
    for command in ("check", "run", "compile -o out"):
        done = shell(*command.split(), "p.rpeg")
        assert done.code == 1
        at = place(text, '"gym:')
        why = "reasoning-gym has no task `count_down`; near: `gym:countdown`"
        assert message(done.err).startswith(f"p.rpeg:{at}: error: {why}")
    shell.write(("rule:exact_match", "gym:countdown"))
    assert shell("check", "p.rpeg").err == ""


def test_sources_are_not_needed_to_compile(shell: Shell) -> None:
    shell.write(("rows.jsonl", "raws.jsonl"))
    assert shell("compile", "p.rpeg", "-o", "out", "--processes", "1").code == 0


def test_errors_of_meaning(shell: Shell) -> None:
    shell.write(("score(correct, y)", "score(correct, q)"))
    before = shell.names()
    for command in (("check",), ("compile", "-o", "out"), ("run",)):
        done = shell(*command, "p.rpeg")
        assert done.code == 1
        assert re.match(r"p\.rpeg:\d+:\d+: error: score takes", done.err)
    assert shell.names() == before


# ---- packages


def test_compile(shell: Shell) -> None:
    done = shell("compile", "p.rpeg:p", "-o", "deep/out", "--processes", "2")
    assert (done.code, done.err) == (0, "")
    assert done.out == "deep/out: 2 processes; run it with deep/out/launch.sh\n"
    assert shell("compile", "p.rpeg", "-o", "deep/out", "--processes", "1").code == 0


def test_compile_from_an_edited_program(shell: Shell) -> None:
    shell("compile", "p.rpeg", "-o", "out", "--processes", "1")
    ir = (shell.folder / "out" / "program.mlir").read_text()
    shell.write(name="mine.mlir", text=ir.replace("coef = 1.000000e-01", "coef = 5.000000e-01"))
    assert shell("compile", "mine.mlir", "-o", "mine").code == 0
    assert "coef=0.5" in (shell.folder / "mine" / "program_all.py").read_text()


def test_a_program_is_fixed(shell: Shell) -> None:
    shell("compile", "p.rpeg", "-o", "out", "--processes", "1")
    before = shell.names()
    for words in ("--layout tp2", "--plan wide", "--processes 5", "--set foo=1", "--staleness 1"):
        done = shell("compile", "out/program.mlir", "-o", "mine", *words.split())
        assert (done.code, done.out) == (2, "")
        assert f"fixed: leave out {words.split()[0]}, or compile the .rpeg text" in done.err
    done = shell(
        *["compile", "out/program.mlir", "-o", "mine", "--order", "completion", "--set", "a=1"]
    )
    assert done.code == 2 and "leave out --set and --order" in done.err
    assert shell.names() == before


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("p.rpeg", "p.rpeg is read by this command: choose a folder to write"),
        (".", ". holds p.rpeg, which this command reads: choose another folder to write"),
        ("tiny", "tiny exists and is not a package of rpeg: choose another folder, or delete it"),
    ],
)
def test_what_a_package_does_not_replace(out: str, said: str, shell: Shell) -> None:
    before = shell.names()
    done = shell("compile", "p.rpeg", "-o", out)
    assert done.code in (1, 2) and message(done.err).startswith(f"error: {said}")
    assert shell.names() == before


def test_the_working_folder_is_not_to_be_deleted(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shell.folder / "tiny")
    done = shell("compile", "../p.rpeg", "-o", ".")
    assert done.code == 1
    assert done.err == "error: . exists and is not a package of rpeg: choose another folder\n"


def test_folders_that_are_not_there(shell: Shell) -> None:
    told = "runs/none: there is no such folder; give that of a run, such as runs/grpo, or a .rpeg"
    assert told in shell("report", "runs/none").err
    assert "nope.rpeg: No such file" in shell("report", "nope.rpeg").err
    told = "error: nope: there is no such folder; give one that rpeg compile wrote\n"
    assert shell("launch", "nope").err == told


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("builtin.module {", "error:"),
        ("builtin.module {}", "this holds nothing"),
        ('builtin.module { rrt.program @p "all" 1 { } }', "expected a single block"),
    ],
    ids=["syntax", "empty", "meaning"],
)
def test_ir_that_is_no_program(text: str, said: str, shell: Shell) -> None:
    shell.write(name="mine.mlir", text=text)
    done = shell("compile", "mine.mlir", "-o", "out")
    assert done.code == 1
    assert message(done.err).startswith("mine.mlir:1:")
    assert said in message(done.err)
    assert not (shell.folder / "out").exists()


def test_run_takes_text(shell: Shell) -> None:
    shell.write(name="mine.mlir", text="builtin.module {}")
    done = shell("run", "mine.mlir")
    assert (done.code, done.out) == (2, "")
    assert "rpeg compile, then rpeg launch" in done.err


def test_foreign_and_edited_folders(shell: Shell) -> None:
    (shell.folder / "empty").mkdir()
    done = shell("compile", "p.rpeg", "-o", "empty", "--processes", "1")
    assert done.code == 0, "an empty folder is taken"
    with (shell.folder / "empty" / "program_all.py").open("a") as file:
        file.write("# mine\n")
    done = shell("compile", "p.rpeg", "-o", "empty", "--processes", "1")
    assert done.code == 1
    assert "--force to lose the edits" in done.err
    done = shell("compile", "p.rpeg", "-o", ".", "--force", "--processes", "1")
    assert done.code == 2
    assert ". holds p.rpeg, which this command reads" in done.err


def test_a_folder_that_cannot_be_written(shell: Shell) -> None:
    """Only the path that was given is named, no other that is made on the way."""
    for path, why in (("p.rpeg/out", "p.rpeg is not a folder"), ("/proc/out", "No such file")):
        done = shell("compile", "p.rpeg", "-o", path, "--processes", "1")
        assert done.code == 1
        assert done.err.startswith(f"error: {path} can't be written: {why}")
        assert len(done.err.splitlines()) == 1
    assert "the name of the folder is empty" in shell("compile", "p.rpeg", "-o", "").err


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5"])
def test_processes(number: str, shell: Shell) -> None:
    done = shell("compile", "p.rpeg", "-o", "out", f"--processes={number}")
    assert done.code == 2
    assert f"expected a whole number of at least 1, not {number}" in done.err


@pytest.mark.parametrize("command", ["run p.rpeg", "launch out", "generate tiny x"])
@pytest.mark.parametrize("number", ["-1", "two"])
def test_seeds(command: str, number: str, shell: Shell) -> None:
    done = shell(*command.split(), f"--seed={number}")
    assert done.code == 2
    assert f"expected a whole number of at least 0, not {number}" in done.err


# ---- check


def test_check(shell: Shell) -> None:
    done = shell("check", "p.rpeg")
    assert done.code == 0
    assert re.fullmatch(r"p\.rpeg:p: no errors \(\d+ operations\)\n", done.out)


def test_check_as_json(shell: Shell) -> None:
    text = shell.write(("score(correct, y)", "score(correct, q)"))
    done = shell("check", "p.rpeg", "--json")
    (found,) = json.loads(done.out)
    assert done.code == 1
    assert f"{found['line']}:{found['column']}" == place(text, "q)\n    lp_old")
    assert (found["file"], found["severity"]) == ("p.rpeg", "error")


def test_params(shell: Shell) -> None:
    shell.write(("  model actor", "  param size = 4\n  model actor"), ("size=4", "size=$size"))
    assert shell("check", "p.rpeg", "--params", "--set", "size=6").out == "# p\nsize = 6\n"


# ---- fmt


def test_fmt(shell: Shell) -> None:
    shell("fmt", "p.rpeg")
    canonical = (shell.folder / "p.rpeg").read_text()
    assert shell("fmt", "--check", "p.rpeg").code == 0
    (shell.folder / "p.rpeg").write_text(canonical.replace("size=4", "size  =  4"))
    done = shell("fmt", "--check", "p.rpeg")
    assert (done.code, done.out) == (
        1,
        "p.rpeg: not in canonical form; rpeg fmt p.rpeg writes it\n",
    )
    done = shell("fmt", "p.rpeg")
    assert (done.code, done.out) == (0, "p.rpeg: formatted\n")
    assert (shell.folder / "p.rpeg").read_text() == canonical


def test_fmt_leaves_what_it_cannot_read(shell: Shell) -> None:
    shell.write(text="rpeg 0.1\npipeline p {")
    done = shell("fmt", "p.rpeg")
    assert done.code == 1
    assert message(done.err).startswith("p.rpeg:2:")
    assert (shell.folder / "p.rpeg").read_text() == "rpeg 0.1\npipeline p {"


# ---- the command line itself


def test_a_reader_that_goes_away(shell: Shell) -> None:
    rows = "".join(f"  param p{k} = {k}\n" for k in range(1000))
    shell.write(("  model actor", rows + "  model actor"))
    call = f"{sys.executable} -m rpeg.tools.rpeg check p.rpeg --json | head -1"
    run = subprocess.run(
        ["bash", "-c", call],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (run.stdout, run.stderr) == ("[\n", "")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help(command: str, shell: Shell, update_golden: bool) -> None:
    done = shell(*filter(None, [command]), "--help")
    path = ROOT / "tests" / "golden" / "help" / f"{command or 'rpeg'}.golden"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(done.out)
    assert done.code == 0
    assert done.out == path.read_text()


def test_wrong_calls(shell: Shell) -> None:
    assert shell().code == 2
    assert "there is no command `trian`" in shell("trian", "p.rpeg").err
    assert "`chek`; did you mean `check`?" in shell("chek", "p.rpeg").err
    assert "commands: run, check, " in shell("frobnicate").err
    option = shell("check", "--jsn", "p.rpeg")
    assert option.err.startswith("usage: rpeg check ")
    assert "unrecognized arguments: --jsn; did you mean `--json`?" in option.err
    assert shell("compile", "p.rpeg").code == 2
    both = shell("compile", "p.rpeg", "-o", "out", "--plan", "a", "--processes", "1")
    assert "not allowed with argument" in both.err
    assert shell("--version").out.startswith("rpeg 0.")
