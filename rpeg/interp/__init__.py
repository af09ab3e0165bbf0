"""The reference interpreter of L0: one process, plain PyTorch, real tiny models.

Its numbers are the meaning of a pipeline: every layout, engine, rewrite and recovery is held to
them by record and replay (`rpeg.interp.parity`). It takes the losses, the advantages and the order
of data from the runtime, and nothing of how the runtime trains or generates.
"""

from rpeg.interp.errors import InterpreterError
from rpeg.interp.greedy import Greedy
from rpeg.interp.machine import Interpreter
from rpeg.interp.oracle import Replay, Sampling, TeacherForced
from rpeg.interp.parity import EXACT, Gap, Head, Parity, compare, gaps
from rpeg.interp.values import Place
from rpeg.interp.versions import Oldest, Recorded, Window
from rpeg.interp.world import World

__all__ = [
    "EXACT",
    "Gap",
    "Greedy",
    "Head",
    "Interpreter",
    "InterpreterError",
    "Oldest",
    "Parity",
    "Place",
    "Recorded",
    "Replay",
    "Sampling",
    "TeacherForced",
    "Window",
    "World",
    "compare",
    "gaps",
]
