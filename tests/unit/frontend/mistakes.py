"""Typical mistakes of users, each an edit of an example; `tests/golden` holds their messages."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rpeg.ir.text.diagnostics import Diagnostic

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "mistakes.golden"
SYNTAX = 13
"""So many of them, the first, are found by the parser alone."""

GRPO = "grpo_countdown"
DAPO = "dapo"
PPO = "ppo_critic"
SHARED = "ppo_shared_trunk"
RLOO = "rloo"
ASYNC = "async_grpo_alps64"

Edit = tuple[str | re.Pattern[str], str]
"""What to replace (a text: its first place; a pattern: all of them), and by what."""


@dataclass(frozen=True)
class Mistake:
    title: str
    example: str
    edits: tuple[Edit, ...]

    @property
    def text(self) -> str:
        """The example with the mistake made."""
        text = (ROOT / "examples" / f"{self.example}.rpeg").read_text(encoding="utf-8")
        for old, new in self.edits:
            text = _edited(text, old, new)
        return text


def _edited(text: str, old: str | re.Pattern[str], new: str) -> str:
    if isinstance(old, re.Pattern):
        return old.sub(new, text)
    assert old in text, f"the example has no {old!r}"
    return text.replace(old, new, 1)


def mistakes() -> list[tuple[str, str, str]]:
    """(title, example, edited text) of each, in the order of the golden file."""
    return [(m.title, m.example, m.text) for m in MISTAKES]


def expected() -> dict[str, str]:
    """Title -> the messages of the golden file, as `shown` writes them."""
    blocks = re.split(r"^ ?\d+ ", GOLDEN.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {title: messages for title, _, messages in (b.partition("\n") for b in blocks)}


def shown(diagnostics: list[Diagnostic], text: str) -> str:
    """Each message and the line that it is about."""
    lines = text.splitlines()
    return "".join(f"   {d}\n      | {lines[d.at.line - 1].strip()}\n" for d in diagnostics)


MISTAKES = (
    Mistake("bracket left open", GRPO, (("size=$batch_size)", "size=$batch_size"),)),
    Mistake("comma missing", GRPO, (("n=$n, max_tokens", "n=$n max_tokens"),)),
    Mistake("semicolon", GRPO, (("fmt = score(tagged, y)\n", "fmt = score(tagged, y);\n"),)),
    Mistake("single quotes", GRPO, (('"rule:answer_tag"', "'rule:answer_tag'"),)),
    Mistake(
        "two statements on a line",
        GRPO,
        (
            (
                "    every(steps=20) {\n",
                "    every(steps=20) { checkpoint() }\n    every(steps=20) {\n",
            ),
        ),
    ),
    Mistake("dictionary", GRPO, (("optim=adamw(lr=3e-4, grad_clip=1.0)", "optim={lr: 3e-4}"),)),
    Mistake("half-open slice", ASYNC, (("[i-$staleness..i]", "[i-2:i]"),)),
    Mistake(
        "declaration after the step",
        GRPO,
        (
            (
                "  expect y = lognormal(mean=40, cv=0.5, cap=64)",
                '  data extra = prompts("gym:leg_counting")',
            ),
        ),
    ),
    Mistake("reserved word as a name", GRPO, (("q = batch(train", "data = batch(train"),)),
    Mistake("block never closed", GRPO, (("      checkpoint()\n    }\n", "      checkpoint()\n"),)),
    Mistake("step without an end", GRPO, (("step i < $steps {", "step i {"),)),
    Mistake("8k", ASYNC, (("param max_tokens = 8192", "param max_tokens = 8k"),)),
    Mistake(
        "arithmetic", GRPO, (("max_tokens=64, temperature", "max_tokens=4*1024, temperature"),)
    ),
    Mistake("operation misspelt", GRPO, (("lp = generate(", "lp = genrate("),)),
    Mistake("setting misspelt", GRPO, (("temperature=1.0", "tempreature=1.0"),)),
    Mistake(
        "setting of another library",
        GRPO,
        (("max_tokens=64, temperature", "max_new_tokens=64, temperature"),),
    ),
    Mistake("name misspelt", GRPO, (("kl_loss(y, lp_ref,", "kl_loss(y, lp_reff,"),)),
    Mistake("param without $", GRPO, (("n=$n", "n=n"),)),
    Mistake("choice in quotes", GRPO, (("agg=token_mean", 'agg="token_mean"'),)),
    Mistake("unknown choice", GRPO, (("agg=token_mean", "agg=tokenmean"),)),
    Mistake(
        "setting without its name", GRPO, (("batch(train, size=$batch_size)", "batch(train, 64)"),)
    ),
    Mistake(
        "text where a name belongs",
        GRPO,
        (("acc = score(correct, y)", 'acc = score("gym:countdown", y)'),),
    ),
    Mistake(
        "call inside a call",
        GRPO,
        (("adv = group_advantage(r,", "adv = group_advantage(score(correct, y),"),),
    ),
    Mistake("one result for two", GRPO, (("y, lp = generate(", "y = generate("),)),
    Mistake(
        "name given twice",
        GRPO,
        (
            (
                "fmt = score(tagged, y)\n    r = weighted_sum(acc, fmt,",
                "acc = score(tagged, y)\n    r = weighted_sum(acc, acc,",
            ),
        ),
    ),
    Mistake("name of a result taken in its region", DAPO, ((re.compile(r"\bys\b"), "y"),)),
    Mistake(
        "name of an inner region",
        DAPO,
        (("late = score(overlong, y)", "late = score(overlong, ys)"),),
    ),
    Mistake("state without a version", GRPO, (("generate(actor@i,", "generate(actor,"),)),
    Mistake("version of a constant", GRPO, (("logprob(ref, y)", "logprob(ref@i, y)"),)),
    Mistake(
        "next version read too early",
        GRPO,
        (
            (
                "    actor@i+1 = update",
                "    early = eval(actor@i+1, heldout, correct, max_tokens=64)\n"
                "    actor@i+1 = update",
            ),
        ),
    ),
    Mistake("update without a version", GRPO, (("actor@i+1 = update", "actor = update"),)),
    Mistake(
        "two updates of one model",
        SHARED,
        (
            (
                "    ac@i+1 = update(ac@i, pg, vl, ent, agg=token_mean, minibatches=4)\n",
                "    ac@i+1 = update(ac@i, pg, agg=token_mean)\n"
                "    ac@i+1 = update(ac@i, vl, ent, agg=token_mean)\n",
            ),
        ),
    ),
    Mistake(
        "old weights elsewhere",
        ASYNC,
        (("prox = logprob(actor@i, y)", "prox = logprob(actor@i-1, y)"),),
    ),
    Mistake(
        "staleness not corrected",
        ASYNC,
        (("pg = ppo_clip(y, adv, prox, w,", "pg = ppo_clip(y, adv, lp,"),),
    ),
    Mistake("wrong log-probs", GRPO, (("ppo_clip(y, adv, lp,", "ppo_clip(y, adv, lp_ref,"),)),
    Mistake("per-response reward in gae", PPO, (("gae(rt, v,", "gae(r, v,"),)),
    Mistake("groups of one", GRPO, (("n=$n, ", ""),)),
    Mistake(
        "REINFORCE over several minibatches",
        RLOO,
        (("agg=seq_mean_token_sum)", "agg=seq_mean_token_sum, minibatches=4)"),),
    ),
    Mistake(
        "training a model without an optimizer",
        GRPO,
        ((", optim=adamw(lr=3e-4, grad_clip=1.0)", ""),),
    ),
    Mistake(
        "optimizer but no update",
        RLOO,
        (
            (
                'model rm = reward("hf:Skywork/Skywork-Reward-V2-Qwen3-4B")',
                'model rm = reward("hf:Skywork/Skywork-Reward-V2-Qwen3-4B", optim=adamw(lr=1e-5))',
            ),
        ),
    ),
    Mistake(
        "wrong GPU product",
        ASYNC,
        (
            (
                "par(tp=2, dp=48, sp=true), mb(tokens=16384)",
                "par(tp=4, dp=48, sp=true), mb(tokens=16384)",
            ),
        ),
    ),
    Mistake("pool misspelt", ASYNC, (("    prox on trainer,", "    prox on trainers,"),)),
    Mistake(
        "operation name in a plan", ASYNC, (("    y on rollout,", "    generate on rollout,"),)
    ),
    Mistake(
        "place for an elementwise value",
        ASYNC,
        (
            (
                "    r on checkers, stream(y, samples=1)",
                "    r on checkers, stream(y, samples=1)\n    adv on checkers",
            ),
        ),
    ),
    Mistake(
        "streaming into a batch operation",
        ASYNC,
        (
            (
                "      mb(tokens=16384),\n      publish(rollout",
                "      mb(tokens=16384),\n      stream(y, groups=1),\n      publish(rollout",
            ),
        ),
    ),
    Mistake(
        "streaming through a whole-batch operation",
        ASYNC,
        (
            ("agg=token_mean, minibatches=4", "agg=token_mean"),
            (
                "    adv = group_advantage(",
                "    raw = group_advantage(r, baseline=mean, scale=none)\n"
                "    adv = whiten(raw)\n    # ",
            ),
            (
                "      mb(tokens=16384),\n      publish(rollout",
                "      mb(tokens=16384),\n      stream(y, groups=1),\n      publish(rollout",
            ),
        ),
    ),
    Mistake(
        "publish forgotten",
        ASYNC,
        ((",\n      publish(rollout, mode=relay, overlap=true, bucket=512MiB)", ""),),
    ),
    Mistake(
        "nodes past the end",
        ASYNC,
        (("pool trainer = nodes(40..63)", "pool trainer = nodes(40..64)"),),
    ),
    Mistake(
        "window wider than the correction",
        ASYNC,
        (
            ("param staleness = 2", "param staleness = 12"),
            ("bounded_async(staleness=4", "bounded_async(staleness=12"),
        ),
    ),
    Mistake(
        "training on a cut distribution", GRPO, (("temperature=1.0", "temperature=1.0, top_p=0.9"),)
    ),
    Mistake("user code in a source", GRPO, (('"rule:answer_tag"', '"py:my_rewards:tagged"'),)),
)
