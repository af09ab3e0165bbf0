"""Windows of versions: whatever legal versions an oracle picks, no stale token is trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rpeg.interp import EXACT, Interpreter, InterpreterError, Recorded, Window, World, compare
from rpeg.interp.handlers import losses
from rpeg.interp.values import Place, Weights
from rpeg.interp.versions import VersionOracle
from rpeg.runtime.recordings.recording import Recording
from tests.unit.interp.pipelines import THINGS, parse

STEPS = 3
RESUMED = [f"overflow=resume, old_spans={fate}" for fate in ("mask", "drop", "regenerate")]


def module(window: str, policy: str = "") -> object:
    said = f", {policy}" if policy else ""
    return parse(
        f"""
    q = batch(train, size=2)
    y, lp = generate(actor@{window}, q, n=2, max_tokens=4, dtype=fp32{said})
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=none)
    prox = logprob(actor@i, y)
    w = importance(prox, lp)
    pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean, shuffle=false)""",
        more=THINGS,
        optim="adamw(lr=3e-2)",
    )


class Drawn:
    """Some legal versions of resumed samples, older than the bound too."""

    def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
        chosen = torch.randint(
            0, window.newest + 1, (samples, tokens), generator=seeded(place.step)
        )
        return chosen.sort(dim=1).values


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    data=st.data(),
    step=st.integers(0, 5),
    k=st.integers(1, 4),
    fate=st.sampled_from(["mask", "drop", "regenerate"]),
)
def test_what_trains_is_no_older_than_a_strict_bound(
    data: st.DataObject, step: int, k: int, fate: str
) -> None:
    held: list[Weights] = [None] * (step + 1)  # type: ignore[list-item]
    window = Window(held, 0, k, "strict", "resume", fate)
    row = st.lists(st.integers(0, step), min_size=5, max_size=5).map(sorted)
    chosen = torch.tensor(data.draw(st.lists(row, min_size=4, max_size=4)))
    mask = torch.tensor(
        data.draw(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=4, max_size=4))
    )
    window.check(chosen, "y")
    versions = torch.where(mask, window.settled(chosen), -1)
    trained = window.trained(versions, mask, n=2)
    lag = step - versions
    assert not bool((trained & ~mask).any())
    assert not bool((trained & (lag > k)).any())
    old = (mask & (lag > k)).view(2, -1).any(dim=1)
    left = trained.view(2, -1).any(dim=1)
    if fate == "drop":
        assert not bool((left & old).any())
    if fate == "regenerate":
        assert torch.equal(trained, mask)
    if fate == "mask":
        assert torch.equal(trained, mask & (lag <= k))


@pytest.fixture
def run(world_folder: Path) -> Callable[..., Recording]:
    def make(text: object, versions: VersionOracle | None = None) -> Recording:
        return Interpreter(text, "p", World(world_folder), versions=versions).run(STEPS)  # type: ignore[arg-type]

    return make


@pytest.mark.parametrize("policy", RESUMED)
def test_no_token_past_a_strict_bound_reaches_a_loss(
    policy: str, run: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = watch(monkeypatch)
    record = run(module("[i-1..i]", policy), Drawn())
    assert len(trained) == STEPS
    for i, (step, mask) in enumerate(zip(record.steps, trained, strict=True)):
        y = step.trajectories["y"]
        assert torch.equal(y.mask, mask)
        assert not bool((mask & (i - y.versions > 1)).any())
    last = record.steps[-1].trajectories["y"]
    masked = int(((last.versions >= 0) & ~last.mask).sum())
    assert (masked > 0) == ("regenerate" not in policy)


def watch(patch: pytest.MonkeyPatch) -> list[Tensor]:
    """The masks that losses are taken over, from now on."""
    seen: list[Tensor] = []
    loss = losses.losses.ppo_clip

    def noting(logprob: Tensor, adv: Tensor, old: Tensor, mask: Tensor, **more: object) -> Tensor:
        seen.append(mask)
        return loss(logprob, adv, old, mask, **more)  # type: ignore[arg-type]

    patch.setattr(losses.losses, "ppo_clip", noting)
    return seen


def test_a_window_of_nothing_is_the_synchronous_pipeline(run: Callable[..., Recording]) -> None:
    a, b = run(module("i")), run(module("[i-0..i]"))
    assert compare(a, b) == EXACT
    for ours, theirs in zip(a.steps, b.steps, strict=True):
        assert torch.equal(ours.trajectories["y"].tokens, theirs.trajectories["y"].tokens)
    weights = zip(a.weights["actor"].values(), b.weights["actor"].values(), strict=True)
    assert all(torch.equal(x, y) for x, y in weights)


def test_the_oldest_version_is_the_default(run: Callable[..., Recording]) -> None:
    window, exact = run(module("[i-1..i]")), run(module("i-1"))
    assert [int(s.trajectories["y"].versions.max()) for s in window.steps] == [0, 0, 1]
    assert compare(window, exact) == EXACT


def test_recorded_versions_sample_the_same_again(run: Callable[..., Recording]) -> None:
    text = module("[i-2..i]", RESUMED[0])
    first = run(text, Drawn())
    again = run(text, Recorded(first))
    for ours, theirs in zip(first.steps, again.steps, strict=True):
        assert torch.equal(ours.trajectories["y"].tokens, theirs.trajectories["y"].tokens)
        assert torch.equal(ours.trajectories["y"].mask, theirs.trajectories["y"].mask)


def test_spans_are_sampled_under_their_own_versions(run: Callable[..., Recording]) -> None:
    class Halves:
        def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
            late = torch.arange(tokens) >= 2
            return torch.where(late, window.newest, window.oldest).expand(samples, -1)

    text = module("[i-2..i]", "overflow=resume, old_spans=mask")
    last = run(text, Halves()).steps[-1]
    mask = last.trajectories["y"].mask
    apart = (last.sampled["y"] - last.logprobs["prox"]).abs() * mask
    assert float(apart[:, 2:].max()) < 1e-5 < float(apart[:, :2].max())


@pytest.mark.parametrize(
    ("chosen", "policy", "said"),
    [
        ([[0, 0, 0, 0]], "", "chose versions 0 to 0, the window allows 1 to 2"),
        ([[2, 2, 2, 3]], "bound=head", "versions 2 to 3, the window allows 0 to 2"),
        ([[1, 1, 2, 2]], "", "the oracle mixes versions, overflow=wait"),
        ([[2, 1, 1, 1]], "bound=head, overflow=resume", "the oracle mixes versions"),
    ],
)
def test_an_oracle_that_breaks_the_bound_is_refused(
    chosen: list[list[int]], policy: str, said: str, run: Callable[..., Recording]
) -> None:
    class Wrong:
        def versions(self, place: Place, window: Window, samples: int, tokens: int) -> Tensor:
            if place.step < 2:
                return torch.full((samples, tokens), window.newest)
            return torch.tensor(chosen).expand(samples, -1)

    with pytest.raises(InterpreterError, match=said):
        run(module("[i-1..i]", policy), Wrong())
