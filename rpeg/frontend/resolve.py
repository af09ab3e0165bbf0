"""A pipeline with its params resolved: every `$name` replaced by the literal it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from rpeg.frontend import ast

T = TypeVar("T")


def resolved(pipeline: ast.Pipeline) -> ast.Pipeline:
    """The pipeline without params."""
    literals = {f"${p.name}": p.value for p in pipeline.params}
    kept = tuple(d for d in pipeline.declarations if not isinstance(d, ast.Param))
    return _with(replace(pipeline, declarations=kept), literals)


def identity(file: ast.File) -> ast.File:
    """What identifies a run: what is computed, with params resolved. The step count may grow, and
    plans and expectations may change, since they only say where and how long it runs.
    """
    return replace(file, pipelines=tuple(_computed(resolved(p)) for p in file.pipelines))


def _computed(pipeline: ast.Pipeline) -> ast.Pipeline:
    step = replace(pipeline.step, count=ast.Literal("int", "1"))
    return replace(pipeline, step=step, expects=(), plans=())


def _with(node: T, literals: Mapping[str, ast.Literal]) -> T:
    """A node, or a tuple of nodes, with the params inside replaced."""
    if isinstance(node, ast.Literal):
        return cast(T, literals.get(node.text, node) if node.kind == "param" else node)
    if isinstance(node, tuple):
        return cast(T, tuple(_with(item, literals) for item in node))
    if not isinstance(node, ast.Node) or not is_dataclass(node):
        return node
    values = {f.name: _with(getattr(node, f.name), literals) for f in fields(node)}
    return cast(T, replace(node, **values))
