"""References from verl: advantages, losses and importance weights, called as its trainer does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch
from batches import Batch
from case import Case, with_gradient
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo import core_algos as algos
from verl.trainer.ppo import rollout_corr_helper as correction
from verl.utils import tensordict_utils
from verl.utils.dataset.dataset_utils import DatasetPadMode
from verl.workers.config import ActorConfig
from verl.workers.utils import losses as workers

NO_DUAL_CLIP = 1e30
AGGREGATIONS = {
    "token_mean": "token-mean",
    "seq_mean_token_sum": "seq-mean-token-sum",
    "seq_mean_token_mean": "seq-mean-token-mean",
    "constant": "seq-mean-token-sum-norm",
}


def cases(batch: Batch) -> Iterator[Case]:
    """All of them on one batch."""
    yield from _group_advantages(batch)
    yield from _returns(batch)
    yield from _gae(batch)
    yield from _policy_losses(batch)
    yield from _aggregations(batch)
    yield from _kl(batch)
    yield from _other_losses(batch)
    yield from _importance(batch)


def _at_last(rewards: Tensor, mask: Tensor) -> Tensor:
    """Rewards at each row's last trained token, as verl's reward managers place them; a fully
    masked row's at its first token."""
    placed = torch.zeros_like(mask)
    for row, reward in enumerate(rewards):
        placed[row, max(mask[row].nonzero().flatten().tolist(), default=0)] = reward
    return placed


def _group_advantages(b: Batch) -> Iterator[Case]:
    index = np.arange(len(b["rewards"])) // b.n

    def advantage(name: str, function: Callable[..., Any], **extra: Any) -> Case:
        got = function(
            token_level_rewards=_at_last(b["rewards"], b["mask"]),
            response_mask=b["mask"],
            **extra,
        )
        return Case(name, function, {"advantages": got[0]})

    grpo = algos.compute_grpo_outcome_advantage
    yield advantage("grpo", grpo, index=index)
    yield advantage("dr_grpo", grpo, index=index, norm_adv_by_std_in_grpo=False)
    yield advantage("rloo", algos.compute_rloo_outcome_advantage, index=index)
    baseline = algos.compute_reinforce_plus_plus_baseline_outcome_advantage
    yield advantage("reinforce_pp_baseline", baseline, index=index)
    greedy = b["greedy"].repeat_interleave(b.n)
    yield advantage("remax", algos.compute_remax_outcome_advantage, reward_baselines=greedy)


def _returns(b: Batch) -> Iterator[Case]:
    function = algos.compute_reinforce_plus_plus_outcome_advantage
    advantages, returns = function(b["token_rewards"], b["mask"], config=AlgoConfig(gamma=0.9))
    outputs = {"advantages": advantages, "returns": returns}
    yield Case("reinforce_pp", function, outputs, {"gamma": 0.9})
    shaped = algos.compute_rewards(b["token_rewards"], b["old"], b["reference"], 0.3)
    yield Case("kl_penalty", algos.compute_rewards, {"rewards": shaped}, {"coef": 0.3})


def _gae(b: Batch) -> Iterator[Case]:
    function = algos.compute_gae_advantage_return

    def run() -> dict[str, Tensor]:
        advantages, returns = function(b["token_rewards"], b["values"], b["mask"], 0.9, 0.8)
        return {"advantages": advantages, "returns": returns}

    settings = {"gamma": 0.9, "lambda_": 0.8}
    yield Case("gae_whitened", function, run(), settings)
    with mock.patch.object(algos.verl_F, "masked_whiten", lambda values, mask: values):
        yield Case("gae", function, run(), settings)


def _actor(low: float, high: float, dual: float) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual,
    )


def _loss(
    b: Batch,
    function: Callable[..., Any],
    agg: str,
    clip: tuple[float, float] = (0.0, 0.0),
    dual: float = NO_DUAL_CLIP,
    **extra: Any,
) -> dict[str, Tensor]:
    advantages = b["advantages"].unsqueeze(1).expand_as(b["mask"])

    def loss(logprob: Tensor) -> Tensor:
        config = _actor(*clip, dual)
        args = (b["old"], logprob, advantages, b["mask"], AGGREGATIONS[agg], config)
        value: Tensor = function(*args, **extra)[0]
        return value

    return with_gradient(loss, b["logprob"])


def _policy_losses(b: Batch) -> Iterator[Case]:
    def case(
        name: str, function: Callable[..., Any], low: float, high: float, agg: str, **extra: Any
    ) -> Case:
        outputs = _loss(b, function, agg, (low, high), **extra)
        return Case(name, function, outputs, {"clip_low": low, "clip_high": high, "agg": agg})

    vanilla = algos.compute_policy_loss_vanilla
    weights, _ = correction.compute_rollout_correction_weights(b["old"] - b["behaviour"], b["mask"])
    yield case("ppo_clip", vanilla, 0.2, 0.2, "token_mean")
    yield case("clip_higher", vanilla, 0.2, 0.28, "token_mean")
    yield case("dual_clip", vanilla, 0.2, 0.2, "token_mean", dual=3.0)
    yield case("decoupled", vanilla, 0.2, 0.2, "token_mean", rollout_is_weights=weights)
    gspo = algos.compute_policy_loss_gspo
    yield case("gspo", gspo, 0.03, 0.04, "seq_mean_token_mean")
    yield case("gspo_token_mean", gspo, 0.03, 0.04, "token_mean")
    yield case("cispo", algos.compute_policy_loss_cispo, 1.0, 0.28, "token_mean")
    gpg = algos.compute_policy_loss_gpg
    yield Case("gpg", gpg, _loss(b, gpg, "token_mean"), {"agg": "token_mean"})
    reinforce = algos.compute_policy_loss_reinforce
    outputs = _loss(b, reinforce, "seq_mean_token_sum", rollout_is_weights=weights)
    yield Case("reinforce", reinforce, outputs, {"agg": "seq_mean_token_sum"})


def _aggregations(b: Batch) -> Iterator[Case]:
    for ours, theirs in AGGREGATIONS.items():
        value = algos.agg_loss(b["old_values"], b["mask"], theirs)
        yield Case(f"agg_{ours}", algos.agg_loss, {"loss": value}, {"agg": ours})


def _kl(b: Batch) -> Iterator[Case]:
    for estimator in ("k1", "k2", "k3", "abs"):
        value = algos.kl_penalty(b["logprob"], b["reference"], estimator)
        yield Case(f"kl_{estimator}", algos.kl_penalty, {"kl": value}, {"estimator": estimator})


def _other_losses(b: Batch) -> Iterator[Case]:
    value_loss, entropy_loss = algos.compute_value_loss, algos.compute_entropy_loss

    def critic(values: Tensor) -> Tensor:
        loss: Tensor = value_loss(values, b["returns"], b["old_values"], b["mask"], 0.2)[0]
        return loss

    yield Case("value_loss", value_loss, with_gradient(critic, b["values"]), {"clip": 0.2})
    entropy = with_gradient(lambda logits: entropy_loss(logits, b["mask"]), b["logits"])
    yield Case("entropy", entropy_loss, entropy)
    rows = TensorDict({"response_mask": b["mask"]}, batch_size=len(b["mask"]))
    tensordict_utils.assign_non_tensor(
        rows, pad_mode=DatasetPadMode.RIGHT, dp_size=1, batch_num_tokens=b["mask"].sum().item()
    )
    config = _actor(0.2, 0.2, 3.0)
    sft = with_gradient(
        lambda logprob: workers.sft_loss(config, {"log_probs": logprob}, rows)[0], b["logprob"]
    )
    yield Case("sft", workers.sft_loss, sft)


def _importance(b: Batch) -> Iterator[Case]:
    function = correction.compute_rollout_correction_weights
    bounds = {"truncate": 1.5, "mask": "0.7_1.5"}
    for level in ("token", "sequence"):
        for mode, threshold in bounds.items():
            weights, _ = function(b["old"] - b["behaviour"], b["mask"], level, threshold)
            settings = {"level": level, "mode": mode, "cap": 1.5}
            settings |= {"floor": 0.7} if mode == "mask" else {}
            yield Case(f"importance_{level}_{mode}", function, {"weights": weights}, settings)
