"""Laws of a whole prediction at a fixed order, over random plans, clusters and models.

A file is placed as its random plan says and scheduled once; then it is priced on two machines, or
under two sets of names.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from rpeg.cost.architecture_files import shipped
from rpeg.cost.estimate import Estimate
from rpeg.cost.hardware import known_machines
from rpeg.cost.period.cycles import period
from rpeg.cost.period.graph import TaskGraph
from rpeg.cost.platform import Platform, load_platform
from rpeg.cost.pricing import estimate, step_graph
from rpeg.cost.profiles.setting import Inputs, Setting
from rpeg.cost.publish import gathered_bytes
from rpeg.cost.simulation.events import simulate
from rpeg.passes.base import pipelines
from tests.unit.cost.figures import faster
from tests.unit.cost.placing import placed

TEXT = """rpeg 0.1
pipeline p {{
  model actor = policy("hf:Qwen/Qwen2.5-7B", optim=adamw(lr=1e-6))
  model ref = policy(actor@0)
  data train = prompts("rows.jsonl")
  verifier correct = outcome("rule:exact_match")
  allow bounded_async(staleness=4, bound=strict, overflow=drop)
  step i < 10 {{
    q = batch(train, size={batch})
    y, lp = generate({weights}, q, n={n}, max_tokens=2048)
    r = score(correct, y)
    prox = logprob(actor@i, y)
    lp_ref = logprob(ref, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    w = importance(prox, lp, cap=2.0)
    pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    kl = kl_loss(y, lp_ref, coef=0.1)
    actor@i+1 = update(actor@i, pg, kl, agg=token_mean, minibatches={minibatches})
  }}
  expect train = lognormal(mean=200, cv=0.5)
  expect y = lognormal(mean=900, cv=0.8, cap=2048)
  plan x on "{cluster}" {{
{pools}
    y on {sampler}, {sampling}, engine(name=vllm)
    r on trainer
    prox on trainer, {passing}, mb(tokens=16384)
    lp_ref on trainer, {passing}, mb(tokens=16384)
    actor on trainer, {training}, mb(tokens=16384), publish({sampler}, mode={mode}{overlap})
  }}
}}
"""

MODELS = sorted({shape.name for shape in shipped().values() if shape.parameters < 40e9})


@dataclass(frozen=True)
class Drawn:
    """A random file, its cluster and its model."""

    text: str
    cluster: str
    inputs: Inputs

    def module(self) -> ModuleOp:
        """At L2, in a fixed order."""
        return placed(self.text, "x")

    @property
    def platform(self) -> Platform:
        return load_platform(self.cluster)


def drawn(seed: int) -> Drawn:
    draw = random.Random(seed)
    cluster = f"{draw.choice(known_machines())}-{draw.choice((2, 4))}"
    whole = load_platform(cluster).cluster.gpus
    shared = draw.random() < 0.4
    half = whole if shared else whole // 2
    first = "" if shared else f"    pool sampler = gpus({half}..{whole - 1})\n"
    model, k = draw.choice(MODELS), draw.randint(0, 3)
    training = _layout(draw, half, trains=True)
    text = TEXT.format(
        batch=64 * draw.randint(1, 8),
        n=draw.choice((2, 4, 8)),
        weights=f"actor@[i-{k}..i]" if k else "actor@i",
        minibatches=draw.choice((1, 2, 4)),
        cluster=cluster,
        pools=f"{first}    pool trainer = gpus(0..{half - 1})",
        sampler="trainer" if shared else "sampler",
        sampling=_layout(draw, half),
        passing=_layout(draw, half),
        training=training,
        mode=draw.choice(("reshard", "relay", "bcast")),
        overlap=draw.choice(("", ", overlap=true", ", bucket=64MiB")),
    )
    if k:
        text = text.replace("max_tokens=2048)", "max_tokens=2048, bound=strict, overflow=drop)")
    return Drawn(text, cluster, Inputs(shapes={"actor": model}))


def _layout(draw: random.Random, size: int, trains: bool = False) -> str:
    tp = draw.choice([n for n in (1, 2, 4, 8) if size % n == 0])
    pp = draw.choice([n for n in (1, 2, 4) if trains and size % (tp * n) == 0] or [1])
    dp = size // (tp * pp)
    more = f", sp={'true' if tp > 1 else 'false'}"
    if trains:
        more += f", zero={1 if dp > 1 else 0}, recompute={draw.choice(('none', 'full'))}"
    return f"par(dp={dp}, tp={tp}, pp={pp}{more})"


SEEDS = st.integers(0, 100_000)
FEW = settings(deadline=None, max_examples=8, phases=[Phase.generate])


def on(platform: Platform, what: str, factor: float) -> Platform:
    """The same with so much more of something."""
    machine = platform.machine
    match what:
        case "capacity":
            more = replace(machine, memory_bytes=machine.memory_bytes * factor)
        case "host":
            more = replace(machine, host_bytes_per_s=machine.host_bytes_per_s * factor)
        case rate:
            more = faster(machine, **{rate: factor})
    return replace(platform, machine=more)


@settings(FEW, max_examples=16)
@given(
    SEEDS,
    st.sampled_from(["flops", "memory", "link", "nic", "host", "capacity"]),
    st.floats(1.0, 8.0),
)
def test_more_is_never_slower(seed: int, what: str, factor: float) -> None:
    """FLOP/s, bandwidth of memory, links, cards and hosts, and memory itself."""
    one = drawn(seed)
    module, platform = one.module(), one.platform
    before, after = (
        estimate(module, there, one.inputs).period_s
        for there in (platform, on(platform, what, factor))
    )
    assert after <= before * (1 + 1e-9)


def graph_of(one: Drawn) -> TaskGraph:
    setting = Setting.of(next(pipelines(one.module())), one.platform, one.inputs)
    return step_graph(setting)


@FEW
@given(SEEDS, st.floats(1e-3, 1e3))
def test_units_scale(seed: int, unit: float) -> None:
    """All tasks in another unit of time: the period in that; prices in another currency."""
    one = drawn(seed)
    graph = graph_of(one)
    tasks = tuple(replace(task, seconds=task.seconds * unit) for task in graph.tasks)
    assert period(TaskGraph(tasks, graph.edges)) == pytest.approx(period(graph) * unit, rel=1e-9)
    module, platform = one.module(), one.platform
    price = platform.machine.usd_per_gpu_hour * unit
    other = replace(platform, machine=replace(platform.machine, usd_per_gpu_hour=price))
    costs = [estimate(module, there, one.inputs).cost.usd_per_step for there in (platform, other)]
    assert costs[1] == pytest.approx((costs[0] or 0.0) * unit)


NAMES = {
    **{"p": "zz", "actor": "m9", "ref": "a0", "train": "d", "correct": "v2", "q": "batch0"},
    **{"y": "out", "r": "told", "prox": "zp", "lp_ref": "bl", "sampler": "pool_b", "trainer": "a1"},
}


def figures(estimate: Estimate) -> list[float]:
    """All that a prediction tells, whatever things are called."""
    stages = sorted(stage.seconds for stage in estimate.stages)
    memory = sorted(held.peak_bytes for held in estimate.memory)
    return [estimate.period_s, estimate.latency_s, *stages, *memory]


@FEW
@given(SEEDS)
def test_relabelling_changes_nothing(seed: int) -> None:
    """Other names, and the plan's lines in another order."""
    one, draw = drawn(seed), random.Random(seed)
    head, plan = one.text.split(f'plan x on "{one.cluster}" {{\n')
    *lines, _, _, _ = plan.split("\n")
    pools, places = [n for n in lines if "pool" in n], [n for n in lines if "pool" not in n]
    shuffled = "\n".join([*draw.sample(pools, len(pools)), *draw.sample(places, len(places))])
    text = f'{head}plan x on "{one.cluster}" {{\n{shuffled}\n  }}\n}}\n'
    words = re.compile(rf"\b({'|'.join(NAMES)})\b(?!=)")
    renamed = words.sub(lambda found: NAMES[found[1]], text)
    other = Drawn(renamed, one.cluster, Inputs(shapes={"m9": one.inputs.shapes["actor"]}))
    told = [figures(estimate(d.module(), d.platform, d.inputs)) for d in (one, other)]
    assert told[0] == pytest.approx(told[1], rel=1e-9)


@FEW
@given(SEEDS)
def test_events_take_the_period_of_the_closed_form(seed: int) -> None:
    """In a fixed order, with lengths at their averages and links of their own: within 0.1 %."""
    graph = graph_of(drawn(seed))
    assert simulate(graph, 120, warm=120).period == pytest.approx(period(graph), rel=1e-3)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(1, 4), st.floats(1.0, 1e12))
def test_bytes_sent_are_bytes_received(fine: int, coarse: int, dp: int, weights: float) -> None:
    """Resharding within a group, box by box: what each GPU lacks, one that holds it sends."""
    parts, engine = 2**fine, 2 ** min(fine, coarse)
    sent, received = _reshard(parts, engine, dp)
    assert sum(sent) == sum(received)
    each = gathered_bytes(np.asarray(weights), np.asarray(parts), np.asarray(engine))
    assert float(sum(received) / len(received)) * weights == pytest.approx(float(each))


def _reshard(parts: int, engine: int, dp: int) -> tuple[list[Fraction], list[Fraction]]:
    """Shares of the weights that each GPU sends and receives, from `parts` cuts to `engine`."""
    gpus = parts * dp
    sent, received = [Fraction(0)] * gpus, [Fraction(0)] * gpus
    for gpu in range(gpus):
        first = gpu % parts * engine // parts * (parts // engine)
        for piece in range(first, first + parts // engine):
            if piece != gpu % parts:
                sent[gpu // parts * parts + piece] += Fraction(1, parts)
                received[gpu] += Fraction(1, parts)
    return sent, received
