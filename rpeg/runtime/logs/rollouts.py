"""The sampled completions of each step: `rollouts/step-000020.jsonl`, one object per sample.

Fields: `step`, `prompt`, `answer`, `completion`, `rewards` (name -> value), `finished`, `tokens`
(sampled), `trained` (those of them that train), `version` (oldest weights that made a token), `lag`
(steps between them and the update), `ordinal` (prompt) and `sample` (index in its group).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from torch import Tensor

from rpeg.rundir import jsonl
from rpeg.runtime.errors import RunFolderFailure
from rpeg.runtime.trajectories import Trajectories

Rollout = dict[str, Any]
Line = tuple[int, int, str]
"""(prompt ordinal, index in its group, JSON text) of a sample."""
_PATTERN = "step-*.jsonl"
_BOOLEANS = ("false", "true")


def describe(y: Trajectories, rewards: Mapping[str, Tensor], step: int) -> list[Line]:
    """One line per sample; `step` counts from 1, `rewards` are per-response fields [samples]."""
    oldest = y.versions.masked_fill(~y.sampled, step).min(dim=1).values.tolist()
    ordinals, samples = y.ordinals.tolist(), y.samples.tolist()
    of_rewards = {name: jsonl.encoded(values.tolist()) for name, values in rewards.items()}
    texts = jsonl.objects_of(
        {
            "step": [step] * len(y.rows),
            "ordinal": ordinals,
            "sample": samples,
            "prompt": jsonl.encoded([row.prompt for row in y.rows]),
            "answer": jsonl.encoded([row.answer for row in y.rows]),
            "completion": jsonl.encoded(y.texts),
            "rewards": of_rewards,
            "finished": [_BOOLEANS[ended] for ended in y.finished.tolist()],
            "tokens": y.sampled_lengths.tolist(),
            "trained": y.trained_lengths.tolist(),
            "version": oldest,
            "lag": [step - 1 - version for version in oldest],
        }
    )
    return list(zip(ordinals, samples, texts, strict=True))


def write_rollouts(
    folder: Path, step: int, lines: Iterable[Line], append: jsonl.Append = jsonl.append_text
) -> None:
    """Appends the lines of one step, in the order of their prompts and samples."""
    ordered = sorted(lines, key=itemgetter(0, 1))
    if ordered:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"step-{step:06d}.jsonl"
        append(path, "".join(f"{text}\n" for _, _, text in ordered))


def drop_rollouts_after(folder: Path, step: int) -> None:
    """Forgets the rollouts of the steps past `step`: a resumed run writes them again."""
    for path in folder.glob(_PATTERN):
        if _step(path) > step:
            path.unlink()


def read_rollouts(
    run_dir: Path,
    *,
    step: int | None = None,
    sort_by: str | None = None,
    ascending: bool = False,
) -> list[Rollout]:
    """Rollouts of a run: of one step (default: the newest), best `sort_by` reward first.

    Raises RunFolderFailure if the run has no rollouts, not that step, or not that reward.
    """
    steps = rollout_steps(run_dir)
    if not steps:
        raise RunFolderFailure(
            f"{run_dir} holds no rollouts: is it the folder of a run that finished a step?"
        )
    chosen = steps[-1] if step is None else step
    if chosen not in steps:
        raise RunFolderFailure(
            f"no rollouts of step {chosen}: there are steps {steps[0]} to {steps[-1]}"
        )
    rollouts = jsonl.read(run_dir / "rollouts" / f"step-{chosen:06d}.jsonl")
    if sort_by is not None:
        rollouts = _sorted(rollouts, sort_by, ascending)
    return rollouts


def rollout_steps(run_dir: Path) -> list[int]:
    """The steps whose rollouts a run keeps, in order."""
    return sorted(_step(path) for path in (run_dir / "rollouts").glob(_PATTERN))


def _sorted(rollouts: list[Rollout], reward: str, ascending: bool) -> list[Rollout]:
    known = list(rollouts[0]["rewards"])
    if reward not in known:
        raise RunFolderFailure(
            f"no reward `{reward}` in these rollouts: there is {', '.join(known)}"
        )
    return sorted(rollouts, key=lambda r: float(r["rewards"][reward]), reverse=not ascending)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
