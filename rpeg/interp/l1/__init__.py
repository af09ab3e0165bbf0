"""The reference interpreter of L1: the same operations, as placed stages execute them.

Each stage runs on the shares of its ranks, in micro-batches and chunks; weights are held as shards
and move by transfers of boxes; process groups run side by side, and wait for each other's values.
It is a layer over L0: the handlers of `rpeg.interp.handlers` compute, on parts of the rows.
"""

from rpeg.interp.l1.machine import PlacedInterpreter
from rpeg.interp.l1.timing import InOrder, Shuffled, Timing

__all__ = ["InOrder", "PlacedInterpreter", "Shuffled", "Timing"]
