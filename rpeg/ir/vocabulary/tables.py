"""The vocabulary of the language, derived from the operations, for front end, docs and tools."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from rpeg.ir.base import RpegOp
from rpeg.ir.dialect import OPERATIONS
from rpeg.ir.ops.declare import DECLARE, DeclareOp
from rpeg.ir.vocabulary.records import ALLOW, CLAUSES, EXPECT, POOLS, RECORDS, SCHEMES
from rpeg.ir.vocabulary.signature import Signature

__all__ = [
    "ALLOW",
    "CLAUSES",
    "EXPECT",
    "POOLS",
    "RECORDS",
    "SCHEMES",
    "constructors",
    "declaration_class",
    "operation_class",
    "operations",
]


@cache
def operations() -> Mapping[str, Signature]:
    """The signature of every operation that a step may use, by name."""
    return {op.SURFACE: op.signature() for op in _surface()}


@cache
def operation_class(name: str) -> type[RpegOp]:
    """The class of an operation of the surface."""
    return next(op for op in _surface() if name == op.SURFACE)


def _surface() -> list[type[RpegOp]]:
    return [op for op in OPERATIONS if issubclass(op, RpegOp) and op.SURFACE]


@cache
def constructors(kind: str) -> Mapping[str, Signature]:
    """The signatures of what a declaration of this kind may be: policy, value, ... of `model`."""
    return declaration_class(kind).signatures()


@cache
def declaration_class(kind: str) -> type[DeclareOp]:
    """The class of a kind of declaration."""
    return next(op for op in DECLARE if kind == op.KIND)
