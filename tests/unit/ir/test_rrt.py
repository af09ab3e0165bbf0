"""Programs (L3): what their verifiers refuse and where, and their two text forms."""

from __future__ import annotations

from io import StringIO

import pytest
from xdsl.ir import Block, Region
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from rpeg.ir.isolated import Isolated
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module

HASH = "0" * 64
PROGRAM = f"""builtin.module {{
  rrt.program @p_all "all" 1 {{
    %run = rrt.call "start" {{pipeline = "p", steps = 3 : i64, processes = 1 : i64,
        source_sha256 = "{HASH}"}}
    %groups = rrt.call "groups" of %run {{layout = #rpeg.record<Layout, {{dp = 1 : i64}}>}}
    %actor = rrt.call "Trainer"(%run, groups = %groups) {{name = "actor", role = "policy",
        source = "m", dtype = "fp32", optimizer = #rpeg.record<AdamW, {{lr = 1.0e-03 : f64}}>,
        horizon = 3 : i64}}
    %train = rrt.call "PromptData"(%run) {{name = "train", source = "rows.jsonl", seed = 0 : i64}}
    %correct = rrt.call "Verifier"(%run) {{name = "correct", kind = "outcome",
        source = "rule:exact_match", timeout = #rpeg.seconds<10.0>}}
    %weights = rrt.call "LatestWeights"(%run, %actor)
    %engine = rrt.call "EmbeddedEngine"(%run, %actor, groups = %groups)
    rrt.call "restore" of %run
    rrt.call "publish" of %weights(%actor)
    rrt.call "swap_weights" of %engine(%weights)
    rrt.call "reset_prefix_cache" of %engine
    rrt.loop %run index %i {{
      %q = rrt.call "batch" of %train {{size = 4 : i64, order = "shuffle", seed = 0 : i64}}
      %y, %lp = rrt.call "generate" of %engine(%q) {{n = 2 : i64, max_tokens = 8 : i64,
          temperature = 1.0 : f64, top_p = 1.0 : f64, max_turns = 1 : i64, dtype = "fp32",
          routing = "free", seed = 0 : i64}}
      %r = rrt.call "score" of %correct(%y)
      %adv = rrt.call "group_advantage"(%y, %r) {{baseline = "mean", scale = "std"}}
      %old = rrt.constant "ON_POLICY"
      %pg = rrt.call "ppo_clip"(%y, %adv, %old) {{clip_low = 0.2 : f64, clip_high = 0.2 : f64,
          ratio = "token"}}
      rrt.call "update" of %actor(%pg) {{agg = "token_mean", epochs = 1 : i64,
          minibatches = 1 : i64, shuffle = true, routing = "free", seed = 0 : i64}}
      rrt.call "publish" of %weights(%actor)
      rrt.call "swap_weights" of %engine(%weights)
      rrt.call "reset_prefix_cache" of %engine
      rrt.call "report" of %run(%y, r = %r)
      rrt.every %run, %i steps 2 from 0 {{
        rrt.call "checkpoint" of %run {{keep = 3 : i64}}
      }}
    }}
    rrt.call "finish" of %run
  }}
}}
"""


def edited(*changes: tuple[str, str]) -> str:
    text = PROGRAM
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def messages(text: str) -> list[str]:
    """`line:column: message` of everything that is wrong."""
    module, sources, problems = parse_module(text, "p.mlir")
    found = [*problems, *(diagnose(module, sources) if module is not None else ())]
    return [f"{d.at}: {d.message}" for d in found]


def place(text: str, needle: str) -> str:
    """`line:column` of the first place of a string."""
    at = text.index(needle)
    return f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def test_a_setting_of_no_known_kind_is_refused_and_no_rule_falls_over_it() -> None:
    other, no_kind = messages(edited(("processes = 1 : i64", "processes")))
    assert other.endswith("the program is for 1 processes, its start says unit")
    assert no_kind.endswith("`processes` can't be unit: expected a number, a text or a list")


def test_a_program_is_sound() -> None:
    assert messages(PROGRAM) == []


def printed(text: str, generic: bool) -> str:
    module, _, problems = parse_module(text, "p.mlir")
    assert module is not None, problems
    out = StringIO()
    Printer(out, print_generic_format=generic).print_op(module)
    return out.getvalue()


@pytest.mark.parametrize("generic", [False, True], ids=["custom", "generic"])
def test_round_trip(generic: bool) -> None:
    once = printed(PROGRAM, generic)
    assert printed(once, generic) == once
    assert printed(once, False) == printed(PROGRAM, False)
    assert messages(once) == []


CHECKPOINT = '        rrt.call "checkpoint" of %run {keep = 3 : i64}\n'

# (what is edited, what it becomes, where the message points, the message)
MISTAKES = {
    "unknown instruction": (
        ('"batch" of', '"bach" of'),
        '"bach"',
        "`bach` is not an instruction of PromptData; did you mean `batch`?",
    ),
    "unknown function": (
        ('"group_advantage"', '"group_advantages"'),
        '"group_advantages"',
        "`group_advantages` is not an instruction; did you mean `group_advantage`?",
    ),
    "wrong receiver": (
        ('"batch" of %train', '"batch" of %engine'),
        '"batch"',
        "`batch` is not an instruction of EmbeddedEngine",
    ),
    "unknown setting": (
        ("size = 4", "sise = 4"),
        "sise",
        "batch has no setting `sise`; did you mean `size`?",
    ),
    "missing setting": (
        ('baseline = "mean", ', ""),
        '%adv = rrt.call "group',
        "group_advantage needs the setting `baseline`",
    ),
    "no literal": (
        ("keep = 3 : i64", "keep = unit"),
        "keep = unit",
        "checkpoint: `keep` can't be unit: expected a number, a text or a list",
    ),
    "unknown record": (
        ("#rpeg.record<AdamW,", "#rpeg.record<Adam,"),
        "optimizer",
        "`Adam` is not a record of the runtime; did you mean `AdamW`?",
    ),
    "unknown field": (
        ("{lr = 1.0", "{beta = 1.0"),
        "beta = 1.0",
        "AdamW has no setting `beta`; did you mean `beta2`?",
    ),
    "wrong class": (
        ("(%y, %adv, %old)", "(%y, %adv, %r)"),
        '%pg = rrt.call "ppo_clip"',
        "ppo_clip takes a TokenField as value 3, not a ResponseField",
    ),
    "too few values": (
        ("(%y, %adv, %old)", "(%y, %adv)"),
        '%pg = rrt.call "ppo_clip"',
        "ppo_clip takes 3 values, not 2",
    ),
    "too many values": (
        ("%correct(%y)", "%correct(%y, %y)"),
        '%r = rrt.call "score"',
        "score takes 1 values, not 2",
    ),
    "unknown constant": (
        ('rrt.constant "ON_POLICY"', 'rrt.constant "ON_POLICE"'),
        "%old = rrt.constant",
        "`ON_POLICE` is not a constant of the runtime; did you mean `ON_POLICY`?",
    ),
    "a cycle of no steps": (
        ("steps 2 from 0", "steps 0 from 0"),
        "rrt.every",
        "every: expected at least 1 step",
    ),
    "a region without a block": (
        (CHECKPOINT, ""),
        "rrt.every",
        "rrt.every: region 'body' at position 0 expected a single block, but got 0 blocks",
    ),
    "processes that differ": (
        ("processes = 1", "processes = 2"),
        "rrt.program",
        "the program is for 1 processes, its start says 2",
    ),
    "a name that leaves its folder": (
        ('"all" 1 {', '"../all" 1 {'),
        "rrt.program",
        'a process group has a plain name, not "../all"',
    ),
    "a name that ends a comment": (
        ('pipeline = "p"', 'pipeline = "p\\0Aimport os"'),
        "rrt.program",
        'start: pipeline is a plain name, not "p\\0Aimport os"',
    ),
    "a layout of other processes": (
        ("dp = 1 : i64", "dp = 2 : i64"),
        "layout",
        "tp x pp x cp x dp = 2, the program is for 1 processes",
    ),
    "a width as text": (
        ("dp = 1 : i64", 'dp = "1"'),
        'dp = "1"',
        "dp: expected a whole number",
    ),
    "no steps": (
        ("steps = 3 : i64", "steps = 0 : i64"),
        "steps = 0",
        "steps=0: expected at least 1",
    ),
    "a number as text": (
        ("size = 4 : i64", 'size = "8"'),
        'size = "8"',
        "size: expected a whole number",
    ),
    "a word that is none": (
        ('baseline = "mean"', 'baseline = "x"'),
        'baseline = "x"',
        "baseline=x: expected mean | leave_one_out",
    ),
    "out of range": (
        ("n = 2 : i64", "n = 0 : i64"),
        "n = 0",
        "n=0: expected at least 1",
    ),
    "no finish": (
        ('    rrt.call "finish" of %run\n', ""),
        "rrt.program",
        'a program ends with rrt.call "finish" of %run',
    ),
    "no restore": (
        ('    rrt.call "restore" of %run\n', ""),
        "rrt.program",
        'a program restores its run once, before its loop: write rrt.call "restore" of %run there; '
        "this program has 0 there and 0 elsewhere",
    ),
    "a restore in the loop": (
        (
            '      %r = rrt.call "score"',
            '      rrt.call "restore" of %run\n      %r = rrt.call "score"',
        ),
        "rrt.program",
        'a program restores its run once, before its loop: write rrt.call "restore" of %run there; '
        "this program has 1 there and 1 elsewhere",
    ),
    "a loop over something else": (
        ("rrt.loop %run", "rrt.loop %actor"),
        "%actor index",
        "rrt.loop takes a Run, not a Trainer: write rrt.loop %run",
    ),
    "a hash that is none": (
        (HASH, "abc"),
        "rrt.program",
        'start: source_sha256 is 64 hexadecimal digits, not "abc"',
    ),
}


@pytest.mark.parametrize(("change", "at", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(change: tuple[str, str], at: str, message: str) -> None:
    text = edited(change)
    assert messages(text) == [f"{place(text, at)}: {message}"]


def test_equal_shares() -> None:
    text = edited(
        ('"all" 1 {', '"all" 3 {'), ("processes = 1", "processes = 3"), ("dp = 1", "dp = 3")
    )
    message = (
        "size=4 does not divide over 3 processes (dp=3): write a multiple of 3, or a dp that "
        "divides 4, such as 2"
    )
    assert messages(text) == [f"{place(text, 'size = 4')}: {message}"]


GROUPS = '%groups = rrt.call "groups" of %run {layout = #rpeg.record<Layout, {dp = 1 : i64}>}\n'


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("dp = 1 : i64, pp = 2 : i64", None),
        (
            "dp = 1 : i64, pp = 2 : i64, sp = true",
            "sp=true shards over tensor-parallel ranks: write tp=2 or more, or leave sp out",
        ),
    ],
)
def test_layouts_of_one_program(layout: str, message: str | None) -> None:
    setting = f"layout = #rpeg.record<Layout, {{{layout}}}>"
    other = f'    %others = rrt.call "groups" of %run {{{setting}}}\n'
    first = GROUPS.replace("dp = 1 : i64", "dp = 1 : i64, tp = 2 : i64")
    text = edited(
        ('"all" 1 {', '"all" 2 {'), ("processes = 1", "processes = 2"), (GROUPS, first + other)
    )
    assert messages(text) == ([f"{place(text, setting)}: {message}"] if message else [])


RESET = '    rrt.call "reset_prefix_cache" of %engine\n'
STALE = (
    "generate runs after swap_weights without reset_prefix_cache: the engine's cache still holds "
    "the old weights' keys and values"
)


def test_stale_cache_in_the_first_step() -> None:
    text = PROGRAM.replace(RESET + "    rrt.loop", "    rrt.loop")
    assert messages(text) == [f"{place(text, '%y, %lp')}: {STALE}"]


def test_stale_cache_in_later_steps() -> None:
    text = edited((f'  {RESET}      rrt.call "report"', '      rrt.call "report"'))
    assert messages(text) == [f"{place(text, '%y, %lp')}: {STALE}"]


def test_stale_cache_of_an_evaluation() -> None:
    evaluate = (
        '%m = rrt.call "evaluate"(%engine, %train, %correct) {name = "m", n = 1 : i64, '
        "max_tokens = 8 : i64, temperature = 0.0 : f64, max_turns = 1 : i64, "
        "seed = 0 : i64}\n      "
    )
    text = edited(
        (RESET + '      rrt.call "report"', f'  {evaluate}{RESET}      rrt.call "report"')
    )
    assert [m.split(": ")[1].split()[0] for m in messages(text)] == ["evaluate"]


def test_the_only_restore_in_the_loop() -> None:
    restore, score = '    rrt.call "restore" of %run\n', '      %r = rrt.call "score"'
    text = edited((restore, ""), (score, f"  {restore}{score}"))
    (found,) = messages(text)
    assert found.endswith("this program has 0 there and 1 elsewhere")


@pytest.mark.parametrize(
    ("agg", "message"),
    [
        ("#rpeg.record<constant, {tokens = 7 : i64}>", None),
        ("#rpeg.record<constant, {}>", "constant needs the setting `tokens`: write tokens=1024"),
        (
            "#rpeg.record<constant, {tokens = 7 : i64, rows = 7 : i64}>",
            "constant has no setting `rows`; it has: tokens",
        ),
    ],
)
def test_a_loss_over_a_constant_number_of_tokens(agg: str, message: str | None) -> None:
    found = messages(edited(('agg = "token_mean"', f"agg = {agg}")))
    assert [message in text for text in found] == ([] if message is None else [True])


def test_a_pair_is_no_record_of_its_own() -> None:
    text = edited(
        ("#rpeg.record<Layout, {dp = 1 : i64}>", "#rpeg.record<constant, {tokens = 7 : i64}>")
    )
    assert any("`constant` is not a record of the runtime" in found for found in messages(text))


def test_no_start() -> None:
    lines = PROGRAM.splitlines(keepends=True)
    text = "".join(lines[:2]) + '    %x = rrt.constant "ON_POLICY"\n' + "".join(lines[2:])
    assert messages(text) == ['2:3: a program begins with rrt.call "start"']


@pytest.mark.parametrize("count", [0, 2])
def test_one_loop(count: int) -> None:
    loop = PROGRAM[PROGRAM.index("    rrt.loop") : PROGRAM.index('    rrt.call "finish"')]
    text = PROGRAM.replace(loop, loop * count)
    assert messages(text) == [f"2:3: a program has one rrt.loop; this one has {count}"]


def test_a_value_from_around_a_program_and_a_loop_that_cannot_be_printed() -> None:
    module, _, problems = parse_module(PROGRAM, "p.mlir")
    assert module is not None and not problems
    (program,) = module.body.block.ops
    Isolated().verify(program)
    inside = program.regions[0].block
    loop = next(op for op in inside.ops if op.name == "rrt.loop")
    assert inside.first_op is not None
    module.body.block.insert_op_before(outer := inside.first_op.clone(), program)
    loop.operands[0] = outer.results[0]
    loop.detach_region(0)
    loop.add_region(Region(Block()))
    with pytest.raises(VerifyException, match="loop uses %run, which is defined outside"):
        Isolated().verify(program)
