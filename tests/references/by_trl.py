"""References from TRL: its trainers' losses, called on a stand-in that holds no model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from batches import Batch
from case import Case, with_gradient
from torch import Tensor
from trl import DPOTrainer, GRPOTrainer, RewardTrainer, RLOOTrainer
from trl.experimental.gkd import GKDTrainer

AGGREGATIONS = {"token_mean": "bnpo", "seq_mean_token_mean": "grpo", "constant": "dr_grpo"}


def cases(batch: Batch) -> Iterator[Case]:
    """All of them on one batch, in which every row has a trained token."""
    yield from _policy_losses(batch)
    yield from _pairs(batch)
    yield from _distillation(batch)


def _trainer(**settings: Any) -> SimpleNamespace:
    """What the losses read of a trainer: one process, evaluation (no gradient accumulation)."""
    accelerator = SimpleNamespace(
        device=torch.device("cpu"),
        num_processes=1,
        gather=lambda x: x,
        gather_for_metrics=lambda x: x,
        reduce=lambda x, reduction: x,
    )
    model = SimpleNamespace(training=False)
    metrics = {"eval": defaultdict(list)}
    return SimpleNamespace(
        accelerator=accelerator,
        model=model,
        _metrics=metrics,
        _total_train_tokens=0,
        aux_loss_enabled=False,
        **settings,
    )


def _policy_inputs(b: Batch) -> dict[str, Tensor]:
    mask = b["mask"]
    return {
        "prompt_ids": b["tokens"][:, :1],
        "prompt_mask": mask[:, :1],
        "completion_ids": b["tokens"],
        "completion_mask": mask,
        "advantages": b["advantages"],
        "old_per_token_logps": b["old"],
        "ref_per_token_logps": b["reference"],
        "old_logps": (b["logprob"] * mask).sum(1),
        "num_items_in_batch": mask.sum(),
    }


def _grpo(b: Batch, loss_type: str, low: float, high: float, level: str, beta: float) -> Case:
    def loss(logprob: Tensor) -> Tensor:
        trainer = _trainer(
            loss_type=loss_type,
            epsilon_low=low,
            epsilon_high=high,
            importance_sampling_level=level,
            beta=beta,
            top_entropy_quantile=1.0,
            off_policy_mask_threshold=None,
            use_vllm=False,
            max_completion_length=b["mask"].shape[1],
            current_gradient_accumulation_steps=1,
            _entropy_bonus_enabled=False,
            args=SimpleNamespace(delta=None, use_bias_correction_kl=False),
        )
        trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
            logprob,
            torch.zeros_like(logprob),
            None,
        )
        value: Tensor = GRPOTrainer._compute_loss(trainer, None, _policy_inputs(b))
        return value

    return Case("", GRPOTrainer._compute_loss, with_gradient(loss, b["logprob"]))


def _policy_losses(b: Batch) -> Iterator[Case]:
    def case(
        name: str, kind: str, agg: str, high: float, level: str = "token", beta: float = 0.0
    ) -> Case:
        made = _grpo(b, kind, 0.2, high + (kind == "cispo"), level, beta)
        settings = {"clip_low": 0.2, "clip_high": high, "agg": agg, "coef": beta}
        return Case(f"trl_{name}", made.function, made.outputs, settings)

    for agg, kind in AGGREGATIONS.items():
        yield case(f"grpo_{agg}", kind, agg, 0.28)
    yield case("gspo", "grpo", "seq_mean_token_mean", 0.28, "sequence")
    yield case("cispo", "cispo", "token_mean", 0.28)
    yield case("grpo_kl", "grpo", "seq_mean_token_mean", 0.2, beta=0.1)
    yield Case("trl_rloo", RLOOTrainer._compute_loss, _rloo(b))


def _rloo(b: Batch) -> dict[str, Tensor]:
    def loss(logprob: Tensor) -> Tensor:
        trainer = _trainer(epsilon_low=0.2, epsilon_high=0.2)
        trainer._get_per_token_logps_and_entropies = lambda *_, **__: (
            logprob,
            torch.zeros_like(logprob),
            None,
        )
        value: Tensor = RLOOTrainer._compute_loss(trainer, None, _policy_inputs(b))
        return value

    return {"gradient": with_gradient(loss, b["logprob"])["gradient"]}


def _halves(rows: Tensor) -> Tensor:
    """Chosen and rejected rows alternate here; TRL wants all chosen ones first."""
    return torch.cat([rows[0::2], rows[1::2]])


def _pairs(b: Batch) -> Iterator[Case]:
    yield Case("dpo", DPOTrainer._compute_loss, with_gradient(_dpo(b), b["logprob"]), {"beta": 0.1})

    def reward(scores: Tensor) -> Tensor:
        trainer = _trainer(args=SimpleNamespace(center_rewards_coefficient=None))
        halves = _halves(scores).unsqueeze(1)
        value: Tensor = RewardTrainer.compute_loss(
            trainer, lambda **_: SimpleNamespace(logits=halves), {}
        )
        return value

    yield Case("reward_model", RewardTrainer.compute_loss, with_gradient(reward, b["scores"]))


def _dpo(b: Batch) -> Callable[[Tensor], Tensor]:
    mask = _halves(b["mask"])

    def model(logprob: Tensor) -> Callable[..., SimpleNamespace]:
        zeros = torch.zeros_like(mask)
        return lambda **_: SimpleNamespace(
            log_probs=_halves(logprob) * mask,
            entropy=zeros,
            mean_logits=zeros,
            is_top1=zeros.bool(),
        )

    def loss(logprob: Tensor) -> Tensor:
        reference = (_halves(b["reference"]) * mask).sum(1).chunk(2)
        trainer = _trainer(
            beta=0.1,
            ld_alpha=None,
            precompute_ref_logps=True,
            f_divergence_type="reverse_kl",
            loss_types=["sigmoid"],
            loss_weights=[1.0],
            use_weighting=False,
        )
        inputs = {
            "input_ids": torch.nn.functional.pad(_halves(b["tokens"]), (1, 0)),
            "completion_mask": torch.nn.functional.pad(mask, (1, 0)),
            "ref_chosen_logps": reference[0],
            "ref_rejected_logps": reference[1],
        }
        value: Tensor = DPOTrainer._compute_loss(trainer, model(logprob), inputs, False)
        return value

    return loss


def _distillation(b: Batch) -> Iterator[Case]:
    function = GKDTrainer.generalized_jsd_loss
    labels = b["tokens"].masked_fill(b["mask"] == 0, -100)
    for name, beta in (("forward_kl", 0.0), ("jsd", 0.3), ("jsd_half", 0.5), ("reverse_kl", 1.0)):
        outputs = with_gradient(
            lambda logits, beta=beta: function(logits, b["teacher_logits"], labels, beta),
            b["logits"],
        )
        yield Case(f"gkd_{name}", function, outputs, {"beta": beta})
