"""A chain of layouts: each goes on from the checkpoint of the one before, and writes its own.

Run with the folder of models and checkpoints, and names of cases. Before a link trains, it writes
what it loaded, so that nothing can hide in what it makes of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import torch

from rpeg import runtime as rt
from rpeg.passes.layout_names import parse_layout
from rpeg.runtime.groups import Groups
from rpeg.runtime.state.checkpoint import State, restore, save
from rpeg.runtime.terms import LossTerm
from rpeg.runtime.trajectories import Row, Trajectories

SAMPLES, WIDTH, STEPS_A_LINK = 8, 5, 2


@dataclass(frozen=True)
class Chain:
    """A model and the layouts that take turns in training it."""

    model: str
    layouts: tuple[str, ...]
    """Of two processes; the last link is one process."""
    role: str = "policy"
    dtype: str = "fp32"


CHAINS = {
    "tied": Chain("qwen3", ("tp2", "pp2", "dp2", "dp2zero1", "tp2sp")),
    "chunked": Chain("llama", ("dp2zero1", "pp2vpp2", "tp2")),
    "critic": Chain("qwen2", ("pp2", "dp2zero1", "tp2"), role="value"),
    "two heads": Chain("qwen3", ("pp2vpp2", "dp2zero1", "tp2sp"), role="actor_critic"),
    "masters": Chain("qwen3", ("tp2", "dp2zero1", "pp2", "dp2"), dtype="bf16"),
}

UNBROKEN = {
    "dp2zero1": Chain("qwen3", (), dtype="bf16"),
    "pp2vpp2": Chain("llama", ()),
    "tp2sp": Chain("qwen2", ()),
}
"""Layouts that go on from themselves."""

CASES = [*CHAINS, *UNBROKEN]
SLOW = {"chunked", "critic", "two heads", "masters", "tp2sp", "dp2zero1"}


def recorded(vocab: int) -> Trajectories:
    """Random completions, two of each prompt."""
    generator = torch.Generator().manual_seed(1)

    def draw(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=generator)

    mask = torch.arange(WIDTH) < draw(1, WIDTH + 1, SAMPLES).unsqueeze(1)
    prompts = [tuple(draw(2, vocab, 4).tolist()) for _ in range(SAMPLES // 2)]
    return Trajectories(
        rows=(Row(""),) * SAMPLES,
        prompt_ids=tuple(prompt for prompt in prompts for _ in range(2)),
        tokens=draw(1, vocab, SAMPLES, WIDTH) * mask,
        mask=mask,
        versions=mask.int() - 1,
        finished=torch.ones(SAMPLES, dtype=torch.bool),
        ordinals=torch.arange(SAMPLES) // 2,
        samples=torch.arange(SAMPLES) % 2,
        texts=("",) * SAMPLES,
        n=2,
        temperature=1.0,
    )


def trainer(run: rt.Run, folder: Path, chain: Chain, layout: str) -> rt.Trainer:
    """The chain's model as a link trains it."""
    return rt.Trainer(
        run,
        "actor",
        role=chain.role,
        source=str(folder / chain.model),
        groups=Groups.make(rt.Layout(**parse_layout(layout))),  # type: ignore[arg-type]
        dtype=chain.dtype,
        optimizer=rt.AdamW(lr=1e-3, beta2=0.99, grad_clip=0.5),
        horizon=100,
    )


def train(actor: rt.Trainer) -> None:
    """The steps of one link."""
    y = recorded(actor.shape.vocab)
    mine = torch.arange(SAMPLES).tensor_split(actor.groups.dp_size)[actor.groups.dp_rank]
    for _ in range(STEPS_A_LINK):
        actor.update(*terms(actor, y.select(mine), mine), agg="token_mean")


def link(run: rt.Run, folder: Path, chain: Chain, layout: str, begin: Path, end: Path) -> None:
    """Loads the newest checkpoint in `begin`; writes it again to `end`, and once more after
    training.
    """
    actor = trainer(run, folder, chain, layout)
    state = State(models={"actor": actor})
    restore(begin, state)
    save(end, 1, state, keep=2)
    train(actor)
    save(end, 2, state, keep=2)


def terms(actor: rt.Trainer, y: Trajectories, mine: torch.Tensor) -> list[LossTerm]:
    """A loss with something to learn for each token, and each head."""
    goals = torch.linspace(-2, 2, SAMPLES)[mine]
    found = [rt.policy_gradient(y, goals)] if actor.predicts else []
    if actor.role != "policy":
        returns = goals.unsqueeze(1) * y.mask
        found.append(rt.value_loss(y, returns, actor.values(y), clip=10.0))
    return found


def whole(run: rt.Run, folder: Path, chain: Chain, layout: str, end: Path, links: int) -> None:
    """Trains without a break; the state before the last link, and after it, goes to `end`."""
    actor = trainer(run, folder, chain, layout)
    state = State(models={"actor": actor})
    for number in range(links):
        if number == links - 1:
            save(end / "middle", 1, state, keep=1)
        train(actor)
    save(end, 2, state, keep=1)


def main() -> None:
    folder = Path(sys.argv[1])
    run = rt.start(pipeline="chains", steps=1, processes=2, source_sha256="0")
    names = sys.argv[2:]
    for name, chain in ((n, CHAINS[n]) for n in names if n in CHAINS):
        begin = folder / name / "none"
        for number, layout in enumerate(chain.layouts):
            end = folder / name / f"{number}-{layout}"
            link(run, folder, chain, layout, begin, end)
            begin = end
    for layout, chain in ((n, UNBROKEN[n]) for n in names if n in UNBROKEN):
        whole(run, folder, chain, layout, folder / layout, links=2)
        link(run, folder, chain, layout, folder / layout / "middle", folder / layout / "resumed")
    run.finish()


if __name__ == "__main__":
    main()
