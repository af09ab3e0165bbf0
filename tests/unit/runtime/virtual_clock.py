"""Two loops under a clock of their own: a generator and a trainer with random times, and the logic
of `rpeg.runtime.pools.admission` between them. Nothing runs at once, and no time passes.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from rpeg.runtime.pools.admission import (
    Ahead,
    Bound,
    Certificate,
    Choice,
    Queue,
    Versions,
    Window,
)
from rpeg.runtime.pools.flight import Flight, Group, Overflow, Taken

Batch = tuple[int, list[int]]
"""Its index, and the versions of its spans in order."""
Process = Iterator["float | Callable[[], bool]"]
"""Yields how long it takes, or what it waits for."""


class Deadlock(Exception):
    """Everyone waits, and nothing is under way that could end it."""


class Clock:
    """Runs processes until all of them end."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._asleep: list[tuple[float, int, Process]] = []
        self._waiting: list[tuple[Callable[[], bool], Process]] = []

    def start(self, process: Process) -> None:
        """Lets a process run up to where it takes time or waits."""
        wanted = next(process, None)
        if isinstance(wanted, float):
            heapq.heappush(self._asleep, (self.now + wanted, next(self._order), process))
        elif wanted is not None:
            self._waiting.append((wanted, process))

    def run(self) -> None:
        """Raises Deadlock."""
        while self._asleep or self._waiting:
            ready = next((w for w in self._waiting if w[0]()), None)
            if ready is not None:
                self._waiting.remove(ready)
                self.start(ready[1])
            elif self._asleep:
                self.now, _, process = heapq.heappop(self._asleep)
                self.start(process)
            else:
                raise Deadlock(f"{len(self._waiting)} processes wait")


@dataclass(frozen=True)
class Setting:
    """One run: its bound, and how long everything takes."""

    seed: int
    staleness: int
    capacity: int
    choice: Choice
    steps: int
    first: int = 0
    """The step that a resumed run starts at."""
    spread: float = 1.0
    """Of the logarithm of every time."""
    resumed: bool = False
    """Whether the engine takes new weights within a batch."""

    def seconds(self, what: str, step: int) -> float:
        """How long something takes: the same in every run of this seed, whatever its bound."""
        return random.Random(f"{self.seed}/{what}/{step}").lognormvariate(0.0, self.spread)


@dataclass
class Ran:
    """What happened, for laws that do not trust the logic."""

    written: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Batch -> the versions of its spans, in order."""
    there: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Batch -> the versions that had arrived as it started."""
    trained: list[int] = field(default_factory=list[int])
    """The batches of the updates, in order."""
    longest: int = 0
    """The most batches that ever waited."""
    seconds: float = 0.0
    tokens: Counter[int] = field(default_factory=Counter[int])
    """What the certificate counted."""


@dataclass
class Parts:
    """The logic under test; tests put broken parts in."""

    versions: Callable[[Window, Choice], Versions[None]] = Versions
    queue: Callable[[int, int], Queue[Batch]] = Queue
    window: Callable[[int, int], Window] = Window
    """What admission goes by; the certificate always has the true one."""
    ahead: Callable[[Window, int], Ahead] = Ahead


class TwoPools:
    """A generator and a trainer of their own processes."""

    def __init__(self, setting: Setting, parts: Parts) -> None:
        self.setting, self.ran, self.clock = setting, Ran(), Clock()
        self.versions = parts.versions(
            parts.window(setting.staleness, setting.first), setting.choice
        )
        self.queue = parts.queue(setting.capacity, setting.first)
        self.certificate = Certificate(Window(setting.staleness, setting.first))
        self.pushing = False
        self.came: list[int] = []

    def run(self) -> Ran:
        """Both loops to their end."""
        self.clock.start(self._trainer())
        self.clock.start(self._generator())
        self.clock.run()
        self.ran.seconds, self.ran.tokens = self.clock.now, self.certificate.tokens
        return self.ran

    def _generator(self) -> Process:
        for i in range(self.setting.first, self.setting.steps):
            yield lambda i=i: self.versions.ready(i)  # type: ignore[misc]
            self.ran.there[i] = list(self.came)
            spans = [self.versions.take(i)[0]]
            for part in range(3):
                yield self.setting.seconds(f"span {part}", i)
                if self.setting.resumed and self.versions.ready(i):
                    spans.append(self.versions.take(i)[0])
            self.ran.written[i] = spans
            yield lambda: not self.queue.full
            self.queue.put(i, (i, spans))
            self.ran.longest = max(self.ran.longest, len(self.queue))

    def _trainer(self) -> Process:
        yield from self._publish(self.setting.first)
        for i in range(self.setting.first, self.setting.steps):
            yield lambda: not self.queue.empty
            batch, spans = self.queue.take(i)
            self.certificate.consume(i, Counter(i - version for version in spans))
            self.ran.trained.append(batch)
            yield self.setting.seconds("update", i)
            yield from self._publish(i + 1)

    def _publish(self, version: int) -> Process:
        """Goes on at once, but for a push that is still under way."""
        yield lambda: not self.pushing
        self.pushing = True
        self.clock.start(self._push(version))

    def _push(self, version: int) -> Process:
        yield self.setting.seconds("push", version)
        self.versions.arrive(version, None)
        self.came.append(version)
        self.pushing = False


def one_pool(setting: Setting, parts: Parts) -> Ran:
    """One loop that generates and trains in turn, working ahead."""
    ran, certificate = Ran(), Certificate(Window(setting.staleness))
    queue = parts.queue(setting.staleness + 1, 0)
    ahead = parts.ahead(parts.window(setting.staleness, 0), setting.steps)
    for i in range(setting.steps):
        for batch in ahead.due(i):
            ran.written[batch] = [i]
            queue.put(batch, (batch, [i]))
            ran.longest = max(ran.longest, len(queue))
        batch, spans = queue.take(i)
        certificate.consume(i, Counter(i - version for version in spans))
        ran.trained.append(batch)
    ran.tokens = certificate.tokens
    return ran


@dataclass(frozen=True)
class Policy:
    """What a step says of its window, in completion order."""

    size: int
    bound: Bound = "strict"
    overflow: Overflow = "wait"
    again: bool = False


@dataclass
class Flown:
    """What became of prompts, by their numbers."""

    batches: list[list[tuple[int, int]]] = field(default_factory=list[list[tuple[int, int]]])
    """(prompt, version that it started from) of each batch, in its order."""
    ended: list[int] = field(default_factory=list[int])
    """Prompts in the order in which their samples ended."""
    truncated: list[int] = field(default_factory=list[int])
    dropped: list[int] = field(default_factory=list[int])
    deferred: list[int] = field(default_factory=list[int])
    drawn: int = 0
    most: int = 0
    """The most groups that were ever under way or ended and not in a batch."""


class InCompletionOrder(TwoPools):
    """The same two loops, with a generator whose groups end one by one, the long ones late."""

    def __init__(
        self,
        setting: Setting,
        policy: Policy,
        flight: Callable[..., Flight[int]] = Flight,
    ) -> None:
        super().__init__(setting, Parts())
        window = Window(setting.staleness, setting.first)
        self.flown, self.policy = Flown(), policy
        self.certificate = Certificate(window, policy.bound)
        self.flight = flight(
            window,
            size=policy.size,
            steps=setting.steps,
            bound=policy.bound,
            overflow=policy.overflow,
            again=policy.again,
        )
        self.left: dict[Group[int], int] = {}

    def _generator(self) -> Process:
        for i in range(self.setting.first, self.setting.steps):
            yield lambda i=i: self.versions.ready(i)  # type: ignore[misc]
            self._admit(i, self.versions.take(i)[0])
            while not self.flight.ready(i):
                tokens = min(self.left[group] for group in self.flight.flying)
                yield self.setting.seconds("token", i) / 20 * tokens
                self._sampled(tokens)
            batch = self._taken(self.flight.take(i))
            yield lambda: not self.queue.full
            self.queue.put(i, (i, batch))

    def _admit(self, step: int, version: int) -> None:
        while self.flight.lacks(step, version):
            self.flight.offer(range(self.flown.drawn, self.flown.drawn + self.policy.size))
            self.flown.drawn += self.policy.size
        for group in self.flight.admit(step, version):
            draw = random.Random(f"{self.setting.seed}/length/{group.prompt}/{version}")
            self.left[group] = int(min(1e4, draw.paretovariate(0.3)))
        self.flown.most = max(self.flown.most, len(self.flight.prompts))

    def _sampled(self, tokens: int) -> None:
        for group in list(self.flight.flying):
            self.left[group] -= tokens
            if not self.left[group]:
                self.flight.end(group)
                self.flown.ended.append(group.prompt)

    def _taken(self, taken: Taken[int]) -> list[int]:
        self.flown.batches.append([(group.prompt, group.version) for group in taken.groups])
        self.flown.truncated += [group.prompt for group in taken.truncated]
        self.flown.dropped += [group.prompt for group in taken.dropped]
        self.flown.deferred += [group.prompt for group in taken.deferred]
        resumed = self.policy.overflow == "resume"  # what is too old of it trains nothing
        oldest = self.flight.window.oldest(len(self.flown.batches) - 1 + self.setting.first)
        return [max(g.version, oldest) if resumed else g.version for g in taken.groups]
