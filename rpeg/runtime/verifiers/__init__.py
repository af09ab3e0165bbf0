"""Verifiers: what turns a completion into a reward.

Sources: `rule:NAME` (built in), `gym:TASK` (reasoning-gym's own scoring) and
`python:module:function`, which runs only where RPEG_ALLOW_PYTHON=1. The last two run in worker
processes with limits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from rpeg.runtime.errors import VerifierFailure
from rpeg.runtime.trajectories import Trajectories
from rpeg.runtime.verifiers.pool import Failed, Outcome, WorkerPool
from rpeg.runtime.verifiers.rules import Response, Rule, find_rule

if TYPE_CHECKING:
    from rpeg.runtime.interfaces import Host

__all__ = ["Verifier"]

_SHOWN = 60
"""Characters of a text in a message."""
_MAX_WORKERS = 8
"""Worker processes of a verifier in one training process."""


class Verifier:
    """Scores completions.

    A call that raises, hangs or dies scores 0 and counts in `verifier/<name>/failed`; the first
    one of a run is noted.
    """

    def __init__(
        self,
        run: Host,
        name: str,
        *,
        source: str,
        kind: str = "outcome",
        timeout: float = 10.0,
        soft: int | None = None,
        max: int | None = None,
    ) -> None:
        if kind != "outcome":
            raise VerifierFailure(
                f"`{name}` is a {kind} verifier; this runtime scores whole responses: "
                "use `outcome(...)`"
            )
        self.name = name
        self._run = run
        leads = run.leads_shard
        self._scorer = _make_scorer(run, source, timeout, soft, max) if leads else None

    def score(self, y: Trajectories) -> Tensor:
        """[samples] float32: the reward of each completion.

        Collective where several processes hold the same samples. Raises VerifierFailure if every
        call of this process's share failed.
        """
        with self._run.clock.stage(f"score_{self.name}"):
            rewards = self._run.oracle.rewards(self, y)
            return torch.tensor(rewards, dtype=torch.float32, device=y.tokens.device)

    def ask(self, y: Trajectories) -> list[float]:
        """The reward of each completion, from the scorer itself. Collective, as `score`."""
        mine = [] if self._scorer is None else self._score(self._scorer, y)
        return self._run.share_with_replicas(mine)

    def _score(self, scorer: _Scorer, y: Trajectories) -> list[float]:
        outcomes = scorer.score(y)
        failed = [
            f"{outcome.reason}; it was given {_shown(y, k)}"
            for k, outcome in enumerate(outcomes)
            if isinstance(outcome, Failed)
        ]
        if failed and len(failed) == len(outcomes):
            raise VerifierFailure(
                f"verifier `{self.name}` failed on all {len(failed)} responses; "
                f"the first: {failed[0]}"
            )
        if failed:
            self._run.note(f"verifier {self.name}", failed[0])
        self._run.log(f"verifier/{self.name}/failed", len(failed), how="sum")
        return [0.0 if isinstance(outcome, Failed) else outcome for outcome in outcomes]


def _shown(y: Trajectories, sample: int) -> str:
    """A completion, and the row that it answers."""
    return f"the completion {_cut(y.texts[sample])} to {y.rows[sample].place}"


def _cut(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


class _Scorer(Protocol):
    def score(self, y: Trajectories) -> list[Outcome]: ...


class _RuleScorer:
    """A built-in rule, in this process."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def score(self, y: Trajectories) -> list[Outcome]:
        columns = zip(y.rows, y.texts, y.finished.tolist(), y.sampled_lengths.tolist(), strict=True)
        return [
            self._rule(Response(row.prompt, text, row.answer, finished, tokens))
            for row, text, finished, tokens in columns
        ]


class _PooledScorer:
    """Other people's code, in worker processes."""

    def __init__(self, run: Host, source: str, timeout: float) -> None:
        self._pool = WorkerPool(source, root=run.root, size=_worker_count(), seconds=timeout)
        self._pool.wait_ready()

    def score(self, y: Trajectories) -> list[Outcome]:
        rows = zip(y.rows, y.texts, strict=True)
        return self._pool.run([(r.prompt, text, r.answer, r.metadata or {}) for r, text in rows])


def _make_scorer(
    run: Host, source: str, timeout: float, soft: int | None, max_tokens: int | None
) -> _Scorer:
    scheme, _, rest = source.partition(":")
    if scheme == "rule":
        return _RuleScorer(find_rule(rest, soft, max_tokens))
    if scheme == "python" and os.environ.get("RPEG_ALLOW_PYTHON") != "1":
        raise VerifierFailure(
            f"`{source}` runs code of yours: allow it with --allow-python (RPEG_ALLOW_PYTHON=1)"
        )
    if scheme == "python":
        _check_target(source)
    if scheme in ("gym", "python"):
        return _PooledScorer(run, source, timeout)
    raise VerifierFailure(
        f"`{source}` is not a verifier: use `rule:NAME`, `gym:TASK` or `python:module:function`"
    )


def _check_target(source: str) -> None:
    module, _, function = source.removeprefix("python:").partition(":")
    if not function.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise VerifierFailure(
            f"`{source}` names no function: write `python:module:function`, "
            "with the module beside the pipeline's file or installed"
        )


def _worker_count() -> int:
    """The cores of this machine, shared among its training processes."""
    return max(
        1, min(_MAX_WORKERS, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
    )
