"""Sampling in completion order: a batch is the first groups that end, whichever prompt came first.

Chunks of prompts are decoded side by side, a token at a time each, from the weights that they
started from. What has not ended when a batch is full stays in flight for the next one; who may
start, who goes into a batch and what becomes of those that grow too old says
`rpeg.runtime.pools.flight`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rpeg.rundir.ahead import flight_part
from rpeg.runtime import world
from rpeg.runtime.engine.decoding import Completions, Lane, chunks
from rpeg.runtime.engine.embedded import EmbeddedEngine
from rpeg.runtime.engine.sampling import Sampling
from rpeg.runtime.errors import BufferFailure, LayoutFailure
from rpeg.runtime.pools.admission import Bound, Window
from rpeg.runtime.pools.flight import Flight, Group, Overflow, Taken
from rpeg.runtime.publish.received import ReceivedWeights
from rpeg.runtime.recordings import plain
from rpeg.runtime.trajectories import Prompts, Row, Trajectories

if TYPE_CHECKING:
    from rpeg.runtime.run import Run

Prompt = tuple[Row, int]
"""A row, and its ordinal."""
TOO_OLD = "too old"
"""Reason of a drop: every batch with room for the group would be past the window."""


@dataclass(eq=False)
class _Chunk:
    """Groups that are decoded together."""

    lane: Lane
    groups: Mapping[Group[Prompt], int]
    """And each one's number in the lane."""

    def ended(self, group: Group[Prompt]) -> bool:
        """Whether all of a group's samples have ended."""
        return self.lane.ended(self.groups[group])

    def completions(self, group: Group[Prompt]) -> Completions:
        """What a group's samples are by now."""
        return self.lane.completions([self.groups[group]])


class Rollouts:
    """The samples in flight of one engine, whose weights come from another pool.

    A batch has `size` groups, of which this process makes its share. `max_lag`, `bound` and
    `overflow` and `again` are those of `Flight`.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        engine: EmbeddedEngine,
        weights: ReceivedWeights,
        size: int,
        max_lag: int,
        bound: Bound = "strict",
        overflow: Overflow = "wait",
        again: bool = False,
    ) -> None:
        self.run = run
        self.name = name
        self._engine, self._weights = engine, weights
        run.oracle.refuse_order(name)
        _, width = run.data_parallel
        if size % width:
            raise LayoutFailure(
                f"`{name}`: {size} groups do not divide among {width} data-parallel shares: "
                "change the batch's size, or `dp`"
            )
        self._flight = Flight[Prompt](
            Window(max_lag),
            size=size // width,
            steps=run.record.steps,
            bound=bound,
            overflow=overflow,
            again=again,
        )
        self._chunks: list[_Chunk] = []
        self._ended: dict[Group[Prompt], Completions] = {}
        self._saved: list[Prompt] = []
        run.attach(flight_part(name), self)

    def ahead(self, step: int) -> Iterator[int]:
        """Once for each batch of prompts that may start before batch `step` and is not here; each
        is offered before the next. Collective.
        """
        while True:
            lacking = self._flight.lacks(step, self._engine.version)
            if not any(world.gather(lacking)):
                return
            yield step
            if self._flight.lacks(step, self._engine.version) == lacking > 0:
                raise BufferFailure(f"`{self.name}`: nothing was offered for step {step + 1}")

    def offer(self, prompts: Prompts) -> None:
        """This process's share of a batch of prompts, to be sampled from after those before."""
        rows = map(plain.portable_row, prompts.rows)
        self._flight.offer(zip(rows, prompts.ordinals.tolist(), strict=True))

    @torch.inference_mode()
    def generate(
        self,
        *,
        n: int,
        max_tokens: int,
        temperature: float,
        top_p: float = 1.0,
        max_turns: int = 1,
        stop: tuple[str, ...] = (),
        dtype: str = "fp32",
        routing: str = "free",
        seed: int = 0,
    ) -> tuple[Trajectories, Tensor]:
        """As `EmbeddedEngine.generate`: the groups of the step's batch, in the order in which they
        ended. Collective.
        """
        settings = self._engine.sampling(n, max_tokens, temperature, top_p, max_turns, stop, seed)
        step = self.run.step
        with self.run.clock.stage("generate"):
            self._start(step, settings, dtype)
            self._advance(dtype)
            while not self._flight.ready(step):
                self._advance(dtype)
            taken = self._flight.take(step)
            batch = self._batch(taken.groups, settings)
        self._note(taken, n)
        self._keep()
        return batch

    def _start(self, step: int, settings: Sampling, dtype: str) -> None:
        """Starts as many groups as may, from the weights in use."""
        if self._flight.overflow == "resume":
            self._renew(dtype)
        groups = self._flight.admit(step, self._engine.version)
        decoding = self._engine.decoding(settings, dtype)
        ids = [self._engine.encode(group.prompt[0], settings.max_tokens) for group in groups]
        ordinals = torch.tensor([group.prompt[1] for group in groups])
        for chunk in chunks([len(i) for i in ids], settings.n):
            lane = decoding.start(chunk, ids, ordinals)
            self._chunks.append(_Chunk(lane, {groups[k]: k for k in chunk.prompts}))

    def _advance(self, dtype: str) -> None:
        """Samples one token of everything in flight."""
        if self._flight.overflow == "resume" and self._weights.renew():
            self._engine.swap_weights(self._weights)
            self._renew(dtype)
        for chunk in self._chunks:
            chunk.lane.step()
            for group in chunk.groups:
                if group in self._flight.flying and chunk.ended(group):
                    self._flight.end(group)
                    self._ended[group] = chunk.completions(group)
        self._chunks = [chunk for chunk in self._chunks if not chunk.lane.over]

    def _renew(self, dtype: str) -> None:
        """What is in flight goes on under the weights in use."""
        decoder = self._engine.decoder(dtype)
        for chunk in self._chunks:
            if chunk.lane.version != decoder.version:
                chunk.lane.renew(decoder)

    def _batch(
        self, groups: Sequence[Group[Prompt]], settings: Sampling
    ) -> tuple[Trajectories, Tensor]:
        rows, ordinals = zip(*(group.prompt for group in groups), strict=True)
        ids = [self._engine.encode(row, settings.max_tokens) for row in rows]
        found = Completions.joined([self._completions(group) for group in groups])
        prompts = Prompts(rows, torch.tensor(ordinals))
        return self._engine.trajectories(prompts, ids, settings, found)

    def _completions(self, group: Group[Prompt]) -> Completions:
        if group in self._ended:
            return self._ended.pop(group)
        (chunk,) = (chunk for chunk in self._chunks if group in chunk.groups)
        return chunk.completions(group)

    def _note(self, taken: Taken[Prompt], n: int) -> None:
        """Tells what became of groups that grew too old, and lets go of them."""
        counts = {"truncated": taken.truncated, "dropped": taken.dropped, "again": taken.deferred}
        for what, groups in counts.items():
            self.run.log(f"overflow/{self.name}/{what}", len(groups), how="sum")
        ids = [(group.prompt[1], k) for group in taken.dropped for k in range(n)]
        if ids:
            self.run.ledger.note_lost(self.name, TOO_OLD, ids)
        for group in (*taken.dropped, *taken.deferred):
            self._ended.pop(group, None)
        self.run.log(f"flight/{self.name}", len(self._flight.flying), how="sum")

    def _keep(self) -> None:
        """What the next step needs: weights of what is in flight, and for a checkpoint all prompts
        that no batch has taken.
        """
        flying = set(self._flight.flying)
        self._chunks = [chunk for chunk in self._chunks if flying.intersection(chunk.groups)]
        self._weights.keep({chunk.lane.version for chunk in self._chunks})
        shares = dict(world.gather((self.run.data_parallel[0], self._flight.prompts)))
        self._saved = [prompt for share in sorted(shares) for prompt in shares[share]]

    # What a checkpoint keeps.

    def state_dict(self) -> dict[str, Any]:
        """All prompts that no batch has taken: they are sampled again."""
        rows = [plain.row(row) for row, _ in self._saved]
        return {"rows": rows, "ordinals": [ordinal for _, ordinal in self._saved]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes this process's share of them."""
        index, width = self.run.data_parallel
        prompts = zip((Row(*row) for row in state["rows"]), state["ordinals"], strict=True)
        self._flight.offer(sorted(prompts, key=lambda prompt: prompt[1])[index::width])
