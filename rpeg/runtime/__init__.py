"""What generated programs import: `from rpeg import runtime as rt`, and nothing else of rpeg.

Imports torch, but neither Megatron-Core nor transformers before a model is made.
"""

import rpeg.lifetime.interrupts  # noqa: F401 - before torch
from rpeg.runtime.buffer import TrajectoryBuffer
from rpeg.runtime.collect import Collect
from rpeg.runtime.data import DemoData, PairData, PromptData
from rpeg.runtime.engine.embedded import EmbeddedEngine
from rpeg.runtime.engine.rollouts import Rollouts
from rpeg.runtime.engine.weights import LatestWeights
from rpeg.runtime.errors import RuntimeFailure
from rpeg.runtime.evaluate import evaluate, evaluate_loss, evaluate_pairs
from rpeg.runtime.fields import (
    gae,
    group_advantage,
    importance,
    kl_penalty,
    remax_advantage,
    returns,
    sum_tokens,
    weighted_sum,
    whiten,
)
from rpeg.runtime.groups import Groups
from rpeg.runtime.judge import Judge
from rpeg.runtime.layout import AdamW, Layout, MicroBatch
from rpeg.runtime.models.shared_ids import share_tokenizer
from rpeg.runtime.pools.channel import Channel
from rpeg.runtime.pools.sampled import SampledModel
from rpeg.runtime.publish.received import ReceivedWeights
from rpeg.runtime.publish.sent import SentWeights
from rpeg.runtime.run import Run, start
from rpeg.runtime.scalar import Scalar
from rpeg.runtime.terms import (
    ON_POLICY,
    cispo,
    cross_entropy,
    distill,
    dpo,
    entropy_bonus,
    kl_loss,
    policy_gradient,
    ppo_clip,
    reward_loss,
    value_loss,
)
from rpeg.runtime.together import forward
from rpeg.runtime.trainer import FrozenModel, InitialWeights, Trainer
from rpeg.runtime.verifiers import Verifier

__all__ = [
    "ON_POLICY",
    "AdamW",
    "Channel",
    "Collect",
    "DemoData",
    "EmbeddedEngine",
    "FrozenModel",
    "Groups",
    "InitialWeights",
    "Judge",
    "LatestWeights",
    "Layout",
    "MicroBatch",
    "PairData",
    "PromptData",
    "ReceivedWeights",
    "Rollouts",
    "Run",
    "RuntimeFailure",
    "SampledModel",
    "Scalar",
    "SentWeights",
    "Trainer",
    "TrajectoryBuffer",
    "Verifier",
    "cispo",
    "cross_entropy",
    "distill",
    "dpo",
    "entropy_bonus",
    "evaluate",
    "evaluate_loss",
    "evaluate_pairs",
    "forward",
    "gae",
    "group_advantage",
    "importance",
    "kl_loss",
    "kl_penalty",
    "policy_gradient",
    "ppo_clip",
    "remax_advantage",
    "returns",
    "reward_loss",
    "share_tokenizer",
    "start",
    "sum_tokens",
    "value_loss",
    "weighted_sum",
    "whiten",
]
