"""Programs (L3): rows and their age, buffers, and the weights that an engine samples with."""

from __future__ import annotations

import pytest

from tests.unit.ir.test_rrt import PROGRAM, messages, place
from tests.unit.tools.opt import ROOT, opt

BUFFER = (
    '%y_buffer = rrt.call "TrajectoryBuffer"(%run) {name = "y", capacity = 3 : i64, '
    'max_lag = 2 : i64, bound = "strict"}\n'
)
GENERATE = PROGRAM[PROGRAM.index("      %q = rrt") : PROGRAM.index("      %r = rrt")]
PUT = '        rrt.call "put" of %y_buffer(%y, %lp)\n'
TAKE = '      %z, %zp = rrt.call "take" of %y_buffer(step = %i)\n'
OTHER = GENERATE.replace("%q", "%p").replace("%y, %lp", "%another, %other")
LAGGED = (
    PROGRAM.replace('    rrt.call "restore"', f'    {BUFFER}    rrt.call "restore"')
    .replace(GENERATE, f"      rrt.ahead %y_buffer, %i {{\n{GENERATE}{PUT}      }}\n{TAKE}{OTHER}")
    .replace("(%y)", "(%z)")
    .replace("(%y, %r)", "(%z, %r)")
    .replace('%old = rrt.constant "ON_POLICY"', '%old = rrt.call "logprob" of %actor(%z)')
    .replace(
        '      %pg = rrt.call "ppo_clip"(%y, %adv, %old)',
        '      %w = rrt.call "importance"(%run, %z, %old, %zp) {floor = 0.0, cap = 5.0, '
        'mode = "truncate", level = "token"}\n'
        '      %pg = rrt.call "ppo_clip"(%z, %adv, %old, weight = %w)',
    )
    .replace("%run(%y, r = %r)", "%run(%z, r = %r)")
)
"""Samples of up to two steps before, weighed."""


def edited(*changes: tuple[str, str]) -> str:
    text = LAGGED
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_it_is_sound() -> None:
    assert messages(LAGGED) == []


UPDATE = LAGGED[LAGGED.index('      rrt.call "update"') : LAGGED.index('      rrt.call "publish"')]
NEWEST = "generate runs without the newest weights: write"

# (what is edited, what it becomes, where the message points, the message)
MISTAKES = {
    "no put": (
        (PUT, ""),
        '%y_buffer = rrt.call "Traj',
        "buffer `y`: each step puts one batch, then takes one; here: take",
    ),
    "a put of every other step": (
        (PUT, f"        rrt.every %run, %i steps 2 from 0 {{\n{PUT}        }}\n"),
        '%y_buffer = rrt.call "Traj',
        "buffer `y`: each step puts one batch, then takes one; here: take",
    ),
    "no room": (
        ("capacity = 3", "capacity = 0"),
        "capacity = 0",
        "capacity=0: up to 3 wait in it for their step; write capacity = 3",
    ),
    "one too small": (
        ("capacity = 3", "capacity = 2"),
        "capacity = 2",
        "capacity=2: up to 3 wait in it for their step; write capacity = 3",
    ),
    "log-probs of other rows": (
        ("%old, %zp) {floor", "%old, %other) {floor"),
        "%other) {floor",
        "importance: `other` is of other rows than `z`: take both of `z` (take), or both of "
        "`another` (generate)",
    ),
    "beyond the correction": (
        ("capacity = 3 : i64, max_lag = 2", "capacity = 10 : i64, max_lag = 9"),
        "%z, %adv",
        "`y` gives samples up to 9 versions old, ppo_clip covers 8 here (weighted): write "
        "max_lag = 8 there",
    ),
    "beyond one step": (
        ("%old, weight = %w)", "%zp)"),
        "%z, %adv",
        "`y` gives samples up to 2 versions old, ppo_clip covers 1 here (anchored at behaviour): "
        "write max_lag = 1 there, or weigh the tokens with importance",
    ),
    "not corrected": (
        ("%old, weight = %w)", "%old)"),
        "%z, %adv",
        "`y` gives samples up to 2 versions old, ppo_clip covers 0 here (uncorrected): write "
        "max_lag = 0 there, or weigh the tokens with importance",
    ),
    "never published": (
        ('      rrt.call "publish" of %weights(%actor)\n', ""),
        "%y, %lp = rrt",
        f"{NEWEST} publish before swap_weights, behind every update",
    ),
    "never swapped": (
        ('      rrt.call "swap_weights" of %engine(%weights)\n', ""),
        "%y, %lp = rrt",
        f"{NEWEST} swap_weights and reset_prefix_cache of its engine behind what brings them",
    ),
    "no weights at first": (
        ('    rrt.call "publish" of %weights(%actor)\n    rrt.call "swap', '    rrt.call "swap'),
        "%y, %lp = rrt",
        f"{NEWEST} publish before swap_weights, behind every update",
    ),
    "published before the update": (
        (UPDATE + (p := '      rrt.call "publish" of %weights(%actor)\n'), p + UPDATE),
        "%y, %lp = rrt",
        f"{NEWEST} publish before swap_weights, behind every update",
    ),
    "never updated": (
        (UPDATE, ""),
        '%actor = rrt.call "Trainer"',
        'no step updates this trainer: write rrt.call "update" of it behind its losses',
    ),
}


@pytest.mark.parametrize(("change", "at", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(change: tuple[str, str], at: str, message: str) -> None:
    text = edited(change)
    found = [m.split(": ", 1) for m in messages(text)]
    assert found[0][0] == place(text, at)
    assert {said for _, said in found} == {message}


TWO_POOLS = str(ROOT / "examples" / "async_two_pools.rpeg")
LOWERED = "rpeg-annotate-parallelism{plan=two},rpeg-schedule,rpeg-lower-to-programs"


PUT_Y = '      rrt.call "put" of %y_channel(%y, %lp)\n'
TAKE_R = '      %r = rrt.call "take" of %r_channel(step = %i) gives ResponseField\n'
ROLLOUT = "rollout = [0 : i64, 1 : i64]"
ACROSS = {
    "a window wider than its takers": (
        ("window = 2", "window = 3"),
        "window=3: what takes the samples of these weights lets them be 2 versions old (max_lag): "
        "write window = 2",
    ),
    "ends of two lags": (
        ("max_lag = 2", "max_lag = 1"),
        "channel `y`: max_lag is 2 here, and 1 in the program of `rollout`: write the same",
    ),
    "put twice": (
        (PUT_Y, PUT_Y * 2),
        "channel `y`: each step puts once and takes once; the program of `rollout` puts 2 times, "
        "that of `trainer` takes 1",
    ),
    "taken twice": (
        (TAKE_R, TAKE_R + TAKE_R.replace("%r =", "%again =")),
        "channel `r`: each step puts once and takes once; the program of `rollout` puts 1 times, "
        "that of `trainer` takes 2",
    ),
    "taken as something else": (
        ("of %r_channel(step = %i) gives ResponseField", "of %r_channel(step = %i) gives Loss"),
        "channel `r` carries ResponseField, not Loss",
    ),
    "one end only": (
        ('source = "rollout", target = "trainer"', 'source = "rollout", target = "judge"'),
        "channel `y` goes from `rollout` to `judge`: the programs of both make it, and no other; "
        "made by `rollout` and `trainer`",
    ),
    "more processes than the pool": (
        (ROLLOUT, "rollout = [0 : i64, 2 : i64]"),
        "the program is for 1 processes of `rollout`, its start has 0 to 1",
    ),
    "a pool of another name": (
        (ROLLOUT, "sampler = [0 : i64, 1 : i64]"),
        "the program is for 1 processes of `rollout`, its start has none",
    ),
    "more processes than the pools": (
        ("processes = 2 : i64", "processes = 3 : i64"),
        "the pools have other processes than the 3 that start says",
    ),
    "a home that is not a pool": (
        ('home = "trainer"', 'home = "judge"'),
        "start: home is judge, which is none of rollout, trainer",
    ),
}


@pytest.mark.parametrize(("change", "message"), ACROSS.values(), ids=ACROSS)
def test_mistakes_across_pools(change: tuple[str, str], message: str) -> None:
    text = opt(TWO_POOLS, "-p", LOWERED).out
    assert messages(text) == []
    assert change[0] in text
    found = [m.split(": ", 1)[1] for m in messages(text.replace(*change, 1))]
    assert message in found, found
