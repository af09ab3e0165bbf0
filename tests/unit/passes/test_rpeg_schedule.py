from __future__ import annotations

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.rsched import EdgeOp, SequenceOp
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from rpeg.passes.rpeg_annotate_parallelism import RpegAnnotateParallelismPass as Annotate
from tests.unit.passes.pipelines import grpo, one, parse, place, refusals, run

PASS = "rpeg-schedule"
LATE = (
    ("    lp_old = logprob(actor@i, y)\n", ""),
    ("adv, lp_old,", "adv, lp,"),
    ("    every", "    lp_late = logprob(actor@i, y)\n    every"),
)


def scheduled(*changes: tuple[str, str]) -> ModuleOp:
    return run(parse(grpo(*changes)), Annotate(), PASS)


def order(module: ModuleOp) -> list[str]:
    sequence = one(module, SequenceOp)
    assert isinstance(sequence, SequenceOp)
    return list(sequence.labels)


TEXT_ORDER = ["q", "y", "r", "lp_old", "lp_ref", "adv", "pg", "kl", "actor", "publish_actor"]


def test_the_order_of_the_text() -> None:
    assert order(scheduled()) == [*TEXT_ORDER, "every_5"]


def test_edges_across_steps() -> None:
    edges = [
        (op.source.data, op.target.data)
        for op in scheduled().walk()
        if isinstance(op, EdgeOp) and op.distance.value.data == 1
    ]
    assert edges == [
        ("actor", "lp_old"),
        ("actor", "actor"),
        ("q", "q"),
        ("publish_actor", "y"),
    ]


def test_an_old_version_is_read_before_it_is_replaced() -> None:
    labels = order(scheduled(*LATE))
    assert labels.index("lp_late") < labels.index("actor")


def test_eval_of_this_steps_weights_runs_before_the_publish() -> None:
    now = "    now = eval(actor@i, heldout, correct, max_tokens=8)\n    every"
    labels = order(scheduled(("    every", now)))
    assert labels.index("now") < labels.index("publish_actor")
    assert labels[-1] == "every_5"


def test_every_sees_the_end_of_the_step() -> None:
    late = "    every(steps=3) {\n      checkpoint()\n    }\n    q = batch"
    assert order(scheduled(("    q = batch", late)))[-2:] == ["every_3", "every_5"]


def test_equal_names_get_numbers() -> None:
    twice = "    every(steps=5) {\n      checkpoint(keep=1)\n    }\n    every"
    assert order(scheduled(("    every", twice)))[-2:] == ["every_5", "every_5_2"]


def test_a_cycle_is_told() -> None:
    text = grpo(("eval(actor@i+1", "eval(actor@i"))
    assert refusals(parse(text), Annotate(), PASS) == [
        f"{place(text, 'update(')}: no order of the step's tasks works: `publish_actor` runs after "
        "`every_5` (the other replaces the version that it reads), `every_5` runs after "
        "`publish_actor` (it sees the state as the step ends)"
    ]


def test_it_needs_one_group() -> None:
    text = grpo()
    assert refusals(parse(text), PASS) == [
        f"{place(text, 'p {')}: takes L1: `p` has no rpeg.ranks, so it is not of L1: run "
        "rpeg-annotate-parallelism first"
    ]


def edited(old: str, new: str, *changes: tuple[str, str]) -> tuple[ModuleOp, list[str]]:
    """The printed schedule with an edit, and what the verifiers say of it."""
    text = str(scheduled(*changes))
    assert old in text
    module, sources, problems = parse_module(text.replace(old, new), "p.mlir")
    assert module is not None, problems
    return module, [d.message for d in diagnose(module, sources)]


TASK = '      rsched.task "{}"\n'.format


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        (TASK("r"), "", ["the sequence leaves out r"]),
        (TASK("r"), TASK("r") * 2, ["`r` stands twice in the sequence"]),
        (
            TASK("lp_ref"),
            TASK("lp_red"),
            [
                "the sequence leaves out lp_ref",
                "`lp_red` is not a task of the step; did you mean `lp_ref`?",
            ],
        ),
        (
            TASK("y") + TASK("r"),
            TASK("r") + TASK("y"),
            ["`r` runs before `y`: it reads what the other makes"],
        ),
        (
            TASK("actor") + TASK("publish_actor"),
            TASK("publish_actor") + TASK("actor"),
            ["`publish_actor` runs before `actor`: it reads what the other makes"],
        ),
        (TASK("lp_old") + TASK("lp_ref"), TASK("lp_ref") + TASK("lp_old"), []),
    ],
    ids=["missing", "doubled", "unknown", "swapped", "too early", "legal"],
)
def test_edits_of_a_sequence(old: str, new: str, messages: list[str]) -> None:
    assert edited(old, new)[1] == messages


def test_an_old_version_is_not_read_late() -> None:
    text = str(scheduled(*LATE))
    late = text.replace(TASK("lp_late"), "").replace(TASK("actor"), TASK("actor") + TASK("lp_late"))
    module, sources, _ = parse_module(late, "p.mlir")
    assert module is not None
    assert [d.message for d in diagnose(module, sources)] == [
        "`actor` runs before `lp_late`: the other replaces the version that it reads"
    ]


def test_a_legal_swap_changes_the_program() -> None:
    def calls(module: ModuleOp) -> list[str]:
        run(module, "rpeg-lower-to-programs")
        results = (op.results for op in module.walk() if isinstance(op, CallOp))
        return [r[0].name_hint or "" for r in results if len(r) == 1]

    swapped, problems = edited(TASK("lp_old") + TASK("lp_ref"), TASK("lp_ref") + TASK("lp_old"))
    assert problems == []
    before, after = calls(scheduled()), calls(swapped)
    assert before != after
    at = before.index("lp_old")
    assert after == [*before[:at], "lp_ref", "lp_old", *before[at + 2 :]]


WINDOW = (
    ("lp_old = logprob(actor@i, y)", "prox = logprob(actor@i, y)\n    w = importance(prox, lp)"),
    ("adv, lp_old,", "adv, prox, w,"),
    ("generate(actor@i,", "generate(actor@[i-2..i],"),
)


def tasks(module: ModuleOp) -> list[str]:
    sequence = one(module, SequenceOp)
    assert isinstance(sequence, SequenceOp)
    return [f"{t.label.data} {t.ahead.value.data}" for t in sequence.tasks.values() if t.ahead]


def test_samples_of_older_weights_are_made_as_far_ahead_as_the_window_reaches() -> None:
    module = scheduled(*WINDOW)
    assert tasks(module) == ["q 2", "y 2"]
    assert order(module)[:3] == ["q", "y", "r"]
    edges = {
        (op.source.data, op.target.data): op.distance.value.data
        for op in module.walk()
        if isinstance(op, EdgeOp)
    }
    assert edges["publish_actor", "y"] == 3 and edges["q", "q"] == 1


@pytest.mark.parametrize(
    ("window", "found"),
    [("actor@i-1", ["q 1", "y 1"]), ("actor@[i-3..i-1]", ["q 3", "y 3"]), ("actor@i", [])],
)
def test_one_version_is_a_window_too(window: str, found: list[str]) -> None:
    change = ("generate(actor@i,", f"generate({window},")
    assert tasks(scheduled(*WINDOW[:2], change)) == found


def test_what_else_reads_the_prompts_is_refused() -> None:
    greedy = "    y0, lp0 = generate(actor@i, q, n=1, max_tokens=8, temperature=0.0, dtype=fp32)\n"
    text = grpo(*WINDOW, ("    r = score", f"{greedy}    r = score"))
    assert refusals(parse(text), Annotate(), PASS) == [
        f"{place(text, 'generate(actor@i,')}: it reads `q`, which is made 2 steps ahead for "
        "samples of older weights: take the same window, or a batch of its own"
    ]


def test_batches_of_one_data_set_keep_their_order() -> None:
    more = "    p = batch(train, size=4)  # again\n"
    more += "    x, lx = generate(actor@i, p, n=2, max_tokens=8)\n"
    text = grpo(*WINDOW, ("    r = score", f"{more}    r = score"))
    assert refusals(parse(text), Annotate(), PASS) == [
        f"{place(text, 'batch(train, size=4)  #')}: it reads on where a batch was taken 2 steps "
        "ahead, for samples of older weights: give it data of its own"
    ]


@pytest.mark.parametrize(
    ("line", "other", "said"),
    [
        ('"q" ahead 2', '"q" ahead 1', "`y` runs before `q`: it reads what the other makes"),
        (
            '"y" ahead 2',
            '"y" ahead 3',
            "`y` runs 3 steps ahead and finds `actor` 3 steps old, not 0 to 2",
        ),
        ('"r"', '"r" ahead 3', "`r` runs before `y`: it reads what the other makes"),
        ('"y" ahead 2', '"y" ahead -1', "ahead -1: a task runs in its own step or before it"),
    ],
)
def test_a_task_too_far_ahead_is_an_error(line: str, other: str, said: str) -> None:
    _, found = edited(f"rsched.task {line}\n", f"rsched.task {other}\n", *WINDOW)
    assert any(said in message for message in found), found


def test_a_window_may_be_used_in_part() -> None:
    assert edited("ahead 2", "ahead 1", *WINDOW)[1] == []
