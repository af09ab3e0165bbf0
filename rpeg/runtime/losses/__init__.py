"""Loss rows of the language as pure functions on tensors.

Every loss maps per-token tensors of shape [samples, tokens] to a per-token loss of the same shape,
zero outside the mask; `aggregation.token_weights` then turns it into one number. Nothing here knows
about models, processes or micro-batches: totals are handed in.
"""

from rpeg.runtime.losses.aggregation import Aggregation, Totals, token_weights
from rpeg.runtime.losses.cross_entropy import cross_entropy
from rpeg.runtime.losses.distill import distill
from rpeg.runtime.losses.entropy import entropy_bonus
from rpeg.runtime.losses.kl import kl_estimate, kl_loss
from rpeg.runtime.losses.policy import (
    cispo,
    clip_fraction,
    policy_gradient,
    policy_ratio,
    ppo_clip,
)
from rpeg.runtime.losses.value import value_loss

__all__ = [
    "Aggregation",
    "Totals",
    "cispo",
    "clip_fraction",
    "cross_entropy",
    "distill",
    "entropy_bonus",
    "kl_estimate",
    "kl_loss",
    "policy_gradient",
    "policy_ratio",
    "ppo_clip",
    "token_weights",
    "value_loss",
]
