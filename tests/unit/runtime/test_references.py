"""Our formulas give what verl's and TRL's functions give, on ragged and on far-off-policy batches.

One row a reference: which of our functions, written as a program of the language would use them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from rpeg.runtime import advantages as adv
from rpeg.runtime import losses
from rpeg.runtime.groups import Groups
from rpeg.runtime.losses.distill import Divergence
from rpeg.runtime.numerics.logits import VocabShard
from tests.unit.runtime.references import BATCHES, Batch, Outputs, about, batch, outputs

Ours = Callable[[Batch], Outputs]


def whitened(field: Tensor, mask: Tensor) -> Tensor:
    return adv.whiten(field, mask, adv.Moments.of(field, mask))


def group(baseline: adv.Baseline, scale: adv.Scale) -> Ours:
    def ours(b: Batch) -> Outputs:
        got = adv.group_advantage(b["rewards"], b.n, baseline=baseline, scale=scale)
        return {"advantages": b.over_tokens(got)}

    return ours


def reinforce_pp_baseline(b: Batch) -> Outputs:
    centred = adv.group_advantage(b["rewards"], b.n, baseline="mean", scale="none")
    moments = adv.Moments.of(centred, adv.counts(centred, b.mask, "tokens"))
    return {"advantages": b.over_tokens(adv.whiten(centred, torch.ones_like(centred), moments))}


def remax(b: Batch) -> Outputs:
    return {"advantages": b.over_tokens(adv.remax_advantage(b["rewards"], b["greedy"], b.n))}


def reinforce_pp(b: Batch) -> Outputs:
    returns = adv.returns(b["token_rewards"], b.mask, **b.settings)
    return {"returns": returns, "advantages": whitened(returns, b.mask)}


def kl_penalty(b: Batch) -> Outputs:
    args = (b["token_rewards"], b["old"], b["reference"], b.mask)
    return {"rewards": adv.kl_penalty(*args, **b.settings)}


def gae(b: Batch) -> Outputs:
    advantages, returns = adv.gae(b["token_rewards"], b["values"], b.mask, **b.settings)
    return {"advantages": advantages, "returns": returns}


def gae_whitened(b: Batch) -> Outputs:
    raw = gae(b)
    return {**raw, "advantages": whitened(raw["advantages"], b.mask)}


def weights(b: Batch) -> Tensor:
    return adv.importance(b["old"], b["behaviour"], b.mask, cap=2.0)


def policy(
    loss: Callable[..., Tensor],
    *settings: str,
    anchored: bool = True,
    weighted: bool = False,
    **fixed: str | float,
) -> Ours:
    def ours(b: Batch) -> Outputs:
        def value(logprob: Tensor) -> Tensor:
            args = (b["advantages"], b["old"]) if anchored else (b["advantages"],)
            more = {"weight": weights(b)} if weighted else {}
            per_token = loss(logprob, *args, b.mask, **b.picked(*settings), **fixed, **more)
            return b.aggregate(per_token)

        return b.differentiated(value, "logprob")

    return ours


def clipped_with_kl(b: Batch) -> Outputs:
    def value(logprob: Tensor) -> Tensor:
        clips = b.picked("clip_low", "clip_high")
        policy = losses.ppo_clip(logprob, b["advantages"], b["old"], b.mask, **clips)
        kl = losses.kl_loss(logprob, b["reference"], b.mask, **b.picked("coef"))
        return b.aggregate(policy + kl)

    return b.differentiated(value, "logprob")


def rloo_gradient(b: Batch) -> Outputs:
    """On policy, where TRL's clipped ratio of whole sequences is 1."""
    by_sequence = Batch(b.name, b.n, {"agg": "seq_mean_token_sum"})
    return policy(losses.policy_gradient, anchored=False)(by_sequence)


def aggregation(b: Batch) -> Outputs:
    return {"loss": b.aggregate(b["old_values"])}


def kl(b: Batch) -> Outputs:
    return {"kl": losses.kl_estimate(b["logprob"], b["reference"], b.settings["estimator"])}


def value_loss(b: Batch) -> Outputs:
    def value(values: Tensor) -> Tensor:
        args = (values, b["returns"], b["old_values"], b.mask)
        return b.aggregate(losses.value_loss(*args, **b.settings))

    return b.differentiated(value, "values")


def sft(b: Batch) -> Outputs:
    return b.differentiated(
        lambda logprob: b.aggregate(losses.cross_entropy(logprob, b.mask)), "logprob"
    )


def importance(b: Batch) -> Outputs:
    return {"weights": adv.importance(b["old"], b["behaviour"], b.mask, **b.settings)}


def dpo(b: Batch) -> Outputs:
    def value(logprob: Tensor) -> Tensor:
        return losses.dpo(logprob, b["reference"], b.mask, **b.settings).mean()

    return b.differentiated(value, "logprob")


def reward_model(b: Batch) -> Outputs:
    return b.differentiated(lambda scores: losses.reward_model(scores).mean(), "scores")


def divergence(b: Batch) -> Outputs:
    """TRL divides by the number of tokens, as `token_mean` does."""

    def value(logits: Tensor) -> Tensor:
        return b.aggregate(losses.divergence(logits, b["teacher_logits"], b.mask, **b.settings))

    return b.differentiated(value, "logits")


CLIPS = ("clip_low", "clip_high")

TABLE: Mapping[str, Ours] = {
    "gae": gae,
    "gae_whitened": gae_whitened,
    "grpo": group("mean", "std"),
    "dr_grpo": group("mean", "none"),
    "rloo": group("leave_one_out", "none"),
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "remax": remax,
    "kl_penalty": kl_penalty,
    "ppo_clip": policy(losses.ppo_clip, *CLIPS),
    "clip_higher": policy(losses.ppo_clip, *CLIPS),
    "dual_clip": policy(losses.ppo_clip, *CLIPS, clip_dual=3.0),
    "decoupled": policy(losses.ppo_clip, *CLIPS, weighted=True),
    "gspo": policy(losses.ppo_clip, *CLIPS, ratio="sequence"),
    "gspo_token_mean": policy(losses.ppo_clip, *CLIPS, ratio="sequence"),
    "cispo": policy(losses.cispo, "clip_high"),
    "gpg": policy(losses.policy_gradient, anchored=False),
    "reinforce": policy(losses.policy_gradient, anchored=False, weighted=True),
    "trl_grpo_token_mean": policy(losses.ppo_clip, *CLIPS),
    "trl_grpo_seq_mean_token_mean": policy(losses.ppo_clip, *CLIPS),
    "trl_grpo_constant": policy(losses.ppo_clip, *CLIPS),
    "trl_gspo": policy(losses.ppo_clip, *CLIPS, ratio="sequence"),
    "trl_cispo": policy(losses.cispo, "clip_high"),
    "trl_grpo_kl": clipped_with_kl,
    "trl_rloo": rloo_gradient,
    "agg_token_mean": aggregation,
    "agg_seq_mean_token_sum": aggregation,
    "agg_seq_mean_token_mean": aggregation,
    "agg_constant": aggregation,
    "kl_k1": kl,
    "kl_k2": kl,
    "kl_k3": kl,
    "kl_abs": kl,
    "value_loss": value_loss,
    "sft": sft,
    "importance_token_truncate": importance,
    "importance_token_mask": importance,
    "importance_sequence_truncate": importance,
    "importance_sequence_mask": importance,
    "dpo": dpo,
    "reward_model": reward_model,
    "gkd_forward_kl": divergence,
    "gkd_jsd": divergence,
    "gkd_jsd_half": divergence,
    "gkd_reverse_kl": divergence,
}
DIFFERENT = {
    # verl bounds sequence ratios at e^10, we at e^20 like those of tokens.
    ("extreme", "gspo"),
    ("extreme", "gspo_token_mean"),
    # verl cuts k3's value at 10, and with it the gradient: see `kl_estimate`.
    ("extreme", "kl_k3"),
}

PER_TOKEN = {"advantages", "returns", "rewards", "kl", "weights"}
ROWS = [(b, case) for case in TABLE for b in BATCHES if outputs(b, case)]


def assert_equal(b: Batch, ours: Outputs, theirs: Outputs) -> None:
    for key, wanted in theirs.items():
        got = ours[key].double()
        if key in PER_TOKEN:  # outside the mask, values mean nothing
            got, wanted = got[b.mask], wanted[b.mask]
        torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("name", "case"), [row for row in ROWS if row not in DIFFERENT])
def test_ours_equals_the_reference(name: str, case: str) -> None:
    b = batch(name, case)
    assert_equal(b, TABLE[case](b), outputs(name, case))


@pytest.mark.parametrize(("name", "case"), sorted(DIFFERENT))
def test_ours_differs_where_we_chose_to(name: str, case: str) -> None:
    b = batch(name, case)
    ours = TABLE[case](b)
    assert all(bool(values.isfinite().all()) for values in ours.values())
    with pytest.raises(AssertionError):
        assert_equal(b, ours, outputs(name, case))


@pytest.mark.parametrize("name", BATCHES)
def test_entropy_equals_the_reference(name: str, groups: Groups) -> None:
    b = batch(name, "entropy")
    words = b["logits"].shape[-1]
    shard = VocabShard(groups.tp, width=words, vocab=words, pad_id=None)

    def value(logits: Tensor) -> Tensor:
        _, entropy = shard.logprob(logits.flatten(0, 1), b["tokens"].flatten(), 1.0)
        bonus = losses.entropy_bonus(entropy.view(b.mask.shape), b.mask, coef=1.0)
        return -b.aggregate(bonus)

    assert_equal(b, b.differentiated(value, "logits"), outputs(name, "entropy"))


@pytest.mark.parametrize("case", ["gkd_forward_kl", "gkd_reverse_kl"])
def test_distill_estimates_the_divergence_of_whole_distributions(case: str) -> None:
    """The mean of its per-token values over the student's distribution is TRL's divergence."""
    b = batch("pairs", case)
    kind: Divergence = "forward_kl" if case == "gkd_forward_kl" else "reverse_kl"

    def value(logits: Tensor) -> Tensor:
        student, teacher = logits.log_softmax(-1), b["teacher_logits"].log_softmax(-1)
        sampled = losses.distill(student, teacher, b.mask.unsqueeze(-1), divergence=kind)
        return b.aggregate((student.detach().exp() * sampled).sum(-1))

    assert_equal(b, b.differentiated(value, "logits"), outputs("pairs", case))


def test_every_reference_is_compared() -> None:
    assert set(about()["cases"]) == {*TABLE, "entropy"}
