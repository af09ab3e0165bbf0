"""The command line of rpeg-opt: formats, options, exit codes; no traceback whatever is asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.tools.opt import EXAMPLES, ROOT, opt

GRPO = str(ROOT / "examples" / "grpo_countdown.rpeg")
SFT = str(ROOT / "examples" / "sft_warmup.rpeg")
EXPECT = "expected-error"
BROKEN = """rpeg 0.1
pipeline p {
  model a = policy("x")
  data d = prompts("y")
  step i < 3 {
    q = batch(d, size=8)
    y, lp = generate(a, q, max_token=8)
  }
}
"""


def dumps(err: str) -> list[str]:
    return re.findall(r"^// -----// IR Dump (.*) //----- //$", err, re.M)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_becomes_mlir_and_text_again(path: Path) -> None:
    mlir = opt(str(path))
    assert (mlir.code, mlir.err) == (0, "")
    again = opt(stdin=mlir.out)
    assert (again.code, again.out) == (0, mlir.out)
    generic = opt("--print-op-generic", stdin=mlir.out)
    assert '"rpeg.update"' in generic.out
    assert opt(stdin=generic.out).out == mlir.out
    text = opt("-t", "rpeg", stdin=mlir.out)
    assert text.code == 0
    assert opt("-f", "rpeg", "-t", "rpeg", stdin=text.out).out == text.out


def test_places_are_printed_and_read() -> None:
    run = opt(GRPO, "--print-debuginfo")
    assert f'loc("{GRPO}":17:13)' in run.out
    wrong = run.out.replace("max_tokens = 64", "max_tokens = 0", 1)
    found = opt(stdin=wrong)
    assert found.code == 1
    assert found.messages == [f"{GRPO}:17:13: error: max_tokens=0: expected at least 1"]


def test_messages_show_the_line() -> None:
    run = opt("-f", "rpeg", stdin=BROKEN)
    assert run.code == 1
    assert run.out == ""
    assert run.err == (
        "<stdin>:7:28: error: generate has no setting `max_token`; did you mean `max_tokens`?\n"
        "        y, lp = generate(a, q, max_token=8)\n"
        "                               ^\n"
    )


def test_one_pipeline_of_a_file() -> None:
    assert "@after" in opt(SFT).out
    run = opt(f"{SFT}:sft_warmup")
    assert run.code == 0
    assert "@after" not in run.out
    assert "did you mean `after`" in opt(f"{SFT}:aftr").err


def test_params() -> None:
    assert "rpeg.step i < 7 (" in opt(GRPO, "--set", "steps=7").out
    assert opt(GRPO, "--set", "stepz=7").code == 1
    assert opt(GRPO, "--set", "steps").code == 2
    assert opt("--set", "steps=7", stdin=opt(GRPO).out).code == 2


def test_output_is_whole_or_not_there(tmp_path: Path) -> None:
    target = tmp_path / "out.mlir"
    assert opt(GRPO, "-o", str(target)).out == ""
    assert target.read_text() == opt(GRPO).out
    assert opt("-f", "rpeg", "-o", str(target), stdin=BROKEN).code == 1
    assert target.read_text() == opt(GRPO).out
    assert [path.name for path in tmp_path.iterdir()] == ["out.mlir"]
    assert opt(GRPO, "-o", str(target / "out.mlir")).code == 1
    nowhere = opt(GRPO, "-o", str(tmp_path / "new" / "out.mlir"))
    assert nowhere.code == 1 and f"there is no folder {tmp_path / 'new'}" in nowhere.err
    assert opt(GRPO, "-o", os.devnull).code == 0


def test_chunks_keep_the_lines_of_the_file(tmp_path: Path) -> None:
    good = Path(GRPO).read_text()
    file = tmp_path / "chunks.rpeg"
    file.write_text(f"{good}# -----\n{BROKEN}# -----\n{BROKEN}")
    run = opt(str(file), "--split-input-file")
    first = len(good.splitlines()) + 1
    assert run.code == 1
    assert run.out == ""
    assert [message.split(":")[1] for message in run.messages] == [
        str(first + 7),
        str(first + len(BROKEN.splitlines()) + 1 + 7),
    ]
    file.write_text(f"{good}// -----\n{good}")
    assert opt(str(file), "--split-input-file", "-t", "rpeg").out.count("# -----\n") == 1


def test_expected_messages() -> None:
    at = "generate(a, q, max_token=8)"
    exact = BROKEN.replace(at, f"{at} # expected-error@:28 {{{{no setting `max_token`}}}}")
    assert opt("-f", "rpeg", "--verify-diagnostics", stdin=exact).code == 0
    for wrong in ("@+1 {{no setting", "@:27 {{no setting", "{{no settings", "@-1:28 {{no setting"):
        text = exact.replace("@:28 {{no setting", wrong)
        run = opt("-f", "rpeg", "--verify-diagnostics", stdin=text)
        assert run.code == 1
        assert "was not found" in run.err
        assert "unexpected error: generate has no setting" in run.err
    nearby = BROKEN.replace("    y, lp", f"    # {EXPECT}@below {{{{no setting}}}}\n    y, lp")
    nearby = nearby.replace("8)\n  }", f"8)\n    # {EXPECT}@above {{{{nothing}}}}\n  }}")
    run = opt("-f", "rpeg", "--verify-diagnostics", stdin=nearby)
    assert run.messages == ["<stdin>:9:7: error: expected error at 8 was not found: nothing"]
    extra = opt("-f", "rpeg", "--verify-diagnostics", stdin=BROKEN)
    assert extra.messages[0].startswith("<stdin>:7:28: error: unexpected error: generate has no")


def test_expectations_that_can_never_be_met() -> None:
    odd = BROKEN + "# expected-bogus {{x}}\n"
    found = opt("-f", "rpeg", "--verify-diagnostics", stdin=odd).err
    assert "`bogus` is not a kind of message: error, warning, note, remark" in found
    far = BROKEN + f"# {EXPECT}@-99 {{{{x}}}}\n"
    found = opt("-f", "rpeg", "--verify-diagnostics", stdin=far).err
    assert "was not found: x (the text has lines 1 to " in found


@pytest.mark.parametrize(
    ("passes", "text"),
    [
        ("rpeg-annotate-parallelism{dp=x}", "`dp` takes a whole number, not x"),
        ("rpeg-annotate-parallelism{sp=3}", "`sp` takes true or false, not 3"),
        ("rpeg-annotate-parallelism{dp=1,2}", "`dp` takes a whole number, not 1, 2"),
    ],
)
def test_an_option_of_another_type(passes: str, text: str) -> None:
    run = opt(str(EXAMPLES[0]), "-p", passes)
    assert (run.code, run.out) == (2, "")
    assert text in run.err


def test_help(monkeypatch: pytest.MonkeyPatch, update_golden: bool) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    run = opt("--help")
    path = ROOT / "tests" / "golden" / "help" / "rpeg-opt.golden"
    if update_golden:
        path.write_text(run.out)
    assert (run.code, run.out) == (0, path.read_text())
    assert opt("--version").out.startswith("rpeg-opt 0.")


def test_passes_are_listed_with_options() -> None:
    listed = opt("--list-passes").out
    assert "\nrpeg-schedule  [X]\n    Labels the operations" in listed
    assert "rpeg-annotate-parallelism{[plan] dp=1 tp=1 pp=1 cp=1 vpp=1 sp=false zero=0" in listed
    assert "rpeg-eliminate-dead-stages{[stages]}" in listed
    assert listed.index("rpeg-lower-to-programs") < listed.index("canonicalize-dmp")
    assert listed.count("rpeg-schedule") == 1


def test_passes_run_in_order() -> None:
    run = opt(GRPO, "-p", "rpeg-canonicalize,cse", "--print-ir-after-all")
    assert run.code == 0
    assert dumps(run.err) == ["After rpeg-canonicalize", "After cse"]


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (
            "rpeg-canonicalise",
            "`rpeg-canonicalise` is not a pass; did you mean `rpeg-canonicalize`?",
        ),
        ("rpeg-canonicalize{x=1}", "rpeg-canonicalize has no option `x`; it has: none"),
        ("rpeg-annotate-parallelism{dp=two}", "rpeg-annotate-parallelism"),
        ("rpeg-annotate-parallelism{", "-p rpeg-annotate-parallelism{"),
        (",", "-p ,"),
    ],
)
def test_wrong_pipelines(pipeline: str, message: str) -> None:
    run = opt(GRPO, "-p", pipeline)
    assert run.code == 2
    assert run.err.startswith(f"rpeg-opt: error: {message}")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--nope"], 2),
        (["-t", "llvm"], 2),
        (["no-such-file.mlir"], 1),
        ([str(ROOT)], 1),
        (["README.md"], 1),
        ([str(ROOT / "README.md")], 2),
        ([str(ROOT / "README.md"), "-f", "rpeg"], 1),
        ([str(ROOT / "README.md"), "-f", "mlir"], 1),
    ],
)
def test_wrong_commands(arguments: list[str], code: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = opt(*arguments)
    assert (run.code, run.out) == (code, "")
    assert run.err


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    assert "<stdin>:1:1: this is not UTF-8" in opt(stdin=b"\xff\x00").err
    file = tmp_path / "x.mlir"
    file.write_bytes(b"rpeg\xff")
    assert opt(str(file)).code == 1
    assert opt(stdin=b"\x00").code == 1
    assert opt(stdin="").err == "<stdin>:1:1: error: expected an operation\n"


@pytest.mark.parametrize("pipeline", ["", ":grpo"])
def test_the_input_is_not_replaced(pipeline: str, tmp_path: Path) -> None:
    file = tmp_path / "p.rpeg"
    text = Path(GRPO).read_text()
    file.write_text(text)
    done = opt(f"{file}{pipeline}", "-o", f"{tmp_path}/../{tmp_path.name}/p.rpeg")
    assert done.code == 2 and "is read by this command" in done.err
    assert file.read_text() == text


@pytest.mark.parametrize("option", ["-o", "--crash-reproducer"])
def test_a_file_that_can_not_be_written_is_refused_first(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, why in (("", "it is a folder"), ("file/x", f"{tmp_path}/file is not a folder")):
        run = opt("none.mlir", option, str(tmp_path / name))
        assert (run.code, run.out) == (1, "")
        assert run.err == f"rpeg-opt: error: {tmp_path / name} can't be written: {why}\n"


def test_what_has_no_surface_is_said_with_its_place() -> None:
    above = "      %lp_ref = rpeg.logprob"
    mlir = opt(GRPO).out.replace(above, f"      %now = rpeg.on_policy_logprob %y {{}}\n{above}")
    run = opt("-t", "rpeg", stdin=mlir)
    line = next(n for n, text in enumerate(mlir.splitlines(), 1) if "on_policy" in text)
    message = "error: rpeg.on_policy_logprob has no form in .rpeg: write MLIR (-t mlir)"
    assert run.messages == [f"<stdin>:{line}:7: {message}"]


def test_a_reader_that_leaves_early() -> None:
    command = f"{sys.executable} -m rpeg.tools.rpeg_opt {GRPO} | true"
    run = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.stderr == ""


def test_error_codes(tmp_path: Path) -> None:
    path = tmp_path / "p.rpeg"
    path.write_text(BROKEN, encoding="utf-8")
    plain, coded = opt(str(path)), opt(str(path), "--error-codes")
    added = re.findall(r" \[([a-z-]+)\]$", coded.err, re.M)
    assert added == ["unknown-setting"]
    assert coded.err.replace(" [unknown-setting]", "") == plain.err


def test_a_pass_that_refuses_a_level_names_the_rule() -> None:
    run = opt(str(GRPO), "-p", "rpeg-schedule", "--error-codes")
    assert run.messages[0].endswith("run rpeg-annotate-parallelism first [illegal-at-level]")


def test_rules_are_explained() -> None:
    listed = opt("--list-rules")
    codes = re.findall(r"^  ([a-z-]+)  ", listed.out, re.M)
    assert (listed.code, "swap-without-reset" in codes) == (0, True)
    assert opt("--explain", codes[0]).out.startswith(f"{codes[0]} (every level)\n")
    wrong = opt("--explain", "swap-without-resett")
    message = "`swap-without-resett` is not a rule; did you mean `swap-without-reset`?"
    assert (wrong.code, wrong.err) == (2, f"rpeg-opt: error: {message}\n")
