"""The dialects, loaded when a text first names one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Dialect


def _rpeg() -> Dialect:
    from rpeg.ir.dialect import Rpeg

    return Rpeg


def _rsched() -> Dialect:
    from rpeg.ir.rsched import Rsched

    return Rsched


def _rrt() -> Dialect:
    from rpeg.ir.rrt.program import Rrt

    return Rrt


DIALECTS: Mapping[str, Callable[[], Dialect]] = {"rpeg": _rpeg, "rsched": _rsched, "rrt": _rrt}
"""Name -> what loads the dialect: L0 and L1, L2, L3."""


def context() -> Context:
    """A context that knows builtin and our dialects."""
    made = Context()
    made.load_dialect(Builtin)
    for name, load in DIALECTS.items():
        made.register_dialect(name, load)
    return made
