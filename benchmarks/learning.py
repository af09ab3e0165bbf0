"""What algorithms and corrections for staleness come to on the demo's task, over three seeds.

    python benchmarks/learning.py [FOLDER] [--steps 200] [--seeds 3] [--only NAME,...]

PPO with a critic of its own, GRPO, DAPO and RLOO; and GRPO on samples that are 2 and 4 steps old,
clipped around the log-probs that were sampled under (behaviour), around this step's and weighted
(decoupled), or around this step's without weights (none). The language refuses the first and the
last of these at such ages, so that they are compiled around its verifier (`sides/uncovered.py`).

Each seed has a warm-up of its own. Two runs at a time, one process each; finished ones in FOLDER
(default `runs/learning`) aren't run again. Writes learning.png and learning.md there.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "sides"))

from demo import WARM, write_pipeline

from rpeg.runtime.logs.metrics import read_metrics
from rpeg.runtime.logs.report import Curve, moving_mean, series

UNCOVERED = Path(__file__).resolve().parent / "sides" / "uncovered.py"
EVALUATIONS = 4
"""Of the held-out problems, in a run."""
TEMPLATE = """\
rpeg 0.1
pipeline {name} {{
  model actor = policy(
    "{warm}", optim=adamw(lr=3e-4, beta2=0.99, warmup=10, schedule=linear), dtype=fp32,
  )
{models}  data train = prompts("data/sort_digits/train.jsonl")
  data heldout = prompts("data/sort_digits/heldout.jsonl")
  verifier correct = outcome("rule:exact_match")

  step i < {steps} {{
{body}
    every(steps={every}) {{
      heldout_acc = eval(actor@i+1, heldout, correct, max_tokens=9)
    }}
  }}
}}
"""
SAMPLED = """\
    q = batch(train, size=32)
    y, lp = generate({actor}, q, n=8, max_tokens=9, dtype=fp32)
    r = score(correct, y)
"""
RELATIVE = "    adv = group_advantage(r, baseline=mean, scale=std)\n"
PPO = """\
    lp_ref = logprob(ref, y)
    v = values(critic@i, y)
    rt = kl_penalty(r, lp, lp_ref, coef=0.001)
    raw, ret = gae(rt, v, gamma=1.0, lambda=1.0)
    adv = whiten(raw)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    vl = value_loss(y, ret, v, clip=0.2)
    critic@i+1 = update(critic@i, vl, agg=token_mean)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
"""
CRITIC = """\
  model critic = value(actor@0, optim=adamw(lr=1e-3), dtype=fp32)
  model ref = policy(actor@0, dtype=fp32)
"""
GRPO = """\
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
"""
DAPO = """\
    r, y, lp = collect(groups=32, max_rounds=8) {
      q = batch(train, size=32)
      ys, lps = generate(actor@i, q, n=8, max_tokens=9, dtype=fp32)
      rs = score(correct, ys)
      keep(rs, ys, lps, where=mixed)
    }
    adv = group_advantage(r, baseline=mean, scale=std)
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.28)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
"""
RLOO = """\
    adv = group_advantage(r, baseline=leave_one_out, scale=none)
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=seq_mean_token_sum)
"""
CORRECTIONS = {
    "behaviour": """\
    pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
""",
    "decoupled": """\
    prox = logprob(actor@i, y)
    w = importance(prox, lp, cap=5.0)
    pg = ppo_clip(y, adv, prox, w, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean, minibatches=2)
""",
    "none": """\
    prox = logprob(actor@i, y)
    pg = ppo_clip(y, adv, prox, clip_low=0.2, clip_high=0.2)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
""",
}
STALENESS = (2, 4)
TITLES = ("samples of this step's weights", "GRPO on older samples")
"""Of the picture's panels."""


@dataclass(frozen=True)
class Variant:
    """One line of the table."""

    name: str
    body: str
    models: str = ""
    panel: int = 0
    """Of the picture."""

    def text(self, steps: int) -> str:
        """Its pipeline."""
        every = max(1, steps // EVALUATIONS)
        return TEMPLATE.format(
            name=self.name,
            warm=WARM,
            models=self.models,
            body=self.body.rstrip(),
            steps=steps,
            every=every,
        )


def variants() -> Iterator[Variant]:
    """All of them, in the order of the table."""
    now = SAMPLED.format(actor="actor@i")
    yield Variant("ppo", now + PPO, CRITIC)
    yield Variant("grpo", now + RELATIVE + GRPO)
    yield Variant("dapo", DAPO)
    yield Variant("rloo", now + RLOO)
    for k in STALENESS:
        old = SAMPLED.format(actor=f"actor@[i-{k}..i]") + RELATIVE
        for correction, body in CORRECTIONS.items():
            yield Variant(f"async{k}_{correction}", old + body, panel=1)


@dataclass(frozen=True)
class Result:
    """What one run logged."""

    before: float
    after: float
    """Held-out accuracies: of the warm-up, and at the end."""
    rewards: Curve


def main() -> None:
    """Runs what is not finished, then shows it."""
    options = parse()
    chosen = [v for v in variants() if not options.only or v.name in options.only.split(",")]
    seeds = [options.folder.resolve() / f"seed-{seed}" for seed in range(options.seeds)]
    with ThreadPoolExecutor(2) as two:
        list(two.map(write_pipeline, seeds, range(options.seeds)))
        jobs = [(v, folder, seed) for v in chosen for seed, folder in enumerate(seeds)]
        list(two.map(lambda job: train(*job, options.steps), jobs))
    found = {v: [result(folder, v) for folder in seeds] for v in chosen}
    text = table(found)
    (options.folder / "learning.md").write_text(text + "\n", encoding="utf-8")
    draw(found, options.folder / "learning.png")
    print(text)


def train(variant: Variant, folder: Path, seed: int, steps: int) -> None:
    """One run, beside the data and the warm-up of its seed. Raises CalledProcessError if it
    fails.
    """
    file = folder / f"{variant.name}.rpeg"
    file.write_text(variant.text(steps), encoding="utf-8")
    settings = ["--processes", "1", "--seed", str(seed), "--run-dir", str(folder / variant.name)]
    subprocess.run(
        [sys.executable, str(UNCOVERED), "run", str(file), *settings],
        check=True,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    print(f"{folder.name}  {variant.name}", flush=True)


def result(folder: Path, variant: Variant) -> Result:
    """What a seed's warm-up and a run after it logged."""
    lines = read_metrics(folder / variant.name / "metrics.jsonl")
    before = series(read_metrics(folder / "warmup" / "metrics.jsonl"), "eval/heldout_acc")[1][-1]
    return Result(before, series(lines, "eval/heldout_acc")[1][-1], series(lines, "reward/r"))


def table(found: Mapping[Variant, Sequence[Result]]) -> str:
    """Held-out accuracies as Markdown, one variant per line."""
    head = ["| variant | before | after: mean | spread | each seed |", "|---|---|---|---|---|"]
    return "\n".join([*head, *starmap(_line, found.items())])


def _line(variant: Variant, results: Sequence[Result]) -> str:
    before, after = [r.before for r in results], [r.after for r in results]
    spread = statistics.stdev(after) if len(after) > 1 else 0.0
    each = ", ".join(f"{value:.3f}" for value in after)
    means = f"{statistics.mean(before):.3f} | {statistics.mean(after):.3f}"
    return f"| {variant.name} | {means} | {spread:.3f} | {each} |"


def draw(found: Mapping[Variant, Sequence[Result]], out: Path) -> None:
    """The sampled rewards: moving means, averaged over seeds, and between which seeds they lie."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, title in zip(panels, TITLES, strict=True):
        axes.set(title=title, xlabel="step")
        axes.grid(alpha=0.3)
    for variant, results in found.items():
        curves = [moving_mean(r.rewards[1]) for r in results]
        points = list(zip(*curves, strict=True))
        axes, steps = panels[variant.panel], results[0].rewards[0]
        (line,) = axes.plot(steps, [statistics.mean(p) for p in points], label=variant.name)
        lowest, highest = [min(p) for p in points], [max(p) for p in points]
        axes.fill_between(steps, lowest, highest, color=line.get_color(), alpha=0.15)
    panels[0].set(ylabel="reward")
    for axes in panels:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncol=3, frameon=False)
    figure.savefig(out, dpi=120)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("runs/learning"))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="variants, separated by commas")
    return parser.parse_args()


if __name__ == "__main__":
    main()
