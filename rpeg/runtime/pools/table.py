"""Which processes of a launch form which pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rpeg.runtime.errors import LayoutFailure

Bounds = Mapping[str, tuple[int, int]]
"""Pool -> (first process, past the last)."""


@dataclass(frozen=True)
class Pools:
    """The pools of a launch, in the order of their processes."""

    ranges: Mapping[str, range]
    mine: str
    """The pool of this process."""
    home: str
    """The pool that trains what is sampled from: it keeps the run's books, its checkpoints too."""

    @staticmethod
    def of(bounds: Bounds, *, mine: str, home: str, processes: int) -> Pools:
        """Raises LayoutFailure unless the pools are ranges that hold each process once."""
        ordered = sorted(bounds.items(), key=lambda item: item[1])
        ranges = {name: range(*ends) for name, ends in ordered}
        covered = [rank for ranks in ranges.values() for rank in ranks]
        if covered != list(range(processes)) or not all(ranges.values()):
            shown = ", ".join(f"{name} {first}..{past - 1}" for name, (first, past) in ordered)
            raise LayoutFailure(
                f"the pools of {processes} processes must hold each of them once: {shown}"
            )
        for name in (mine, home):
            if name not in ranges:
                raise LayoutFailure(f"there is no pool `{name}`, only {', '.join(ranges)}")
        return Pools(ranges, mine=mine, home=home)

    def check(self, rank: int) -> None:
        """Raises LayoutFailure if process `rank` runs the program of another pool."""
        if rank not in self.ranges[self.mine]:
            (pool,) = (name for name, ranks in self.ranges.items() if rank in ranks)
            raise LayoutFailure(
                f"process {rank} belongs to pool `{pool}`, and runs the program of `{self.mine}`: "
                "launch program.py, which starts each process's own"
            )

    @property
    def several(self) -> bool:
        """Whether there are others beside the home pool."""
        return len(self.ranges) > 1

    @property
    def at_home(self) -> bool:
        """Whether this process belongs to the home pool."""
        return self.mine == self.home

    @property
    def away(self) -> list[str]:
        """All pools but the home pool."""
        return [name for name in self.ranges if name != self.home]

    @property
    def names(self) -> list[str]:
        """Each process's pool and number, in order: `trainer 4`."""
        return [f"{pool} {rank}" for pool, ranks in self.ranges.items() for rank in ranks]

    def ranks(self, pool: str) -> range:
        """The processes of a pool, by their numbers in the launch. Raises LayoutFailure if there is
        no such pool.
        """
        if pool not in self.ranges:
            raise LayoutFailure(f"there is no pool `{pool}`, only {', '.join(self.ranges)}")
        return self.ranges[pool]
