"""What `rpeg simulate` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rpeg.cost.simulation.result import Simulated, StageTimes
from rpeg.cost.simulation.versions import Lags
from rpeg.cost.simulation.waiting import Occupation


def text(found: Simulated, title: str, notes: Sequence[str]) -> str:
    """The period beside the closed form, what tasks took, and what was waited for."""
    steps = "1 step" if found.steps == 1 else f"{found.steps} steps"
    head = f"{title}: {steps} after {found.warm} that fill it, seed {found.seed}\n"
    parts = [head, *_period(found), *_stages(found.stages), *_resources(found.resources)]
    told = ["\nassumed:", *(f"  {note}" for note in notes)] if notes else []
    return "\n".join([*parts, *_lags(found.lags), *told]) + "\n"


def _period(found: Simulated) -> Iterator[str]:
    error = f"  ± {found.error_s:.2f}" if found.error_s is not None else ""
    yield f"a step, simulated    {found.period_s:10.2f} s{error}"
    yield f"closed form          {found.closed_form_s:10.2f} s  the gap is {_signed(found.gap)}:"
    yield f"                     {_signed(found.of_tasks):>10}    tasks take longer or shorter"
    yield f"                     {_signed(found.of_waiting):>10}    others wait for what varies"
    yield f"first task to last   {found.latency_s:10.2f} s  of a step by itself, closed form"
    among = "among others, which it waits for"
    yield f"                     {found.among_others_s:10.2f} s  of a step {among}, simulated"


def _signed(share: float) -> str:
    """In percent, with a sign; what rounds to nothing is +0.0 %, whichever side it is on."""
    return f"{round(share, 3) + 0.0:+.1%}"


def _stages(stages: tuple[StageTimes, ...]) -> Iterator[str]:
    width = max([5, *(len(each.stage) for each in stages)])
    yield f"\n{'stage':{width}}   expected s       mean s  deviation s  on"
    for each in stages:
        deviation = f"{each.deviation_s:.3f}" if each.deviation_s is not None else "-"
        seconds = f"{each.expected_s:12.3f} {each.mean_s:12.3f} {deviation:>12}"
        yield f"{each.stage:{width}} {seconds}  {each.resource or '-'}"


def _resources(resources: Mapping[str, Occupation]) -> Iterator[str]:
    width = max([8, *map(len, resources)])
    yield f"\n{'resource':{width}}   busy  idle for"
    for name, each in resources.items():
        idle = ", ".join(f"{why} {share:.1%}" for why, share in _largest_first(each.idle))
        yield f"{name:{width}} {each.busy:6.1%}  {idle or '-'}"


def _largest_first(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])


def _lags(lags: Mapping[str, Lags]) -> Iterator[str]:
    for task, each in lags.items():
        total = sum(each.batches.values())
        told = ", ".join(f"{lag} in {n / total:.0%}" for lag, n in each.batches.items())
        yield f"\nweights that {task} starts with, in steps of age: {told} (at most {each.bound})"
