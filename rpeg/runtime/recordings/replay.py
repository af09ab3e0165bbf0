"""Replaying a recording: a run whose completions and rewards are given, and which is watched.

`RPEG_REPLAY=FOLDER` makes any program take them from the recording in FOLDER, and leave what it
computed from them in `replayed/` of its run folder, a recording too. Two layouts that replay one
recording compute the same numbers, up to rounding: sampling, which rounding derails, has no part
in it. An engine says how probable the recorded tokens are under the weights that it holds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypeVar

import torch
from torch import Tensor

from rpeg.rundir.folder import RunFolder
from rpeg.runtime import world
from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.errors import ReplayFailure
from rpeg.runtime.interfaces import AskedEngine, Named, Scorer
from rpeg.runtime.pools.table import Pools
from rpeg.runtime.recordings.oracle import AwaitedWeights, Oracle, WatchedTrainer
from rpeg.runtime.recordings.recording import Recording, StepRecord, save
from rpeg.runtime.trajectories import Prompts, Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.batches.examples import Examples
    from rpeg.runtime.terms import Lesson, Said

FOLDER = "replayed"
"""In the run's folder: what the run computed."""

Noted = dict[str, dict[int, Tensor]]
"""By what it is and the number of a sample in the batch: [tokens] or [1] of it."""

T = TypeVar("T")


class ReplayingRun(Protocol):
    """The run around an oracle that replays."""

    @property
    def folder(self) -> RunFolder:
        """Where it leaves what it computes."""
        ...

    @property
    def step(self) -> int:
        """Finished steps."""
        ...

    @property
    def batch_step(self) -> int:
        """The step whose batch is being made or trained on."""
        ...

    @property
    def data_parallel(self) -> tuple[int, int]:
        """(index, width): which share of every batch this process holds."""
        ...

    @property
    def pools(self) -> Pools:
        """The processes of every pool."""
        ...

    def bring_home(self, value: T) -> list[T]:
        """The values of all pools, at the first process of the home pool. Collective."""
        ...


class Replay(Oracle):
    """The oracle of a run that replays a recording."""

    live = False

    def __init__(self, run: ReplayingRun, recorded: Recording) -> None:
        self._run = run
        self._recorded = recorded
        self._computed = Recording(recorded.pipeline)
        self._notes: defaultdict[int, Notes] = defaultdict(Notes)
        """By the step whose batch it is about."""
        self._calls: Counter[tuple[int, str, str]] = Counter()
        """By (step, what, maker): recorded values that were given of this step."""
        self._trainers: dict[str, WatchedTrainer] = {}
        self._engines: dict[str, _InUse] = {}
        """By the name of the trajectories that they answered with."""
        self._received: dict[str, AwaitedWeights] = {}
        """By the name of the model."""

    def ends(self, steps: int) -> int:
        """After how many of so many steps the run ends: where a `stop` ended the recording, in all
        pools, whose programs may be ahead of the one that stops.
        """
        stopped = bool(self._recorded.steps) and "stop" in self._recorded.steps[-1].events
        return min(steps, len(self._recorded.steps)) if stopped else steps

    @property
    def _step(self) -> StepRecord:
        """Of the batch that is being made or trained on."""
        recorded, step = self._recorded.steps, self._run.batch_step
        if step >= len(recorded):
            raise ReplayFailure(f"the recording ends after {len(recorded)} steps: run only these")
        return recorded[step]

    def completions(
        self, engine: AskedEngine, prompts: Prompts, settings: Sampling, dtype: str
    ) -> tuple[Trajectories, Tensor]:
        """The recorded ones of the same prompts, under log-probs of the engine's own weights."""
        name = self._next("trajectories", engine.name, self._step.trajectories)
        y = self._share(self._step.trajectories[name])
        if not torch.equal(y.ordinals, prompts.ordinals.repeat_interleave(settings.n)):
            raise ReplayFailure(
                f"`{name}` of step {self._run.batch_step + 1} was recorded for other prompts, or "
                "in another order: replay with the data, seed and batch size of the recording"
            )
        y = replace(y, versions=torch.where(y.sampled, engine.version, -1).int())
        logprobs = engine.logprobs(y, settings, dtype)
        self._now.sampled[name] = logprobs
        self._engines[name] = _InUse(engine, settings, dtype)
        return y, logprobs

    def receives(self, weights: AwaitedWeights) -> None:
        """Notes them: the last version is asked for in the end."""
        self._received[weights.name] = weights

    def refuse_order(self, name: str) -> None:
        """Raises ReplayFailure."""
        raise ReplayFailure(
            f"`{name}` fills its batches in completion order, and a recording holds whole ones: "
            "compile without --order completion"
        )

    def rewards(self, verifier: Scorer, y: Trajectories) -> list[float]:
        """The recorded ones."""
        rewards = self._step.rewards
        name = self._next("rewards", verifier.name, rewards)
        self._now.rewarded.append(name)
        whole = rewards[name]
        first = self._run.data_parallel[0] * len(y.rows)
        found: list[float] = whole[first : first + len(y.rows)].tolist()
        return found

    def computed(self, model: Named, said: Said, found: Tensor) -> None:
        """Notes them."""
        self._now.answers.setdefault((model.name, said), []).append(found)

    def trained(self, model: WatchedTrainer, examples: Examples, lesson: Lesson) -> None:
        """Notes it, by the samples' numbers in the batch of all processes."""
        first = model.groups.dp_rank * len(examples)
        noted = self._now.open.setdefault(model.name, {})
        for what, told in lesson.told(examples.lead).items():
            micro = zip(lesson.rows, told.detach().float().cpu(), strict=True)
            noted.setdefault(what, {}).update({first + k: one for k, one in micro})

    def stepped(self, model: WatchedTrainer, grad_norm: float) -> None:
        """Notes the norm, and that the next micro-batches belong to another optimizer step."""
        self._trainers[model.name] = model
        self._now.close(model.name, grad_norm)

    def end_step(self) -> None:
        """Brings together what all processes noted."""
        mine = self._notes.pop(self._run.step, Notes())
        gathered = world.gather((self._run.data_parallel[0], mine))
        self._computed.steps.append(_merged(gathered, self._step))

    def finish(self) -> None:
        """Writes what all pools computed, the last weights and what they say greedily with it."""
        for name, trainer in self._trainers.items():
            self._computed.weights[name] = {n: t.cpu() for n, t in trainer.named_tensors()}
        self._take_last_weights()
        last = self._recorded.steps[-1].trajectories
        for name, used in self._engines.items():
            if name not in last:  # of a round that the last step did not need
                continue
            y = self._share(last[name])
            parts = dict(world.gather((self._run.data_parallel[0], used.greedy(y))))
            self._computed.greedy[name] = torch.cat([parts[share] for share in sorted(parts)])
        by_pool = self._run.bring_home(self._computed)
        if world.rank() == 0 and self._run.pools.at_home:
            save(_joined_pools(by_pool), self._run.folder.path / FOLDER)

    def _take_last_weights(self) -> None:
        """What the last step published to engines of this pool, which their steps did not use."""
        for engine in {id(used.engine): used.engine for used in self._engines.values()}.values():
            weights = self._received.get(engine.name)
            if weights is not None:
                weights.wait_for_last()
                engine.swap_weights(weights)

    @property
    def _now(self) -> Notes:
        """Of the batch that is being made or trained on."""
        return self._notes[self._run.batch_step]

    def _share(self, y: Trajectories) -> Trajectories:
        index, width = self._run.data_parallel
        return y.select(torch.arange(len(y.rows)).tensor_split(width)[index])

    def _next(self, what: str, maker: str, recorded: Mapping[str, object]) -> str:
        """The name of the next recorded value by a model or verifier in this step."""
        names = self._step.made_by(maker, recorded)
        call = self._run.batch_step, what, maker
        k = self._calls[call]
        if k >= len(names):
            raise ReplayFailure(
                f"step {call[0] + 1}: `{maker}` is asked for {what} {k + 1} times, the "
                f"recording has {len(names)}: replay the pipeline that was recorded"
            )
        self._calls[call] += 1
        return names[k]


@dataclass
class Notes:
    """What a process notes of one step, about its own share of the samples."""

    sampled: dict[str, Tensor] = field(default_factory=dict)
    """By name of trajectories: [samples, max_tokens] the engine's log-probs."""
    rewarded: list[str] = field(default_factory=list)
    """Names of the rewards that were given."""
    answers: dict[tuple[str, Said], list[Tensor]] = field(default_factory=dict)
    """By model: [samples, max_tokens] log-probs, or values, computed apart from updates, in
    order.
    """
    trained: dict[str, list[Noted]] = field(default_factory=dict)
    """By model: what each optimizer step trained on."""
    norms: dict[str, list[float]] = field(default_factory=dict)
    """By model: the gradient norm of each optimizer step."""
    open: dict[str, Noted] = field(default_factory=dict)
    """By model: what the optimizer step at work has trained on."""

    def close(self, model: str, norm: float) -> None:
        """Ends an optimizer step."""
        self.trained.setdefault(model, []).append(self.open.pop(model, {}))
        self.norms.setdefault(model, []).append(norm)


@dataclass(frozen=True)
class _InUse:
    """An engine, and how it was last asked."""

    engine: AskedEngine
    settings: Sampling
    dtype: str

    def greedy(self, y: Trajectories) -> Tensor:
        """[prompts, max_tokens] its most probable answers to the prompts of y; -1 past the end."""
        prompts = Prompts(y.rows[:: y.n], y.ordinals[:: y.n])
        settings = replace(self.settings, n=1, temperature=0.0, top_p=1.0, stop=())
        found, _ = self.engine.sample(prompts, settings, self.dtype)
        return torch.where(found.mask, found.tokens, -1)


def _merged(gathered: Sequence[tuple[int, Notes]], recorded: StepRecord) -> StepRecord:
    """The step, from the notes of every process, each with the number of its share."""
    by_share = dict(reversed(gathered))
    shares = [by_share[share] for share in sorted(by_share)]
    step = StepRecord(grad_norms=gathered[0][1].norms, makers=recorded.makers)
    for name in shares[0].sampled:
        step.sampled[name] = torch.cat([notes.sampled[name] for notes in shares])
    step.rewards = {name: recorded.rewards[name] for name in shares[0].rewarded}
    for (model, said), calls in shares[0].answers.items():
        group = "logprobs" if said == "logprob" else "values"
        names = recorded.made_by(model, getattr(recorded, group))
        if len(names) == len(calls):  # else a pass left some out: no telling which
            for k, name in enumerate(names):
                joined = _joined([notes.answers[model, said][k] for notes in shares])
                getattr(step, group)[name] = joined
    for model, norms in step.grad_norms.items():
        for k in range(len(norms)):
            _merge_trained(step, f"{model}/{k}", [n.trained[model][k] for _, n in gathered])
    return step


def _joined_pools(pools: Sequence[Recording]) -> Recording:
    """What all pools computed. Raises ReplayFailure where two were given the same rewards or
    completions: each counts its own calls, and the recording does not know of pools.
    """
    first, *others = pools
    for other in others:
        for step, theirs in zip(first.steps, other.steps, strict=True):
            _take(step, theirs)
        first.weights |= other.weights
        first.greedy |= other.greedy
    return first


def _take(step: StepRecord, theirs: StepRecord) -> None:
    twice = {*step.sampled, *step.rewards} & {*theirs.sampled, *theirs.rewards}
    if twice:
        name = min(twice)
        raise ReplayFailure(
            f"`{step.makers[name]}` is asked in two pools, and both were given `{name}`: "
            "replay it where one pool asks, or without a plan"
        )
    for group in ("sampled", "rewards", "logprobs", "values", "trained_rows", "trained"):
        getattr(step, group).update(getattr(theirs, group))
    step.grad_norms |= theirs.grad_norms


def _joined(shares: Sequence[Tensor]) -> Tensor:
    """[samples, tokens] of all shares, whose own completions end where the longest of them does."""
    width = max(share.shape[1] for share in shares)
    padded = [torch.nn.functional.pad(s, (0, width - s.shape[1])) for s in shares]
    return torch.cat(padded)


def _merge_trained(step: StepRecord, key: str, parts: Sequence[Noted]) -> None:
    """Replicas noted the same rows; of pipeline stages, only the last noted any."""
    for what in dict.fromkeys(what for part in parts for what in part):
        rows = {row: told for part in parts for row, told in part.get(what, {}).items()}
        order = sorted(rows)
        step.trained_rows[key] = torch.tensor(order)
        padded = torch.nn.utils.rnn.pad_sequence([rows[k] for k in order], batch_first=True)
        step.trained[f"{key}/{what}"] = padded
