"""`rpeg diff`: what changed, by names and structure, whatever the order and the level."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import Done, Shell
from tests.unit.tools.opt import EXAMPLES, opt

ASYNC = next(path for path in EXAMPLES if path.stem == "async_grpo_alps64")
ANNOTATE = "rpeg-annotate-parallelism{{dp=2 tp={tp}}}"
LOWER = f"{ANNOTATE},rpeg-schedule,rpeg-lower-to-programs"
PLAN = """  plan here on "cpu" {
    pool all = cores(0..0, per_node=2)
    y on all, par(dp=2), engine(name=embedded)
    r on all, par(dp=2)
    lp_old on all, par(dp=2)
    lp_ref on all, par(dp=2)
    actor on all, par(dp=2), publish(all, mode=reshard)
    heldout_acc on all, par(dp=2), engine(name=embedded)
  }
}
"""


def diff(shell: Shell, *changes: tuple[str, str], json: bool = False) -> Done:
    """`rpeg diff` of the test's pipeline and of one with changes."""
    shell.write()
    shell.write(*changes, name="new.rpeg")
    return shell("diff", "p.rpeg", "new.rpeg", *(["--json"] if json else []))


def changed(shell: Shell, *changes: tuple[str, str]) -> list[str]:
    """The lines below the pipeline's."""
    done = diff(shell, *changes)
    assert (done.code, done.err) == (1, "")
    first, *lines = done.out.splitlines()
    assert first == "pipeline p"
    return lines


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_nothing_differs_from_itself(path: Path, shell: Shell, tmp_path: Path) -> None:
    mlir = tmp_path / "same.mlir"
    assert opt(str(path), "-o", str(mlir)).code == 0
    assert shell("diff", str(path), str(mlir)) == Done(0, "no difference\n", "")


def test_a_setting(shell: Shell) -> None:
    assert changed(shell, ("n=2", "n=4")) == ["  statement y: n: 2 -> 4"]


def test_defaults_are_no_difference(shell: Shell) -> None:
    done = diff(shell, ("n=2", "n=2, top_p=1.0"))
    assert (done.code, done.out) == (0, "no difference\n")


def test_a_record_is_told_by_its_parts(shell: Shell) -> None:
    assert changed(shell, ("lr=1e-3", "lr=2e-3, warmup=5")) == [
        "  model actor",
        "    optim.lr: 0.001 -> 0.002",
        "    optim.warmup: 0 -> 5",
    ]


def test_params_and_what_they_change(shell: Shell) -> None:
    shell.write(("  model actor", "  param k = 2\n  model actor"), ("n=2", "n=$k"))
    shell.write(("  model actor", "  param k = 3\n  model actor"), ("n=2", "n=$k"), name="new.rpeg")
    assert shell("diff", "p.rpeg", "new.rpeg").out.splitlines()[1:] == [
        "  param k: value: 2 -> 3",
        "  statement y: n: 2 -> 3",
    ]


def test_a_window_of_versions(shell: Shell) -> None:
    window, text = "[i-$staleness..i]", ASYNC.read_text()
    assert window in text
    old = text.replace(window, "[k-2..k]").replace("step i <", "step k <").replace("@i", "@k")
    shell.write(text=old, name="old.rpeg")
    shell.write(text=text.replace(window, "[i-1..i]"), name="new.rpeg")
    assert shell("diff", "old.rpeg", "new.rpeg").out.splitlines()[1:] == [
        "  statement y: weights: actor@[i-2..i] -> actor@[i-1..i]"
    ]


def test_a_register_that_is_renamed(shell: Shell, tmp_path: Path) -> None:
    """As after a tool that drops names: its readers are not told again."""
    shell.write()
    text = opt(str(tmp_path / "p.rpeg"), "-p", ANNOTATE.format(tp=1)).out
    (tmp_path / "old.mlir").write_text(text)
    (tmp_path / "new.mlir").write_text(text.replace("%actor_published", "%arg3"))
    assert shell("diff", "old.mlir", "new.mlir").out.splitlines() == [
        "equal but for names",
        "pipeline p",
        "  ~ next arg3: was called actor_published",
    ]


def test_an_expectation_of_a_name_that_is_lost(shell: Shell, tmp_path: Path) -> None:
    shell.write(("\n}\n", "\n  expect adv = lognormal(mean=5, cv=0.5)\n}\n"))
    text = opt(str(tmp_path / "p.rpeg")).out
    (tmp_path / "new.mlir").write_text(text.replace("%adv", "%9"))
    assert shell("diff", "p.rpeg", "new.mlir").out.splitlines() == [
        "equal but for names",
        "pipeline p",
        "  ~ statement group_advantage: was called adv",
    ]


def test_what_is_not_given_is_not_the_word_none(shell: Shell) -> None:
    old = "adv = group_advantage(r, baseline=mean, scale=std)"
    lines = changed(
        shell,
        (
            "    r = score",
            "    y0, lp0 = generate(actor@i, q, n=1, max_tokens=8, "
            "temperature=0.0)\n    r0 = score(correct, y0)\n    r = score",
        ),
        (old, "adv = remax_advantage(r, r0)"),
    )
    assert "    scale: std -> not given" in lines


def test_what_came_and_went(shell: Shell) -> None:
    lines = changed(
        shell,
        ("  verifier", '  data more = prompts("more.jsonl", seed=3)\n  verifier'),
        ("    lp_ref = logprob", "    lp_two = logprob(ref, y)\n    lp_ref = logprob"),
    )
    assert lines == [
        "  + data more: prompts(more.jsonl, seed=3)",
        "  + statement lp_two: logprob(ref, y)",
    ]
    back = shell("diff", "new.rpeg", "p.rpeg").out.splitlines()[1:]
    assert back == [line.replace("+ ", "- ", 1) for line in lines]


def test_a_name_is_followed_to_its_readers(shell: Shell) -> None:
    text = shell.write(text=grpo().removesuffix("}\n") + PLAN)
    shell.write(text=text.replace("lp_ref", "reference"), name="new.rpeg")
    done = shell("diff", "p.rpeg", "new.rpeg")
    assert done.out.splitlines() == [
        "equal but for names",
        "pipeline p",
        "  ~ statement reference: was called lp_ref",
    ]


def test_params_of_one_value_are_not_one_param(shell: Shell) -> None:
    shell.write(("  model actor", "  param k = 2\n  model actor"), ("n=2", "n=$k"))
    shell.write(("  model actor", "  param m = 2\n  model actor"), ("n=2", "n=$m"), name="m.rpeg")
    lines = shell("diff", "p.rpeg", "m.rpeg").out.splitlines()[1:]
    assert lines == ["  + param m: 2", "  - param k: 2"]


def test_order_without_a_meaning(shell: Shell) -> None:
    lines = shell.write().splitlines(keepends=True)
    place = next(k for k, line in enumerate(lines) if "lp_ref = " in line)
    before = next(k for k, line in enumerate(lines) if "adv = " in line)
    lines.insert(before, lines.pop(place))
    models = [k for k, line in enumerate(lines) if line.lstrip().startswith(("data", "verifier"))]
    lines[models[0]], lines[models[-1]] = lines[models[-1]], lines[models[0]]
    text = "".join(lines).replace("pg, kl,", "kl, pg,")
    assert text != grpo()
    shell.write(text=text, name="new.rpeg")
    assert shell("diff", "p.rpeg", "new.rpeg").out == "no difference\n"


def test_plans(shell: Shell) -> None:
    shell.write(text=grpo().removesuffix("}\n") + PLAN)
    text = PLAN.replace("    r on all, par(dp=2)", "    r on all, par(dp=1, tp=2)")
    shell.write(text=grpo().removesuffix("}\n") + text, name="new.rpeg")
    assert shell("diff", "p.rpeg", "new.rpeg").out.splitlines()[1:] == [
        "  stage r of plan here",
        "    par.dp: 2 -> 1",
        "    par.tp: 1 -> 2",
    ]
    shell.write(name="none.rpeg")
    gone = shell("diff", "p.rpeg", "none.rpeg").out
    assert "  - plan here: on cpu\n" in gone
    assert "  - pool all of plan here: cores(nodes=[0, 0], per_node=2)\n" in gone


def lowered(shell: Shell, passes: str, name: str, *changes: tuple[str, str]) -> str:
    shell.write(*changes, name="source.rpeg")
    run = opt("source.rpeg", "-p", passes, "-o", name)
    assert run.code == 0, run.err
    return name


def test_levels(shell: Shell) -> None:
    shell.write()
    lowered(shell, ANNOTATE.format(tp=1), "l1.mlir")
    done = shell("diff", "p.rpeg", "l1.mlir")
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0] == "levels: L0 (what a step computes) -> L1 (where stages run)"
    assert "  + group all: ranks 0..1" in lines
    assert "    weights: actor@i -> actor_published@i" in lines
    assert "    par: not given -> par(dp=2)" in lines


def test_layouts(shell: Shell) -> None:
    one, two = (lowered(shell, ANNOTATE.format(tp=t), f"tp{t}.mlir") for t in (1, 2))
    lines = shell("diff", one, two).out.splitlines()
    assert "  group all: ranks: 0..1 -> 0..3" in lines
    assert "  statement y: par.tp: 1 -> 2" in lines
    assert len(lines) == 8


def test_schedules(shell: Shell) -> None:
    name = lowered(shell, f"{ANNOTATE.format(tp=1)},rpeg-schedule", "one.mlir")
    text = Path(name).read_text()
    tasks = ['      rsched.task "lp_ref"\n', '      rsched.task "adv"\n']
    assert "".join(tasks) in text
    Path("two.mlir").write_text(text.replace("".join(tasks), "".join(reversed(tasks))))
    done = shell("diff", "one.mlir", "two.mlir")
    assert "lp_ref, adv" in done.out.partition(" -> ")[0]
    assert "adv, lp_ref" in done.out.partition(" -> ")[2]
    assert done.out.splitlines()[1].startswith("  sequence all: order: [")


def test_programs(shell: Shell) -> None:
    one = lowered(shell, LOWER.format(tp=1), "one.mlir")
    two = lowered(shell, LOWER.format(tp=1), "two.mlir", ("n=2", "n=4"))
    lines = shell("diff", one, two).out.splitlines()
    assert lines[0] == "program p_all"
    assert "  call y: n: 2 -> 4" in lines
    assert shell("diff", one, one).out == "no difference\n"


def test_the_step_of_a_program_is_only_a_name(shell: Shell) -> None:
    one = lowered(shell, LOWER.format(tp=1), "one.mlir")
    Path("two.mlir").write_text(Path(one).read_text().replace("%i", "%arg0"))
    assert shell("diff", one, "two.mlir").out == "no difference\n"
    Path("two.mlir").write_text(Path(one).read_text().replace("%lp_ref", "%7"))
    assert shell("diff", one, "two.mlir").out.splitlines() == [
        "equal but for names",
        "program p_all",
        "  ~ call tokenfield: was called lp_ref",
    ]


def test_what_a_program_does_only_now_and_then(shell: Shell) -> None:
    """The order of the calls is the same where the last one moves out."""
    one = lowered(shell, LOWER.format(tp=1), "one.mlir")
    text = Path(one).read_text()
    inside = next(line for line in text.splitlines(True) if '"checkpoint"' in line)
    Path("two.mlir").write_text(text.replace(f"{inside}      }}\n", f"      }}\n{inside}"))
    assert shell("diff", one, "two.mlir").out.splitlines() == [
        "program p_all",
        "  call checkpoint: inside: every -> loop",
    ]


def test_json(shell: Shell) -> None:
    record = json.loads(diff(shell, ("n=2", "n=4"), json=True).out)
    assert record == {
        "schema": "rpeg-diff/1",
        "same": False,
        "only_names": False,
        "levels": ["L0", "L0"],
        "changes": [
            {
                "section": "pipeline p",
                "item": "statement y",
                "kind": "changed",
                "field": "n",
                "old": "2",
                "new": "4",
            }
        ],
    }
    assert json.loads(diff(shell, json=True).out)["same"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("p.rpeg", "none.rpeg"), "No such file"),
        (("p.rpeg", "bad.rpeg"), "bad.rpeg:1:1: error:"),
        (("bad.mlir", "p.rpeg"), "bad.mlir:1:1: error:"),
        (("p.rpeg", "rows.jsonl"), "neither .rpeg nor .mlir"),
        (("p.rpeg:q", "p.rpeg"), "no pipeline `q`"),
        (("p.rpeg",), "required"),
    ],
)
def test_problems_are_not_differences(words: tuple[str, ...], text: str, shell: Shell) -> None:
    for name in ("bad.rpeg", "bad.mlir"):
        (shell.folder / name).write_text("nonsense\n")
    done = shell("diff", *words)
    assert (done.code, done.out) == (2, "")
    assert text in done.err
