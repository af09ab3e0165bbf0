"""Pipelines of every algorithm, small, for `rpeg verify`; `{model}` is open in their texts."""

from __future__ import annotations

_HEAD = """rpeg 0.1
pipeline p {{{{
  model actor = policy("{{model}}", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
{things}  data train = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=8)

  step i < 100 {{{{
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, n={n}, max_tokens=8)
    r = score(brief, y)
{lines}  }}}}
}}}}
"""


def _pipeline(lines: str, *, n: int = 4, things: str = "") -> str:
    """A text whose `{model}` is still open."""
    return _HEAD.format(n=n, lines=_indented(lines, 4), things=_indented(things, 2))


def _indented(lines: str, by: int) -> str:
    kept = (line for line in lines.splitlines() if line.strip())
    return "".join(f"{' ' * by}{line}\n" for line in kept)


_LOGPROBS = """
lp_old = logprob(actor@i, y)
lp_ref = logprob(ref, y)
"""
_CLIPPED = """
pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)
actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
"""

_SHARED = """rpeg 0.1
pipeline p {{
  model ac = actor_critic("{model}", optim=adamw(lr=1e-6, weight_decay=0.1))
  model ref = policy(ac@0)
  data train = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=8)
  step i < 100 {{
    q = batch(train, size=8)
    y, lp = generate(ac@i, q, n=2, max_tokens=8)
    r = score(brief, y)
    lp_old = logprob(ac@i, y)
    lp_ref = logprob(ref, y)
    v = values(ac@i, y)
    rt = kl_penalty(r, lp_old, lp_ref, coef=0.1)
    raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)
    adv = whiten(raw)
    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2, coef=0.5)
    ent = entropy_bonus(y, coef=0.01)
    ac@i+1 = update(ac@i, pg, vl, ent, agg=token_mean, minibatches=2)
  }}
}}
"""
"""PPO on one trunk: both losses go through it, in one update."""

ALGORITHMS = {
    "ppo": _pipeline(
        f"""{_LOGPROBS}
v = values(critic@i, y)
rt = kl_penalty(r, lp_old, lp_ref, coef=kl@i)
raw, ret = gae(rt, v, gamma=1.0, lambda=0.95)
adv = whiten(raw)
vl = value_loss(y, ret, v, clip=0.2)
critic@i+1 = update(critic@i, vl, agg=token_mean, minibatches=2)
every(steps=1, from=1) {{{{
  pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2, clip_dual=3.0)
  actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
}}}}
kl@i+1 = kl_controller(kl@i, lp_old, lp_ref, target=0.05, horizon=100)
""",
        n=1,
        things="model critic = value(actor@0, optim=adamw(lr=1e-6))\nstate kl = scalar(init=0.1)",
    ),
    "ppo_shared": _SHARED,
    "reinforce_pp": _pipeline(
        f"""{_LOGPROBS}
rt = kl_penalty(r, lp_old, lp_ref, coef=0.1, estimator=k2)
ret = returns(rt, gamma=0.9)
adv = whiten(ret)
{_CLIPPED}""",
        n=1,
    ),
    "reinforce_pp_baseline": _pipeline(
        f"""{_LOGPROBS}
raw = group_advantage(r, baseline=mean, scale=none)
adv = whiten(raw, count=tokens)
kl = kl_loss(y, lp_ref, coef=0.1, estimator=k2)
{_CLIPPED.replace("pg, agg", "pg, kl, agg")}"""
    ),
    "rloo": _pipeline(
        f"""{_LOGPROBS}
rt = kl_penalty(r, lp_old, lp_ref, coef=0.01)
rs = sum_tokens(rt)
adv = group_advantage(rs, baseline=leave_one_out, scale=none)
{_CLIPPED}"""
    ),
    "remax": _pipeline(
        f"""{_LOGPROBS}
y0, lp0 = generate(actor@i, q, max_tokens=8, temperature=0.0)
r0 = score(brief, y0)
adv = remax_advantage(r, r0)
{_CLIPPED}"""
    ),
    "distillation": _pipeline(
        """
lp_teacher = logprob(teacher, y)
kd = distill(y, lp_teacher, divergence=forward_kl)
kr = distill(y, lp_teacher, divergence=reverse_kl, coef=0.5)
actor@i+1 = update(actor@i, kd, kr, agg=token_mean, minibatches=2)
""",
        things='model teacher = policy("teacher")',
    ),
    "reward_models": _pipeline(
        f"""{_LOGPROBS}
liked = score(rm, y)
steps = score(prm, y)
along = sum_tokens(steps)
graded = score(judge, y)
all = weighted_sum(r, liked, along, graded, weights=[1.0, 0.5, 0.5, 0.01])
adv = group_advantage(all, baseline=mean, scale=std)
{_CLIPPED}""",
        things="""
model rm = reward("{model}")
model prm = process_reward("{model}")
model judge = generative_reward(actor@0, template="{{response}}={{prompt}}", max_tokens=4)
""",
    ),
    "dpo": """rpeg 0.1
pipeline p {{
  model actor = policy("{model}", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  data preferences = pairs("pairs.jsonl")
  step i < 100 {{
    p = batch(preferences, size=8)
    lp_ref = logprob(ref, p)
    pref = dpo(p, lp_ref, beta=0.5, label_smoothing=0.1)
    actor@i+1 = update(actor@i, pref, agg=pair_mean)
  }}
}}
""",
    "reward_model": """rpeg 0.1
pipeline p {{
  model rm = reward("{model}", optim=adamw(lr=1e-6))
  data preferences = pairs("pairs.jsonl")
  step i < 100 {{
    p = batch(preferences, size=8)
    ranking = reward_loss(p, margin=0.1)
    rm@i+1 = update(rm@i, ranking, agg=pair_mean)
  }}
}}
""",
}
"""By name: a text with `{model}` open."""
