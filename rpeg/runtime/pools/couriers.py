"""Threads that carry messages between pools while the pools work.

Messages are kept in order. A thread that fails keeps its error for whoever uses it next.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from rpeg.runtime.errors import RuntimeFailure
from rpeg.runtime.pools.admission import Queue
from rpeg.runtime.pools.wire import Wire, pack, unpack

END = "rpeg/end"
"""The last message on every wire."""

GOODBYE = 10.0
"""Seconds that a process which ends at once may take to close its connections."""

Connect = Callable[[], tuple[Wire, list[int]]]
"""Makes the wire, in the thread, and says who is at its other end, in order."""


class Courier(ABC, threading.Thread):
    """A thread with a condition that guards what it shares with the main thread."""

    def __init__(self, name: str, connect: Connect) -> None:
        super().__init__(name=name, daemon=True)
        self._connect = connect
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._ending = False
        self._abandoned = False
        self.start()

    def run(self) -> None:
        """Works until the end; keeps an error for the main thread."""
        try:
            self._work(*self._connect())
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    @abstractmethod
    def _work(self, wire: Wire, others: list[int]) -> None:
        """What the thread does."""

    def _wait(self, ready: Callable[[], bool]) -> None:
        """For the main thread, which holds the condition: waits, and raises the thread's error if
        there is one.
        """
        self._changed.wait_for(lambda: ready() or self._error is not None)
        if self._error is not None:
            raise self._error

    def end(self, *, abandon: bool = False) -> None:
        """Nothing is put or taken from now on. With `abandon` the other side is exiting too, and
        nobody needs what is still on the way.
        """
        with self._changed:
            self._ending, self._abandoned = True, abandon
            self._changed.notify_all()

    def finish(self) -> None:
        """Waits until everything has arrived, after `end`."""
        self.join(GOODBYE if self._abandoned else None)
        if self._error is not None and not self._abandoned:
            raise self._error


class Sender(Courier):
    """Sends messages to several processes; `bound` of them may be on the way."""

    def __init__(self, name: str, connect: Connect, *, bound: int | None = None) -> None:
        self._bound = bound
        self._others: list[int] | None = None
        self._leaving: deque[Mapping[int, Tensor]] = deque()
        super().__init__(name, connect)

    def put(self, value: Any) -> None:
        """Sends a value to everybody, as it is now."""
        packed = pack(value)
        self.put_each({other: packed for other in self.others()})

    def put_each(self, packed: Mapping[int, Tensor]) -> None:
        """Sends a packed message to each process; waits while too many are on the way."""
        with self._changed:
            self._wait(lambda: self._bound is None or len(self._leaving) < self._bound)
            self._leaving.append(packed)
            self._changed.notify_all()

    def others(self) -> list[int]:
        """Who is at the other end; waits until they are connected."""
        with self._changed:
            self._wait(lambda: self._others is not None)
            assert self._others is not None
            return self._others

    def _work(self, wire: Wire, others: list[int]) -> None:
        with self._changed:
            self._others = others
            self._changed.notify_all()
        while (message := self._next()) is not None:
            for other, packed in message.items():
                wire.send_bytes(packed, other)
            with self._changed:
                self._leaving.popleft()
                self._changed.notify_all()
        for other in others if not self._abandoned else ():
            wire.send_bytes(pack(END), other)

    def _next(self) -> Mapping[int, Tensor] | None:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._leaving) or self._ending)
            return self._leaving[0] if self._leaving and not self._abandoned else None


class Receiver(Courier):
    """Receives messages in rounds, one from each of several processes. At most `capacity` rounds
    wait to be taken, the one that is on its way included.
    """

    def __init__(self, name: str, connect: Connect, *, capacity: int = sys.maxsize) -> None:
        self._arrived = Queue[list[Any]](capacity)
        self._taken = 0
        self._came = 0
        self._waiting = False
        self._over = False
        super().__init__(name, connect)

    @property
    def here(self) -> int:
        """How many rounds of messages have arrived and were not taken."""
        with self._changed:
            return len(self._arrived)

    def take(self) -> list[Any]:
        """The next message of each process, in order; waits while there is none.

        Raises RuntimeFailure if none will come.
        """
        with self._changed:
            self._waiting = self._arrived.empty
            self._changed.notify_all()
            self._wait(lambda: not self._arrived.empty or self._over)
            if self._arrived.empty:
                raise RuntimeFailure(f"{self.name}: the other pool's program has ended before")
            self._taken += 1
            self._changed.notify_all()
            return self._arrived.take(self._taken - 1)

    def _work(self, wire: Wire, others: list[int]) -> None:
        while others:
            with self._changed:
                self._changed.wait_for(self._has_room)
            messages = [unpack(wire.receive_bytes(other)) for other in others]
            if any(isinstance(message, str) and message == END for message in messages):
                break
            self.arrived(messages)
        self.ended()

    def arrived(self, messages: list[Any]) -> None:
        """Keeps one round of messages, unless nobody will take them. Called in the thread."""
        with self._changed:
            if not self._ending:
                self._arrived.put(self._came, messages)
                self._came += 1
                self._waiting = False
                self._changed.notify_all()

    def ended(self) -> None:
        """Nothing more will come. Called in the thread."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _has_room(self) -> bool:
        ahead = len(self._arrived) < self._arrived.capacity - 1
        return ahead or self._waiting or self._ending
