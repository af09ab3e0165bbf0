"""Loss terms: the loss rows of the language on the trajectories of a step, ready for an update.

A term knows its batch and its fields; the trainer hands it what the model says about a micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from rpeg.runtime import losses
from rpeg.runtime.losses.distill import Divergence
from rpeg.runtime.losses.kl import Estimator
from rpeg.runtime.losses.policy import Ratio
from rpeg.runtime.recordings.recording import TARGETS
from rpeg.runtime.trajectories import Batch, Demos, Pairs, Trajectories

Said = Literal["logprob", "values"]
"""What a model is asked for: fields of `Outputs`."""
Fields = Mapping[str, Tensor]
"""Per-token [samples, tokens] and per-response [samples] fields by name."""


@dataclass(frozen=True)
class Outputs:
    """What the model says about one micro-batch, all [batch, tokens]."""

    mask: Tensor
    logprob: Tensor
    """Of the completion tokens; empty for a value model."""
    entropy: Tensor
    """Of the next-token distribution."""
    values: Tensor
    """A critic's values, or the scores of a reward model, each where it is; empty for a policy."""


@dataclass(frozen=True)
class LossTerm:
    """One summand of a loss."""

    name: str
    batch: Batch
    loss: Callable[[Outputs, Fields], Tensor]
    """Per-token loss [batch, tokens], zero outside the mask; of pairs [batch / 2]."""
    fields: Fields = field(default_factory=dict)
    stats: Callable[[Outputs, Fields], dict[str, Tensor]] = lambda out, fields: {}
    """Statistics of the loss's shape, reported as means over the trained tokens or pairs."""
    scaled_by: str | None = None
    """Field that multiplies the loss, or None: where it is zero, so are loss and gradient."""

    def active(self) -> Tensor:
        """[samples] bool: rows whose loss can be anything but zero."""
        if self.scaled_by is None:
            return torch.ones(len(self.batch.rows), dtype=torch.bool)
        nonzero = self.fields[self.scaled_by].ne(0)
        return nonzero if nonzero.dim() == 1 else nonzero.any(dim=1)

    def moved(self, move: Callable[[Any], Any]) -> LossTerm:
        """The same on other shares of the batch, to which `move` takes it and its fields."""
        fields = {name: move(values) for name, values in self.fields.items()}
        return replace(self, batch=move(self.batch), fields=fields)

    def rows(self, rows: list[int], width: int) -> Fields:
        """The fields of a micro-batch, cut to `width` tokens."""
        index = torch.tensor(rows)
        return {
            name: values[index, :width] if values.dim() == 2 else values[index]
            for name, values in self.fields.items()
        }


@dataclass(frozen=True)
class Lesson:
    """A micro-batch of an optimizer step: what the model says of its rows, and what that costs."""

    rows: list[int]
    out: Outputs
    terms: Sequence[LossTerm]
    weights: Tensor
    """[batch, tokens] or [pairs]: of each in the loss of the minibatch."""

    def fields(self, term: LossTerm) -> Fields:
        """A term's fields of these rows, where the model is."""
        width, device = self.out.mask.shape[1], self.weights.device
        return {name: f.to(device) for name, f in term.rows(self.rows, width).items()}

    @torch.no_grad()
    def told(self, lead: int) -> dict[str, Tensor]:
        """Of each row: `logprob` and `values` [rows, tokens], as far as the model says them,
        without the first `lead`; the TARGETS of its terms; and by `loss/TERM` what each costs
        [rows, 1].
        """
        said = {"logprob": self.out.logprob, "values": self.out.values}
        told = {name: found[:, lead:] for name, found in said.items() if found.numel()}
        for term in self.terms:
            fields = self.fields(term)
            told |= {n: f.reshape(len(f), -1) for n, f in fields.items() if n in TARGETS}
            name, cost = f"loss/{term.name}", self._cost(term, fields)
            told[name] = told[name] + cost if name in told else cost
        return told

    def _cost(self, term: LossTerm, fields: Fields) -> Tensor:
        """[rows, 1] of the minibatch's loss; that of a pair is shared by its two rows."""
        cost = (self.weights * term.loss(self.out, fields)).reshape(len(self.weights), -1).sum(1)
        shared = len(self.rows) // len(cost)
        return cost.repeat_interleave(shared).unsqueeze(1) / shared


class OnPolicy:
    """Stands for the log-probs before the first optimizer step: the new ones, without gradient."""


ON_POLICY = OnPolicy()


def ppo_clip(
    y: Trajectories,
    advantages: Tensor,
    old: Tensor | OnPolicy,
    weight: Tensor | None = None,
    *,
    clip_low: float,
    clip_high: float,
    clip_dual: float | None = None,
    ratio: Ratio = "token",
) -> LossTerm:
    """See `losses.ppo_clip`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.ppo_clip(
            out.logprob,
            f["advantages"],
            _old(out, f),
            out.mask,
            clip_low=clip_low,
            clip_high=clip_high,
            clip_dual=clip_dual,
            ratio=ratio,
            weight=f.get("weight"),
        )

    def stats(out: Outputs, f: Fields) -> dict[str, Tensor]:
        clipped = losses.clip_fraction(
            out.logprob,
            f["advantages"],
            _old(out, f),
            out.mask,
            clip_low=clip_low,
            clip_high=clip_high,
            ratio=ratio,
        )
        return {"clip_fraction": clipped, **_drift(out, f)}

    fields = _policy_fields(advantages, old, weight)
    return LossTerm("ppo_clip", y, loss, fields, stats, scaled_by="advantages")


def cispo(
    y: Trajectories,
    advantages: Tensor,
    old: Tensor | OnPolicy,
    weight: Tensor | None = None,
    *,
    clip_high: float,
) -> LossTerm:
    """See `losses.cispo`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.cispo(
            out.logprob,
            f["advantages"],
            _old(out, f),
            out.mask,
            clip_high=clip_high,
            weight=f.get("weight"),
        )

    fields = _policy_fields(advantages, old, weight)
    return LossTerm("cispo", y, loss, fields, _drift, scaled_by="advantages")


def policy_gradient(y: Trajectories, advantages: Tensor, weight: Tensor | None = None) -> LossTerm:
    """See `losses.policy_gradient`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.policy_gradient(
            out.logprob, f["advantages"], out.mask, weight=f.get("weight")
        )

    fields = _policy_fields(advantages, ON_POLICY, weight)
    return LossTerm("policy_gradient", y, loss, fields, scaled_by="advantages")


def kl_loss(
    y: Trajectories, reference: Tensor, *, coef: float, estimator: Estimator = "k3"
) -> LossTerm:
    """See `losses.kl_loss`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.kl_loss(out.logprob, f["reference"], out.mask, coef=coef, estimator=estimator)

    def stats(out: Outputs, f: Fields) -> dict[str, Tensor]:
        return {"kl": losses.kl_loss(out.logprob, f["reference"], out.mask, coef=1.0)}

    return LossTerm("kl_loss", y, loss, {"reference": reference}, stats)


def entropy_bonus(y: Trajectories, *, coef: float) -> LossTerm:
    """See `losses.entropy_bonus`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.entropy_bonus(out.entropy, out.mask, coef=coef)

    return LossTerm("entropy_bonus", y, loss)


def value_loss(
    y: Trajectories, returns: Tensor, old: Tensor, *, clip: float, coef: float = 1.0
) -> LossTerm:
    """See `losses.value_loss`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.value_loss(out.values, f["returns"], f["old"], out.mask, clip=clip, coef=coef)

    return LossTerm("value_loss", y, loss, {"returns": returns, "old": old})


def distill(
    y: Trajectories, teacher: Tensor, *, divergence: Divergence, coef: float = 1.0
) -> LossTerm:
    """See `losses.distill`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.distill(out.logprob, f["teacher"], out.mask, divergence=divergence, coef=coef)

    return LossTerm("distill", y, loss, {"teacher": teacher})


def cross_entropy(examples: Demos, *, coef: float = 1.0) -> LossTerm:
    """See `losses.cross_entropy`."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.cross_entropy(out.logprob, out.mask, coef=coef)

    return LossTerm("cross_entropy", examples, loss)


def dpo(pairs: Pairs, reference: Tensor, *, beta: float, label_smoothing: float = 0.0) -> LossTerm:
    """See `losses.dpo`. Reports the implicit rewards, their margin and how often it is right."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.dpo(
            out.logprob, f["reference"], out.mask, beta=beta, label_smoothing=label_smoothing
        )

    def stats(out: Outputs, f: Fields) -> dict[str, Tensor]:
        rewards = losses.implicit_rewards(out.logprob, f["reference"], out.mask, beta=beta)
        chosen, rejected = losses.pairs(rewards)
        return {"dpo/chosen": chosen, "dpo/rejected": rejected, **_ranking("dpo/", rewards)}

    return LossTerm("dpo", pairs, loss, {"reference": reference}, stats)


def reward_loss(pairs: Pairs, *, margin: float = 0.0) -> LossTerm:
    """See `losses.reward_model`. Reports how far and how often the chosen response is ahead."""

    def loss(out: Outputs, f: Fields) -> Tensor:
        return losses.reward_model(out.values.sum(dim=1), margin=margin)

    def stats(out: Outputs, f: Fields) -> dict[str, Tensor]:
        return _ranking("", out.values.sum(dim=1))

    return LossTerm("reward_loss", pairs, loss, stats=stats)


def _ranking(prefix: str, scores: Tensor) -> dict[str, Tensor]:
    """How far and how often the chosen response is ahead, [pairs], from scores [2 pairs]."""
    margin = losses.margin(scores)
    return {f"{prefix}margin": margin, f"{prefix}accuracy": (margin > 0).float()}


def _policy_fields(
    advantages: Tensor, old: Tensor | OnPolicy, weight: Tensor | None
) -> dict[str, Tensor]:
    fields = {"advantages": advantages, "old": old, "weight": weight}
    return {name: value for name, value in fields.items() if isinstance(value, Tensor)}


def _old(out: Outputs, f: Fields) -> Tensor:
    return f.get("old", out.logprob.detach())


def _drift(out: Outputs, f: Fields) -> dict[str, Tensor]:
    """How far the policy is from the one that sampled."""
    old = _old(out, f)
    return {
        "ratio": losses.policy_ratio(out.logprob, old, out.mask),
        "old_kl": losses.kl_estimate(old * out.mask, out.logprob * out.mask, "k1"),
    }
