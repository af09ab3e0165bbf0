"""Pipelines for tests of passes: a GRPO step with the lines that a test is about."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from rpeg.frontend import load
from rpeg.ir.ops.declare import DeclareOp, ExpectOp
from rpeg.ir.ops.plan import PlaceOp
from rpeg.passes import PASSES
from rpeg.passes.base import PassRefused

GRPO = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
  data train = prompts("rows.jsonl")
  data heldout = prompts("more.jsonl")
  verifier correct = outcome("rule:exact_match")
  step i < 10 {
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, n=2, max_tokens=8, dtype=fp32)
    r = score(correct, y)
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp_old, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean)
    every(steps=5) {
      heldout_acc = eval(actor@i+1, heldout, correct, max_tokens=8)
      checkpoint()
    }
  }
}
"""
COLLECTED = (
    (
        "    y, lp = generate(actor@i, q, n=2, max_tokens=8, dtype=fp32)\n"
        "    r = score(correct, y)\n",
        "    r, y, lp = collect(groups=4, max_rounds=3) {\n      p = batch(train, size=4)\n"
        "      y0, lp0 = generate(actor@i, p, n=2, max_tokens=8, dtype=fp32)\n"
        "      r0 = score(correct, y0)\n      keep(r0, y0, lp0, where=mixed)\n    }\n",
    ),
    ("    q = batch(train, size=4)\n", ""),
)
"""Changes to `grpo()` that make its samples a `collect`."""


def grpo(*changes: tuple[str, str]) -> str:
    """The text with each (old, new) replaced; an old text that is not there is a mistake."""
    text = GRPO
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def parse(text: str) -> ModuleOp:
    """The module of a text without errors."""
    loaded = load(text, "p.rpeg")
    assert loaded.module is not None, "\n".join(map(str, loaded.diagnostics))
    return loaded.module


def run(module: ModuleOp, *passes: str | ModulePass) -> ModuleOp:
    """Runs passes in place, and verifies what each makes."""
    for each in passes:
        step = PASSES[each]()() if isinstance(each, str) else each
        step.apply(Context(), module)
        module.verify()
    return module


def refusals(module: ModuleOp, *passes: str | ModulePass) -> list[str]:
    """`line:column: message` of each refusal of the last pass."""
    run(module, *passes[:-1])
    try:
        run(module, passes[-1])
    except PassRefused as refusal:
        return [f"{problem.at}: {problem.message}" for problem in refusal.problems]
    raise AssertionError("nothing was refused")


def place(text: str, needle: str) -> str:
    """`line:column` of the first place of a string in a text."""
    at = text.index(needle)
    return f"{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"


def names(module: ModuleOp) -> list[str]:
    """Surface names of all operations that have one, in order."""
    return [surface for op in module.walk() if (surface := getattr(op, "SURFACE", ""))]


def declared(module: ModuleOp) -> list[str]:
    """Names of the declarations."""
    return [op.title for op in module.walk() if isinstance(op, DeclareOp)]


def lines(module: ModuleOp) -> list[str]:
    """What plans and `expect` speak of."""
    return [op.title for op in module.walk() if isinstance(op, PlaceOp)] + [
        op.target.data for op in module.walk() if isinstance(op, ExpectOp)
    ]


def one(module: ModuleOp, kind: type[Operation], number: int = 0) -> Operation:
    """The `number`th operation of a class."""
    return [op for op in module.walk() if isinstance(op, kind)][number]
