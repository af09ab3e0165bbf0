"""Random steps of small pipelines, and the repository's examples made small."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import load
from tests.unit.interp.pipelines import parse

EXAMPLES = Path(__file__).parents[3] / "examples"
THINGS = """
  model ref = policy(actor@0, dtype=fp32)
  model critic = value("tiny", optim=adamw(lr=3e-3), dtype=fp32)
  data train = prompts("rows.jsonl")
  data more = prompts("rows.jsonl")
  verifier brief = outcome("rule:overlong", soft=0, max=6)
  verifier long = outcome("rule:overlong", soft=2, max=4)
"""
DEAD = (
    "lp_dead = logprob(ref, y)",
    "unread = score(long, y)",
    "q2 = batch(more, size=2)\n    y2, lp2 = generate(actor@i, q2, max_tokens=3)",
    "q3 = batch(train, size=2)",
    "kd = kl_loss(y, lp_old, coef=1.0)",
)
"""Lines that nothing reads; one is reported, one moves the place that the next batch reads from."""
ADVANTAGES = (
    "adv = group_advantage(r, baseline=mean, scale=std)",
    "adv = group_advantage(r, baseline=leave_one_out, scale=none)",
    "raw = group_advantage(r, baseline=mean, scale=none)\n    adv = whiten(raw, count=tokens)",
    "rt = kl_penalty(r, lp_old, lp_ref, coef={coef})\n    ret = returns(rt, gamma=1.0)\n"
    "    adv = whiten(ret)",
)
LOSSES = (
    "ppo_clip(y, adv, {old}, clip_low=0.2, clip_high=0.2)",
    "cispo(y, adv, {old}, clip_high=0.2)",
)


@st.composite
def steps(draw: st.DrawFn, *declarations: str) -> ModuleOp:
    """A GRPO-like step with twins, lines that nothing reads and terms of weight 0, or without, and
    with these lines above it.
    """

    def one(*values: object) -> object:
        return draw(st.sampled_from(values))

    coef, dead = one(0.0, 0.5), draw(st.sets(st.sampled_from(DEAD)))
    lines = [
        "q = batch(train, size=4)",
        "y, lp = generate(actor@i, q, n=2, max_tokens=5, dtype=fp32)",
        f"short = score({one('brief', 'long')}, y)",
        "again = score(brief, y)",
        str(
            one(
                "r = weighted_sum(short, weights=[1.0])",
                "r = weighted_sum(short, again, weights=[1.0, 0.5])",
            )
        ),
        "lp_old = logprob(actor@i, y)",
        "lp_ref = logprob(ref, y)",
        "lp_twin = logprob(ref, y)",
        str(one(*ADVANTAGES)).format(coef=one(0.0, 0.1)),
        "v = values(critic@i, y)",
        "rt2 = kl_penalty(r, lp_old, lp_twin, coef=0.1)",
        "left, gained = gae(rt2, v, gamma=1.0, lambda=0.95)",
        "vl = value_loss(y, gained, v, clip=0.2)",
        "critic@i+1 = update(critic@i, vl, agg=token_mean)",
        f"pg = {one(*LOSSES)}".format(old=one("lp", "lp_old")),
        f"kl = kl_loss(y, {one('lp_ref', 'lp_twin')}, coef={coef})",
        *dead,
        f"actor@i+1 = update(actor@i, pg, kl, agg={one('token_mean', 'seq_mean_token_mean')}, "
        f"minibatches={one(1, 2)}, epochs={one(1, 1, 2)})",
        "every(steps=2) {\n      late = logprob(ref, y)\n      checkpoint()\n    }",
    ]
    above = "".join(f"  {line}\n" for line in declarations)
    return parse("\n".join(f"    {line}" for line in lines), more=THINGS + above)


SMALLER: tuple[tuple[str, str], ...] = (
    (r'\b(policy|value|actor_critic|reward)\(\s*("[^"]*"|\$\w+)', r'\1("tiny"'),
    (r'\b(prompts|demos)\("[^"]*"[^)]*\)', r'\1("rows.jsonl")'),
    (r'\boutcome\("[^"]*"[^)]*\)', 'outcome("rule:overlong", soft=0, max=6)'),
    (r"model (\w+) = reward\([^)]*\)", r'verifier \1 = outcome("rule:overlong", soft=0, max=6)'),
    (r"\bsize=[$\w]+", "size=4"),
    (r"\b(max_tokens|tokens)=[$\w]+", r"\1=5"),
    (r"\bn=[$\w]+", "n=2"),
    (r"\bminibatches=\d+", "minibatches=2"),
    (r"\bevery\(steps=\d+", "every(steps=2"),
    (r"\bfrom=[$\w]+", "from=1"),
    (r"\bcoef=0\.0\d*\b", "coef=0.3"),
    (r"\b(lr)=[\d.e-]+", "lr=3e-3"),
    (r"(?ms)^  (expect [^\n]*|plan .*?^  \})\n", ""),
)
"""What makes an example fit into a test: pattern -> replacement."""


def example(name: str, *declarations: str) -> ModuleOp:
    """A pipeline of an example (`file` or `file:pipeline`), small, under the name `p`, with these
    lines above its step.
    """
    file, _, pipeline = name.partition(":")
    text = (EXAMPLES / f"{file}.rpeg").read_text(encoding="utf-8")
    for pattern, replacement in SMALLER:
        text = re.sub(pattern, replacement, text)
    title = pipeline or re.findall(r"^pipeline (\w+)", text, flags=re.M)[0]
    text = re.sub(rf"^pipeline {title} ", "pipeline p ", text, flags=re.M)
    above = "".join(f"  {line}\n" for line in declarations)
    text = re.sub(r"(?m)^  step ", f"{above}  step ", text)
    loaded = load(text, f"{file}.rpeg", (), "p")
    assert loaded.module is not None, "\n".join(map(str, loaded.diagnostics))
    return loaded.module
