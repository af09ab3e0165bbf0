"""Generated programs: golden texts, the same each time, and nothing in them but what is meant."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from xdsl.dialects.builtin import StringAttr

from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.tools.console import Source
from tests.unit.lowering.compiled import ROOT, compiled, program_of, strings, text_of
from tests.unit.passes.pipelines import grpo

GOLDEN = {
    "sort_digits_warmup": "examples/sort_digits.rpeg:warmup",
    "sort_digits_grpo": "examples/sort_digits.rpeg:grpo",
    "grpo_countdown": "examples/grpo_countdown.rpeg",
}
COMPILER = (
    "cost",
    "frontend",
    "interp",
    "ir",
    "lowering",
    "passes",
    "planner",
    "tools",
    "universe",
)


def source(*changes: tuple[str, str]) -> Source:
    return Source(Path("p.rpeg"), grpo(*changes))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str, update_golden: bool) -> None:
    text = text_of(compiled(GOLDEN[name], processes=2), Path(GOLDEN[name].partition(":")[0]).name)
    path = ROOT / "tests" / "golden" / f"program_{name}.py"
    if update_golden:
        path.write_text(text)
    assert text == path.read_text()


def ruff_differences(paths: list[Path]) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    config = ["--config", "line-length = 100", "--isolated"]
    run = subprocess.run(
        [ruff, "format", "--diff", *config, *paths], capture_output=True, text=True
    )
    return run.stdout


def test_the_layout_is_the_formatters() -> None:
    assert ruff_differences([*(ROOT / "tests" / "golden").glob("program_*.py")]) == ""


def test_the_same_text_each_time_and_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "rpeg.tools.rpeg", "compile", "--processes", "2", "-o"]
    example = ROOT / "examples" / "sort_digits.rpeg"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for name, folder, seed in (("a", tmp_path, "1"), ("b", ROOT, "2")):
        out = tmp_path / name
        call = [*command, str(out), f"{example}:grpo"]
        subprocess.run(call, cwd=folder, env=environment | {"PYTHONHASHSEED": seed}, check=True)
    files = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert "program_all.py" in files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_it_imports_without_the_compiler() -> None:
    blocked = [f"rpeg.{part}" for part in COMPILER] + ["xdsl", "lark"]
    program = ROOT / "tests" / "golden" / "program_sort_digits_grpo.py"
    code = f"""
import runpy, sys
for name in {blocked!r}:
    sys.modules[name] = None
found = runpy.run_path({str(program)!r}, run_name="program")
assert callable(found["main"])
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


HOSTILE = [
    'quo"te',
    "quo'te",
    "both'\"",
    '"""; import os; """',
    "back\\slash\\",
    "new\nline\rfeed",
    "line\u2028separator\u2029and\x85next",
    "{braces} {0} %s",
    "right\u202eto left",
    "\x00\x7f\ufeff",
    "plain é 数 😀",
    "# not a comment",
    "$(rm -rf .) `id`",
]


def test_hostile_texts_are_literals_and_nothing_else(tmp_path: Path) -> None:
    module = compiled(source())
    calls = [op for op in module.walk() if isinstance(op, CallOp)]
    plain = text_of(module)
    data = next(op for op in calls if op.callee.data == "PromptData")
    shapes = set()
    for number, hostile in enumerate(HOSTILE):
        data.attributes["source"] = StringAttr(hostile)
        text = text_of(module, name=f"{hostile}.rpeg")
        assert hostile in strings(text)
        assert text.count("\n") == plain.count("\n")
        assert all(c.isprintable() for c in text.replace("\n", ""))
        path = tmp_path / f"program_{number}.py"
        path.write_text(text)
        shapes.add(shape(text))
    assert shapes == {shape(plain)}
    assert ruff_differences([*tmp_path.glob("program_*.py")]) == ""


def shape(text: str) -> str:
    """The syntax tree without the values of its constants."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = 0
    return ast.dump(tree)


NAMES = ["class", "list", "rt", "run", "main", "print", "None", "lambda", "match", "self", "_"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_python_are_free_for_pipelines(name: str) -> None:
    """As a declaration, as a trajectory, and as a reward, which the program reports by keyword."""
    for old, new in (
        ("verifier correct", f"verifier {name}"),
        ("    y, lp", f"    {name}, lp"),
        ("    r = score", f"    {name} = score"),
    ):
        text = grpo((old, new))
        if old == "verifier correct":
            text = text.replace("correct,", f"{name},").replace(", correct", f", {name}")
        elif old == "    y, lp":
            text = text.replace("y)", f"{name})").replace("(y,", f"({name},")
        else:
            text = text.replace("group_advantage(r,", f"group_advantage({name},")
        program = text_of(compiled(Source(Path("p.rpeg"), text)))
        assert undefined(program) == set(), program


def undefined(text: str) -> set[str]:
    """Names of `main` that are read and never made; Python's own and `rt` are none of ours."""
    tree = ast.parse(text)
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name)]
    made = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    assert not made & {"rt", "main", "class", "list", "None", "print"}
    return {n.id for n in names if isinstance(n.ctx, ast.Load)} - made - {"rt", "__name__", "main"}


def test_a_reward_named_by_a_keyword_is_reported_under_its_name() -> None:
    text = grpo(
        ("    r = score", "    class = score"), ("group_advantage(r,", "group_advantage(class,")
    )
    program = text_of(compiled(Source(Path("p.rpeg"), text)))
    assert 'run.report(y, **{"class": class_})' in program


def test_names_are_reused_only_after_their_last_reader() -> None:
    program = text_of(compiled(source()))
    assert "y, lp = actor_engine.generate(" in program
    assert "y, lp = y_buffer.take(step=i)" in program


def test_an_edit_of_the_program_changes_its_text() -> None:
    module = compiled(source())
    for old, new in (
        ("coef = 1.000000e-01", "coef = 5.000000e-01"),
        ("steps 5 from 0", "steps 7 from 1"),
    ):
        assert old in str(module)
        edited, sources, problems = parse_module(str(module).replace(old, new), "p.mlir")
        assert edited is not None, problems
        assert diagnose(edited, sources) == []
        before, after = text_of(module).splitlines(), text_of(edited).splitlines()
        changed = [(a, b) for a, b in zip(before, after, strict=True) if a != b]
        assert len(changed) == 1
        assert ("coef=0.5" in changed[0][1]) or ("steps=7, first=1" in changed[0][1])


def test_an_every_without_a_call_is_python_too() -> None:
    module = str(compiled(source()))
    start = module.index("      rrt.every")
    constant = '        %old = rrt.constant "ON_POLICY"'
    body = module[module.index("{\n", start) + 2 : module.index("\n      }", start) + 1]
    edited, _, problems = parse_module(module.replace(body, constant), "p.mlir")
    assert edited is not None, problems
    text = text_of(edited)
    assert "if run.every(i, steps=5, first=0):\n            pass\n" in text
    ast.parse(text)


def test_infinite_numbers() -> None:
    text = str(compiled(source())).replace(
        "clip_high = 2.000000e-01", "clip_high = 0x7FF0000000000000"
    )
    edited, _, problems = parse_module(text, "p.mlir")
    assert edited is not None, problems
    assert 'clip_high=float("inf")' in text_of(edited)


def test_the_header_names_source_and_group() -> None:
    module = compiled(source())
    docstring = ast.get_docstring(ast.parse(text_of(module)))
    assert docstring is not None
    assert "Pipeline `p`, process group `all` (1 process)." in docstring
    assert "from p.rpeg" in docstring
    assert program_of(module).process_count == 1


WINDOW = (
    ("lp_old = logprob(actor@i, y)", "prox = logprob(actor@i, y)\n    w = importance(prox, lp)"),
    ("adv, lp_old,", "adv, prox, w,"),
    ("generate(actor@i,", "generate(actor@[i-2..i],"),
)
AHEAD = """\
    for i in run.loop():
        for _ in y_buffer.ahead(i):
            q = train.batch(size=4, order="shuffle", seed=0)
            y, lp = actor_engine.generate(
"""


def test_samples_of_older_weights_fill_a_buffer_ahead() -> None:
    text = text_of(compiled(source(*WINDOW)))
    assert 'y_buffer = rt.TrajectoryBuffer(run, "y", capacity=3, max_lag=2, bound="strict")' in text
    assert AHEAD in text
    behind = "            y_buffer.put(y, lp)\n        y, lp = y_buffer.take(step=i)\n        r ="
    assert behind in text


@pytest.mark.parametrize("old_spans", ["mask", "drop", "regenerate"])
def test_what_befalls_old_spans_is_the_buffers(old_spans: str) -> None:
    said = f"bound=strict, overflow=resume, old_spans={old_spans}, dtype=fp32)"
    resumed = ("max_tokens=8, dtype=fp32)", f"max_tokens=8, {said}")
    text = text_of(compiled(source(*WINDOW, resumed)))
    assert (f'old_spans="{old_spans}"' in text) == (old_spans != "regenerate")
