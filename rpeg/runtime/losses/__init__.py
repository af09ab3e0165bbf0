"""Losses as pure functions on tensors.

A loss of responses maps per-token tensors [samples, tokens] to a per-token loss of the same shape,
zero outside the mask; `aggregation.loss_weights` then turns it into one number. A loss of pairs
gives one number per pair. Nothing here knows about models, processes or micro-batches: totals are
handed in.
"""

from rpeg.runtime.losses.aggregation import Aggregation, Totals, loss_weights, token_weights
from rpeg.runtime.losses.cross_entropy import cross_entropy
from rpeg.runtime.losses.distill import distill
from rpeg.runtime.losses.divergence import divergence
from rpeg.runtime.losses.entropy import entropy_bonus
from rpeg.runtime.losses.kl import adapted_coef, kl_estimate, kl_loss, summed_kl
from rpeg.runtime.losses.policy import (
    cispo,
    clip_fraction,
    policy_gradient,
    policy_ratio,
    ppo_clip,
)
from rpeg.runtime.losses.preference import dpo, implicit_rewards, margin, pairs, reward_model
from rpeg.runtime.losses.value import value_loss

__all__ = [
    "Aggregation",
    "Totals",
    "adapted_coef",
    "cispo",
    "clip_fraction",
    "cross_entropy",
    "distill",
    "divergence",
    "dpo",
    "entropy_bonus",
    "implicit_rewards",
    "kl_estimate",
    "kl_loss",
    "loss_weights",
    "margin",
    "pairs",
    "policy_gradient",
    "policy_ratio",
    "ppo_clip",
    "reward_model",
    "summed_kl",
    "token_weights",
    "value_loss",
]
