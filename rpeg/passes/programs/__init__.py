"""How operations of a scheduled step become instructions of a program: one function each.

Each module registers its functions in the table of `handlers` when it is imported, which is done
here.
"""

from rpeg.passes.programs import (
    collecting,
    crossing,
    effects,
    flights,
    functions,
    sampling,
    updates,
)
from rpeg.passes.programs.handlers import HANDLERS, lower
from rpeg.passes.programs.program import Cannot, NotHere, Place, Program

publish, receive = updates.publish, updates.receive
report, lag_bound = effects.report, sampling.lag_bound

__all__ = [
    "HANDLERS",
    "Cannot",
    "NotHere",
    "Place",
    "Program",
    "collecting",
    "crossing",
    "flights",
    "functions",
    "lag_bound",
    "lower",
    "publish",
    "receive",
    "report",
    "sampling",
]
