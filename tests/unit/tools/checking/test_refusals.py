"""Plans that could be priced and can't run are refused by every command that prices."""

from __future__ import annotations

import pytest

from tests.unit.passes.pipelines import place
from tests.unit.tools.commands import Shell, message

TEXT = """rpeg 0.1
pipeline mine {
  model actor = policy("hf:Qwen/Qwen2.5-7B", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  data train = prompts("hf:BytedTsinghua-SIA/DAPO-Math-17k")
  verifier ok = outcome("rule:math")
  step i < 100 {
    q = batch(train, size=512)
    y, lp = generate(actor@i, q, n=8, max_tokens=4096)
    r = score(ok, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    lref = logprob(ref, y)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lref, coef=0.001)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches=4)
  }
  plan p on "alps-16" {
    pool all = nodes(0..15)
    y on all, par(dp=64), engine(name=vllm, memory=0.4, max_seqs=128)
    r on all, par(dp=64)
    lref on all, par(dp=64), mb(tokens=16384)
    actor on all, par(tp=2, dp=32, sp=true, zero=1, recompute=full), mb(tokens=16384), publish(all, mode=reshard)
  }
}
"""  # noqa: E501


def test_as_it_stands_it_runs(shell: Shell) -> None:
    shell.write(text=TEXT)
    assert shell("check", "p.rpeg", "--plan", "p").code == 0


@pytest.mark.parametrize(
    ("old", "new", "line", "why"),
    [
        (
            "par(tp=2, dp=32, sp=true, zero=1",
            "par(tp=64, dp=1",
            "actor on all",
            "`actor`: 28 attention heads can't be split 64 ways (tp=64): write a divisor",
        ),
        (
            "par(tp=2, dp=32, sp=true, zero=1",
            "par(tp=1, dp=8, pp=8, vpp=3",
            "actor on all",
            "`actor`: 28 layers can't be split 24 ways (pp=8 x vpp=3): write a divisor",
        ),
        (
            "par(tp=2, dp=32, sp=true, zero=1",
            "par(tp=2, dp=32, ep=8, sp=true, zero=1",
            "actor on all",
            "`actor`: ep=8 spreads experts, and this model is dense: write ep=1, or leave it out",
        ),
        (
            "par(dp=64), engine(",
            "par(dp=4, tp=16), engine(",
            "y on all",
            "`actor`: 28 attention heads can't be split 16 ways (tp=16): write a divisor",
        ),
        (
            "nodes(0..15)",
            "cores(0..15, per_node=4)",
            "y on all",
            "`all` is a pool of cores, and alps-16 has GPUs: models run on cores only where there "
            "are none: write nodes(a..b) or gpus(a..b)",
        ),
        (
            "memory=0.4",
            "memory=0.05",
            "y on all",
            "engine(memory=0.05) has 4.8 of a GPU's 96.0 GiB, and its weights and its own memory "
            "take 15.6: write a larger memory, or a wider tp",
        ),
    ],
)
def test_what_cannot_run(old: str, new: str, line: str, why: str, shell: Shell) -> None:
    assert old in TEXT
    text = shell.write(text=TEXT.replace(old, new))
    for command in ("check", "explain", "simulate"):
        done = shell(command, "p.rpeg", "--plan", "p")
        assert (done.code, done.out) == (1, "")
        assert message(done.err) == f"p.rpeg:{place(text, line)}: error: {why}"
