"""What `rpeg-bounded-async` makes is held to the interpreter, whichever versions an oracle picks.

Without lag it is the synchronous pipeline; with lag, the pipeline that a person would have written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import SSAValue

from rpeg.frontend.lift import lift
from rpeg.frontend.render import render
from rpeg.interp import EXACT, Interpreter, Parity, Recorded, Replay, Window, World, compare
from rpeg.interp.values import Place
from rpeg.interp.versions import VersionOracle
from rpeg.ir.ops.allow import AllowOp
from rpeg.ir.ops.losses import PpoClipOp
from rpeg.ir.text.diagnostics import DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.ir.types.attributes import RecordAttr
from rpeg.passes import rpeg_bounded_async
from rpeg.passes.base import PassRefused
from rpeg.passes.rpeg_bounded_async import CORRECTIONS, RpegBoundedAsyncPass
from rpeg.runtime.recordings.recording import Recording
from tests.unit.interp.meaning import rewritten
from tests.unit.interp.pipelines import GRPO, THINGS, parse
from tests.unit.interp.steps import example, steps

STEPS = 3
ALLOW = "  allow bounded_async(staleness=8)\n"
STEP = GRPO.format(coef=0.5, agg="token_mean", epochs=1, minibatches=2)
SAMPLED = (("    lp_old = logprob(actor@i, y)\n", ""), ("adv, lp_old,", "adv, lp,"))
Run = Callable[..., Recording]


def pipeline(*changes: tuple[str, str], allow: str = ALLOW, lr: str = "3e-2") -> ModuleOp:
    step = STEP
    for old, new in changes:
        assert old in step, old
        step = step.replace(old, new)
    return parse(step, more=THINGS + allow, optim=f"adamw(lr={lr})")


def ahead(staleness: int, **options: str) -> RpegBoundedAsyncPass:
    return RpegBoundedAsyncPass(staleness, **options)


@pytest.fixture
def run(world_folder: Path) -> Run:
    def make(module: ModuleOp, versions: VersionOracle | None = None, **more: object) -> Recording:
        world = World(world_folder)
        return Interpreter(module, "p", world, versions=versions, **more).run(STEPS)  # type: ignore[arg-type]

    return make


class Newest:
    """Every sample is of this step's weights."""

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
        return torch.full((samples, tokens), window.newest)


class Drawn:
    """Some version of the window for each sample."""

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
        draw = torch.Generator().manual_seed(place.step)
        rows = torch.randint(window.oldest, window.newest + 1, (samples, 1), generator=draw)
        return rows.expand(samples, tokens)


def same(a: Recording, b: Recording) -> bool:
    """Bit by bit: tokens, log-probs, gradient norms, weights."""
    tokens = zip(a.steps, b.steps, strict=True)
    return compare(a, b) == EXACT and all(
        torch.equal(ours.trajectories["y"].tokens, theirs.trajectories["y"].tokens)
        for ours, theirs in tokens
    )


# ---- without lag


def test_staleness_0_is_the_identity(run: Run) -> None:
    module = pipeline()
    other = rewritten(module, ahead(0))
    assert str(other) == str(module)
    assert same(run(module), run(other))


def test_weights_are_1_where_nothing_lags(run: Run) -> None:
    """Sampling and training round differently, so that the weights are 1 up to that."""
    module = pipeline(lr="3e-4")
    first = run(module)
    other = run(rewritten(module, ahead(4)), Newest(), oracle=Replay(first))
    found = compare(first, other)
    assert found.within(Parity(1e-5, 1e-5, 1e-6, 1e-5)), found


# ---- with lag

HAND = {
    "decoupled": "cap=5.0",
    "truncated": "cap=2.0",
    "icepop": "floor=0.5, cap=5.0, mode=mask",
    "sequence_mask": "floor=0.2, cap=5.0, mode=mask, level=sequence",
}


def by_hand(staleness: int, correction: str, *changes: tuple[str, str]) -> ModuleOp:
    return pipeline(
        ("actor@i, q", f"actor@[i-{staleness}..i], q"),
        ("    pg =", f"    w = importance(lp_old, lp, {HAND[correction]})\n    pg ="),
        ("adv, lp_old,", "adv, lp_old, w,"),
        *changes,
    )


def text_of(module: ModuleOp) -> str:
    return render(lift(module, Sources("p.rpeg")))


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_it_is_what_a_person_writes(correction: str) -> None:
    made = rewritten(pipeline(), ahead(2, correction=correction))
    assert text_of(made) == text_of(by_hand(2, correction))


@pytest.mark.parametrize("oracle", [None, Drawn()], ids=["oldest", "drawn"])
def test_log_probs_are_added_where_there_are_none(oracle: VersionOracle | None, run: Run) -> None:
    made = rewritten(pipeline(*SAMPLED), ahead(2))
    first = run(made, oracle)
    assert same(run(by_hand(2, "decoupled"), oracle), first)
    assert same(run(made, Recorded(first)), first)
    assert oldest(first) == 2


def oldest(record: Recording) -> int:
    """The greatest lag of a token that was trained."""
    held = [step.trajectories.values() for step in record.steps]
    trained = [(i, y.versions[y.mask]) for i, step in enumerate(held) for y in step]
    return max(i - int(versions.min()) for i, versions in trained if versions.numel())


@pytest.mark.parametrize("name", ["cispo", "gspo", "ppo_critic", "remax"])
def test_examples_run_ahead(name: str, run: Run) -> None:
    record = run(rewritten(example(name, "allow bounded_async(staleness=2)"), ahead(2)))
    assert oldest(record) == 2
    assert all(t.isfinite().all() for held in record.weights.values() for t in held.values())


@settings(max_examples=25, deadline=None, phases=[Phase.generate], derandomize=True)
@given(
    steps("allow bounded_async(staleness=8)"),
    st.integers(1, 8),
    st.sampled_from([*CORRECTIONS]),
    st.sampled_from(["wait", "drop", "truncate", "defer"]),
)
def test_random_steps_verify_and_a_second_run_changes_nothing(
    module: ModuleOp, staleness: int, correction: str, overflow: str
) -> None:
    allow = next(op for op in module.walk() if isinstance(op, AllowOp))
    words = {**allow.permission.settings, "overflow": StringAttr(overflow)}
    allow.permission = RecordAttr.make("bounded_async", words)
    made = rewritten(module, ahead(staleness, correction=correction))
    assert str(made) != str(module)
    assert str(rewritten(made, ahead(staleness, correction=correction))) == str(made)


# ---- what would be found


ALONE = (
    ("    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)\n", ""),
    ("pg, kl,", "kl,"),
)
COLLECTED = (
    ("    q = batch(train, size=4)\n", ""),
    (
        "    y, lp = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)\n"
        "    short = score(brief, y)\n",
        "    short, y = collect(groups=2, max_rounds=9) {\n      q = batch(train, size=4)\n"
        "      y0, lp0 = generate(actor@i, q, n=4, max_tokens=6, dtype=fp32)\n"
        "      r0 = score(brief, y0)\n      keep(r0, y0, where=nonzero)\n    }\n",
    ),
)
NARROW = "  allow bounded_async(staleness=1)\n"
BUGS: dict[str, tuple[ModuleOp, dict[str, str]]] = {
    "allowed": (pipeline(allow=NARROW), {}),
    "old spans": (pipeline(), {"old_spans": "mask"}),
    "log-probs recorded": (pipeline(*COLLECTED), {}),
    "can be corrected": (pipeline(*ALONE), {}),
    "covered": (pipeline(*SAMPLED), {"correction": "none-if-covered"}),
}
"""A condition that the pass forgets -> a pipeline that shows it."""


def test_every_condition_is_planted() -> None:
    assert [*BUGS] == [c.name for c in RpegBoundedAsyncPass.LEGALITY]


@pytest.mark.parametrize("condition", BUGS)
def test_a_forgotten_condition_is_found(condition: str) -> None:
    module, options = BUGS[condition]
    kept = tuple(c for c in RpegBoundedAsyncPass.LEGALITY if c.name != condition)
    broken = type("Broken", (RpegBoundedAsyncPass,), {"LEGALITY": kept})(2, **options)
    with pytest.raises(PassRefused):
        rewritten(module, ahead(2, **options))
    with pytest.raises((DiagnosticsError, AssertionError)):
        rewritten(module, broken)


def test_a_wrong_figure_is_found(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setitem(rpeg_bounded_async.CORRECTIONS, "decoupled", {"cap": 0.9})  # type: ignore[attr-defined]
    made = rewritten(pipeline(), ahead(2))
    assert not same(run(by_hand(2, "decoupled")), run(made))


def test_a_ratio_to_what_was_sampled_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(loss: PpoClipOp, current: SSAValue, weight: SSAValue) -> None:
        loss.operands = [*loss.operands[:3], weight]

    monkeypatch.setattr(rpeg_bounded_async, "_weigh", careless)
    with pytest.raises(DiagnosticsError, match="corrects for that already"):
        rewritten(pipeline(*SAMPLED), ahead(2))


def test_a_loss_that_is_left_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpeg_bounded_async, "_weigh", lambda *_: None)
    with pytest.raises(DiagnosticsError, match="write `prox = logprob"):
        rewritten(pipeline(), ahead(2))
