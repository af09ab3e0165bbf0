"""Pipelines of L0, and the modules of this folder that execute them, held to their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from rpeg.interp import Interpreter, TeacherForced, World
from rpeg.interp.l1 import PlacedInterpreter, Timing
from rpeg.interp.l1.timing import Task
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.parse import parse_module
from tests.unit.interp.meaning import STEPS, Executed, apart, gradients
from tests.unit.interp.pipelines import THINGS, parse

REASSOCIATED = 1e-5
"""How far gradients may be apart, relative to their norm: sums of other parts round in another way,
and Adam's steps carry that on.
"""
_BEHIND = """
    q = batch(train, size=4)
    y, lp = generate(actor@[i-1..i], q, n=4, max_tokens=6, dtype=fp32)
    short = score(brief, y)
    adv = group_advantage(short, baseline=mean, scale=std)
    lp_old = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    w = importance(lp_old, lp, cap=2.0)
    pg = ppo_clip(y, adv, lp_old, w, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.5)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches=2)
"""
_TOGETHER = _BEHIND.replace("[i-1..i]", "i").replace("lp_old, w,", "lp_old,")
_TOGETHER = _TOGETHER.replace("    w = importance(lp_old, lp, cap=2.0)\n", "")


_TWO_POOLS = """  }
  plan two on "cpu" {
    pool engine = cores(0..0, per_node=1)
    pool trainer = cores(0..0, per_node=2)
    y on engine, par(dp=1)
    short on engine, par(dp=1)
    lp_old on trainer, par(dp=1, tp=2)
    lp_ref on engine, par(dp=1)
    actor on trainer, par(dp=1, tp=2), publish(engine, mode=reshard)
"""
"""The end of the step, and a plan without its own end."""


def _pipeline(step: str) -> ModuleOp:
    """At a learning rate where rounding stays rounding: Adam's steps have its size."""
    return parse(step, optim="adamw(lr=3e-4)", more=THINGS)


LAGGING, GRPO = _pipeline(_BEHIND), _pipeline(_TOGETHER)
PLANNED = {
    "window": (LAGGING, _pipeline(_BEHIND + _TWO_POOLS)),
    "synchronous": (GRPO, _pipeline(_TOGETHER + _TWO_POOLS)),
}
"""Pipelines, and the same with a plan `two`."""
L0: Mapping[str, ModuleOp] = {
    "buffered": LAGGING,
    "fused": GRPO,
    "microbatches": GRPO,
    "publish": GRPO,
    "streamed": GRPO,
    "streamed_update": _pipeline(_TOGETHER.replace("minibatches=2", "minibatches=1")),
    "window": LAGGING,
}
"""By file of this folder: what it executes."""


def module_of(name: str, *changes: tuple[str, str]) -> ModuleOp:
    """The module of a file, verified; each (old, new) text replaced."""
    path = Path(__file__).with_name(f"{name}.mlir")
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    module, sources, problems = parse_module(text, path.name)
    assert module is not None, problems
    broken = [d for d in diagnose(module, sources) if d.severity == "error"]
    assert not broken, "\n".join(map(str, broken))
    return module


@dataclass
class Placed:
    """Runs L0 and L1 in one folder."""

    folder: Path
    _known: dict[int, Executed] = field(default_factory=dict, repr=False)

    def differences(self, l0: ModuleOp, l1: ModuleOp, timing: Timing) -> list[str]:
        """In what L1 differs from L0 over three steps; nothing if it means the same."""
        if id(l0) not in self._known:
            sampled = Interpreter(l0, "p", World(self.folder)).run(STEPS)
            oracle = TeacherForced(sampled)
            with gradients() as found:
                ran = Interpreter(l0, "p", World(self.folder), oracle=oracle).run(STEPS)
            self._known[id(l0)] = Executed(ran, found)
        first = self._known[id(l0)]
        oracle = TeacherForced(first.recording)
        with gradients() as found:
            world = World(self.folder)
            second = PlacedInterpreter(l1, "p", world, oracle=oracle, timing=timing).run(STEPS)
        return list(apart(first, Executed(second, found), gradient=REASSOCIATED))


@dataclass
class Eager:
    """Whatever is furthest ahead moves first; notes what moved."""

    moved: list[Task] = field(default_factory=list)

    def next(self, ready: Sequence[Task]) -> int:
        """The last step's."""
        chosen = max(range(len(ready)), key=lambda k: ready[k].step)
        self.moved.append(ready[chosen])
        return chosen

    def arrivals(self, chunks: int) -> Sequence[int]:
        """The last first."""
        return range(chunks)[::-1]

    def lead(self, first: str, second: str) -> int:
        """By how many operations one kind was ahead of another at most."""
        lead = most = 0
        for task in self.moved:
            lead += (task.op.name == first) - (task.op.name == second)
            most = max(most, lead)
        return most
