"""Hypothesis strategies: small programs that have no error."""

from __future__ import annotations

from hypothesis import strategies as st

FRACTIONS = st.sampled_from(["0.0", "1e-6", "3e-4", "0.2", "1.0"])
WORDS = st.sampled_from(["", "_", "x", "_2"])


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A pipeline of one policy, with whatever belongs around it."""
    n = draw(st.integers(2, 9))
    window = draw(st.booleans())
    y = draw(st.sampled_from(["y", "samples", "y_1", "batch_of_y"]))
    lines = [
        f"q = batch(train, size={8 * draw(st.integers(1, 4))}{draw(_order())})",
        f"{y}, lp = generate(actor@{'[i-2..i]' if window else 'i'}, q, n={n}, "
        f"max_tokens={draw(st.integers(1, 99))}{draw(_sampling(window))})",
        f"r = score({draw(st.sampled_from(['correct', 'judge']))}, {y})",
        f"adv = group_advantage(r, baseline={draw(_baseline())}, scale={draw(_scale())})",
        f"prox = logprob(actor@i, {y})",
        f"w = importance(prox, lp{draw(_importance())})",
        f"pg = ppo_clip({y}, adv, prox, w, clip_low=0.2, clip_high=0.28)",
        f"lp_ref = logprob(ref, {y})",
        f"kl = kl_loss({y}, lp_ref, coef={draw(FRACTIONS)}{draw(_estimator())})",
        f"actor@i+1 = update(actor@i, pg, kl, agg={draw(_aggregation())})",
        *draw(_average()),
        *draw(_controller()),
        *draw(_every()),
    ]
    return _pipeline(draw(st.integers(1, 10**6)), lines, draw(_extras(y)))


def _pipeline(steps: int, lines: list[str], extras: list[str]) -> str:
    body = "\n".join(lines)
    rest = "\n".join(extras)
    return f"""rpeg 0.1
pipeline p {{
  model actor = policy("models/tiny-qwen2", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  model average = policy(actor@0)
  model judge = reward("hf:a/b")
  state coef = scalar(init=0.1)
  data train = prompts("gym:countdown", seed=1)
  data heldout = prompts("gym:countdown", seed=2)
  verifier correct = outcome("gym:countdown", timeout=1500ms)
  allow bounded_async(staleness=4, bound=head)
  allow bounded_async(staleness=4, overflow=drop)
  allow bounded_async(staleness=4, overflow=resume, old_spans=mask)
  step i < {steps} {{
{body}
}}
{rest}
}}
"""


def _either(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(["", *texts])


def _order() -> st.SearchStrategy[str]:
    return _either(", order=sequential", ", seed=3")


def _sampling(window: bool) -> st.SearchStrategy[str]:
    if window:
        return _either(", bound=head", ", overflow=drop", ", overflow=resume, old_spans=mask")
    return _either(', stop=["</a>", "\\n\\"x\\""]', ", seed=-1", ", temperature=0.7", ", dtype=fp8")


def _baseline() -> st.SearchStrategy[str]:
    return st.sampled_from(["mean", "leave_one_out"])


def _scale() -> st.SearchStrategy[str]:
    return st.sampled_from(["std", "none"])


def _importance() -> st.SearchStrategy[str]:
    return _either(", cap=5.0", ", mode=mask, level=sequence", ", floor=0.5, mode=mask")


def _estimator() -> st.SearchStrategy[str]:
    return _either(", estimator=k1", ", estimator=k3")


def _aggregation() -> st.SearchStrategy[str]:
    return st.sampled_from(
        ["token_mean", "constant(tokens=64)", "seq_mean_token_sum, epochs=2", "token_mean, seed=7"]
    )


def _average() -> st.SearchStrategy[list[str]]:
    ema = "average@i+1 = ema(average@i, actor@i+1, decay=0.99)"
    return st.sampled_from(
        [[ema], ["average@i+1 = copy(actor@i+1)"], ["every(steps=2) {", ema, "}"]]
    )


def _controller() -> st.SearchStrategy[list[str]]:
    line = "coef@i+1 = kl_controller(coef@i, prox, lp_ref, target=0.05, horizon=100)"
    shaped = "rt = kl_penalty(r, prox, lp_ref, coef=coef@i)\ns = sum_tokens(rt)"
    return st.sampled_from([[line], [shaped, line], ["every(steps=1, from=3) {", line, "}"]])


def _every() -> st.SearchStrategy[list[str]]:
    metric = "acc = eval(actor@i+1, heldout, correct, max_tokens=8)"
    return st.sampled_from(
        [
            ["every(steps=5) {", metric, "stop(acc, above=0.9)", "checkpoint()", "}"],
            ["every(steps=5, from=2) {", 'export(average@i+1, to="out/x")', metric, "}"],
            [metric, "checkpoint(keep=1)"],
        ]
    )


def _extras(y: str) -> st.SearchStrategy[list[str]]:
    plan = [
        'plan one on "h100-8" {',
        "pool all = nodes(0..0)",
        f"{y} on all, par(dp=8), engine(name=vllm, memory=0.9)",
        "actor on all, par(dp=4, tp=2, order=[tp, dp]), mb(tokens=64), publish(all, mode=reshard)",
        "}",
    ]
    expect = [
        f"expect {y} = lognormal(mean=30, cv=0.5)",
        "expect correct = lognormal(mean=20ms, cv=1.0)",
    ]
    return st.sampled_from([[], expect, plan, expect + plan])
