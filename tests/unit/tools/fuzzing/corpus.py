"""What is mutated: the examples at every level, small files of most operations, broken rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from xdsl.dialects.builtin import ModuleOp

from rpeg.frontend import ast
from rpeg.ir.rules.explain import rules
from rpeg.ir.text.parse import parse_module
from tests.unit.tools.fuzzing.trees import tree
from tests.unit.tools.opt import EXAMPLES, ROOT, opt

LEVELS = (
    "",
    "rpeg-annotate-parallelism{dp=2}",
    "rpeg-annotate-parallelism{dp=2},rpeg-fuse-inference,rpeg-schedule",
    "rpeg-annotate-parallelism{dp=2},rpeg-schedule,rpeg-lower-to-programs",
)
DIALECT = ROOT / "tests" / "filecheck" / "dialect"
RARE = """\
rpeg 0.1
pipeline rare {
  model actor = policy("models/tiny-qwen2", optim=adamw(lr=1e-6))
  model judge = process_reward("hf:a/b")
  model average = policy(actor@0)
  data train = prompts("train.jsonl")
  verifier steps = process("python:checks:steps", timeout=2s)
  tool world = environment("python:worlds:grid")
  allow actor_critic_sharing()
  allow logprob_approximation(kind=bypass)
  allow tail_batching(over=1.5)
  allow low_precision_rollout(dtype=fp8)
  step i < 9 {
    q = batch(train, size=8)
    y, lp = generate(actor@i, q, world, n=4, max_tokens=64, max_turns=3)
    r = score(world, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    average@i+1 = copy(actor@i+1)
  }
  expect y = histogram("lengths.json")
  plan one on "h100-1" {
    pool half = gpus(0..3)
    y on half, par(dp=4)
    actor on half, par(dp=4), publish(half, mode=reshard)
  }
}
"""
"""What no other file has."""


@dataclass(frozen=True)
class Seed:
    """A text that parses, and what it reads as."""

    text: str
    content: ast.File | ModuleOp


@cache
def seeds(form: str) -> list[Seed]:
    """The seeds of a form, `rpeg` or `mlir`."""
    return [seed(text, form) for text in (_rpeg() if form == "rpeg" else _mlir())]


@cache
def mistakes(form: str) -> list[Seed]:
    """The example that breaks it, of every rule whose example has this form."""
    return [seed(rule.broken, form) for rule in rules().values() if rule.language == form]


def seed(text: str, form: str) -> Seed:
    """The seed of a text that parses."""
    return Seed(text, tree(text) if form == "rpeg" else module_of(text))


def _rpeg() -> Iterator[str]:
    written = sorted(DIALECT.glob("*.rpeg"))
    yield from (path.read_text(encoding="utf-8") for path in (*EXAMPLES, *written))
    yield RARE
    yield from (rule.mended for rule in rules().values() if rule.language == "rpeg")


def _mlir() -> Iterator[str]:
    written = sorted(DIALECT.glob("*.mlir"))
    for number, path in enumerate((*EXAMPLES, *written)):
        flags = ["--print-op-generic"] if number % 2 else []
        run = opt(str(path), "-p", LEVELS[number % len(LEVELS)], *flags)
        yield run.out or opt(str(path), *flags).out
    yield from (rule.mended for rule in rules().values() if rule.language == "mlir")


def module_of(text: str) -> ModuleOp:
    """The module of a text that parses."""
    module, _, problems = parse_module(text, "f")
    assert module is not None, problems
    return module
