"""How operations of a scheduled step become instructions of a program: one function each.

A room registers its functions in the table of `handlers` when it is imported, which is here.
"""

from rpeg.passes.programs import collecting, effects, functions, sampling, updates
from rpeg.passes.programs.handlers import HANDLERS, lower
from rpeg.passes.programs.program import Cannot, NotHere, Program

publish, report, take = updates.publish, effects.report, sampling.take

__all__ = [
    "HANDLERS",
    "Cannot",
    "NotHere",
    "Program",
    "collecting",
    "functions",
    "lower",
    "publish",
    "report",
    "sampling",
    "take",
]
