"""The verdict on a layout: how far it is from the recording, what differs first, and why it may."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rpeg.interp import Gap, Greedy, InterpreterError, Parity, gaps
from rpeg.interp.parity import parity, squared_gaps
from rpeg.runtime.recordings.recording import Recording
from rpeg.tools.verifying.figures import Part, parts
from rpeg.tools.verifying.record import Recorded

BOUND = Parity()
TIE = 1e-4
"""Between the two greatest logits: where they are closer, either token is right."""


@dataclass(frozen=True)
class GreedyTally:
    """Greedy completions of an engine's last weights, beside the interpreter's."""

    equal: int = 0
    of: int = 0
    parted: tuple[tuple[str, int, int, float], ...] = ()
    """(trajectories, prompt, token, gap of the two greatest logits) where others part."""

    @property
    def wrong(self) -> tuple[str, int, int, float] | None:
        """The first that no tie excuses."""
        return next((place for place in self.parted if not place[3] < TIE), None)


@dataclass(frozen=True)
class Verdict:
    """On one layout."""

    layout: str
    problem: str = ""
    """What is wrong, where first, and kinds of causes; empty if nothing is."""
    refused: str = ""
    """Why the layout can't be made of this pipeline, or the pipeline not be verified."""
    parity: Parity | None = None
    """The greatest of all parts; None where the program failed, or there was none."""
    parts: tuple[Part, ...] = ()
    """The same by model and head."""
    greedy: GreedyTally = field(default_factory=GreedyTally)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the layout computes what the pipeline says."""
        return not self.problem and not self.refused

    @property
    def has_engine(self) -> bool:
        """Whether an engine said something."""
        return any("behaviour" in part.figures for part in self.parts)

    @property
    def word(self) -> str:
        """The verdict in one word."""
        return "refused" if self.refused else "DIFFERS" if self.problem else "same"


def judge(layout: str, recorded: Recorded, computed: Recording) -> Verdict:
    """Compares what a layout computed with the interpreter's recording."""
    try:
        found = list(gaps(recorded.recording, computed))
        held = parts(found, recorded.recording, computed)
    except InterpreterError as error:
        return Verdict(layout, f"what it computed can't be compared: {error}")
    tally = _tally(recorded.greedy, computed.greedy)
    return Verdict(
        layout,
        _problem(recorded.recording, computed, found, held, tally),
        parity=parity(found, max((p.figures.get("weights", 0.0) for p in held), default=0.0)),
        parts=held,
        greedy=tally,
    )


def _problem(
    a: Recording, b: Recording, found: Sequence[Gap], held: Sequence[Part], tally: GreedyTally
) -> str:
    first = next((gap for gap in found if not gap.value <= getattr(BOUND, gap.kind)), None)
    if first is not None:
        return f"{_first(first, a, b)}. {_cause(first)}"
    drifted = next((p for p in held if not p.figures.get("weights", 0.0) <= BOUND.weights), None)
    if drifted is not None:
        return (
            f"after the last step the weights of `{drifted.model}` ({drifted.head}) are "
            f"{drifted.figures['weights']:.1e} apart (root mean square; {_worst_tensors(a, b)}). "
            "What they say and their gradients agree: look at the optimizer's step"
        )
    if tally.wrong is not None:
        name, prompt, token, gap = tally.wrong
        return (
            f"greedy completion {prompt + 1} of `{name}` parts at token {token + 1}, where the "
            f"recording's choice leads by {gap:.1e}. Log-probs agree: look at the engine's cache, "
            "positions and masks"
        )
    return ""


def _first(gap: Gap, a: Recording, b: Recording) -> str:
    """What differs, by how much and where: steps, samples and tokens count from 1."""
    where = [f"step {gap.step + 1}"]
    if gap.optimizer_step is not None:
        where.append(f"optimizer step {gap.optimizer_step + 1} of `{gap.model}`")
    if gap.sample is not None and gap.token is not None:
        where.append(f"sample {gap.sample + 1}, token {gap.token + 1}")
    place = ", ".join(where)
    if gap.kind == "grad_norm":
        assert gap.optimizer_step is not None, "norms belong to optimizer steps"
        ours, theirs = (r.steps[gap.step].grad_norms[gap.model][gap.optimizer_step] for r in (a, b))
        return (
            f"the gradient's norm differs first in {place}: {theirs:.6g} instead of {ours:.6g}"
            f"; in the end {_worst_tensors(a, b)}"
        )
    if gap.kind == "loss":
        term = gap.name.partition("/")[2]
        return f"what `{term}` comes to differs first in {place}, by {gap.value:.1e}"
    named = "" if gap.optimizer_step is not None else f" (`{gap.name}`)"
    return f"{_what(gap)}{named} differ first in {place}, by {gap.value:.1e}"


def _what(gap: Gap) -> str:
    match gap.kind:
        case "behaviour":
            return "the engine's log-probs"
        case "target":
            return f"the {gap.name} that it trains towards"
        case "value":
            return "values"
        case _:
            return "log-probs"


def _cause(gap: Gap) -> str:
    began = gap.step == 0 and not gap.optimizer_step
    match gap.kind:
        case "grad_norm":
            return (
                "What the model says and what it costs agree up to there, so the backward pass or "
                "its sums are wrong: an all-reduce left out or made twice, gradients of shared "
                "weights (norms, tied embeddings, one trunk of two heads) that aren't added up"
            )
        case "target":
            return (
                "The log-probs and values that it is computed from agree, so it is computed "
                "wrongly (sums over all processes, as in `whiten`), or came to other rows on its "
                "way to processes of another layout"
            )
        case "loss":
            return (
                "What the model says and trains towards agree, so rows count too much or too "
                "little: a normaliser of one process's tokens, old log-probs or values of other "
                "rows, a term taken twice"
            )
        case "logprob" | "value" if began:
            return (
                "No weights have changed yet, so the forward pass is wrong: how weights are split, "
                "sums over the vocabulary or the ranks, positions, micro-batches"
            )
        case "logprob" | "value":
            return (
                "The gradient norms before it agree, so an update is wrong: the optimizer's step "
                "or its shards, parameters that differ between processes"
            )
        case "behaviour" if gap.step == 0:
            return "The engine's forward pass is wrong, or the first weights that it was given"
        case "behaviour":
            return (
                "The trainer agrees up to there, so the engine holds other weights than the last "
                "update made: a publish that is missing, late or wrong"
            )


def _worst_tensors(a: Recording, b: Recording) -> str:
    """The two tensors whose last weights are farthest apart."""
    rms = {key: float(gap.mean() ** 0.5) for key, gap in squared_gaps(a, b).items()}
    worst = sorted(rms, key=lambda key: rms[key], reverse=True)[:2]
    return "most apart: " + ", ".join(f"{name} ({rms[m, name]:.1e})" for m, name in worst)


def _tally(ours: dict[str, Greedy], theirs: dict[str, Tensor]) -> GreedyTally:
    parted: list[tuple[str, int, int, float]] = []
    total = 0
    for name in ours.keys() & theirs.keys():
        total += len(theirs[name])
        differs = ours[name].tokens != theirs[name]
        for prompt in torch.nonzero(differs.any(dim=1)).flatten().tolist():
            token = int(differs[prompt].int().argmax())
            parted.append((name, prompt, token, float(ours[name].gaps[prompt, token])))
    return GreedyTally(total - len(parted), total, tuple(parted))
