"""One page a pass, from its docstring and its options, and a page that lists them."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator

from rpeg.passes import PASSES
from rpeg.passes.base import RpegPass

WRITTEN = "<!-- Written by docs/generate.py from the pass: change its docstring instead. -->\n"
KINDS = {
    "X": "execution only: the same numbers come out",
    "S": "structural: what is trained may differ, so it needs an `allow` line",
    "XS": "execution only where it says so, structural elsewhere",
}
Lines = Iterator[str]


def pass_pages() -> dict[str, Callable[[], Lines]]:
    """File name -> what makes its lines."""
    pages: dict[str, Callable[[], Lines]] = {"passes/README.md": _overview}
    for name in PASSES:
        pages[f"passes/{name}.md"] = lambda name=name: _page(name)  # type: ignore[misc]
    return pages


def _overview() -> Lines:
    yield "# Passes\n"
    yield WRITTEN
    yield (
        "What the compiler does to the graph, a page for each pass: what it is for, and its text "
        "before and\nafter. In the order in which `rpeg compile` runs them; `rpeg-opt -p` takes "
        "any.\n"
    )
    yield "| pass | kind | does |\n|---|---|---|"
    for name in PASSES:
        cls = _load(name)
        yield f"| [`{name}`]({name}.md) | {cls.KIND} | {_title(cls)} |"
    yield ""
    yield from (f"- **{kind}**: {meaning}." for kind, meaning in KINDS.items())


def _page(name: str) -> Lines:
    cls = _load(name)
    yield f"# `{name}`\n"
    yield WRITTEN
    yield f"**{_title(cls)[:1].upper()}{_title(cls)[1:]}.**\n"
    yield from _body(inspect.getdoc(cls) or "")
    allow = f" (`allow {cls.ALLOW}(...)`)" if cls.ALLOW else ""
    yield f"**Kind**: {cls.KIND}, {KINDS[cls.KIND]}{allow}.\n"
    yield from _legality(cls)
    yield from _options(name, cls)
    yield from _statistics(cls)


def _legality(cls: type[RpegPass]) -> Lines:
    if cls.LEGALITY:
        yield "**Legality**: it rewrites where all of this holds.\n"
        yield "| condition | means |\n|---|---|"
        yield from (f"| {c.name} | {c.sentence} |" for c in cls.LEGALITY)
        yield ""


def _statistics(cls: type[RpegPass]) -> Lines:
    if cls.STATISTICS:
        yield "**Statistics**:\n"
        yield "| counts | of |\n|---|---|"
        yield from (f"| {what} | {meaning} |" for what, meaning in cls.STATISTICS.items())
        yield ""


def _options(name: str, cls: type[RpegPass]) -> Lines:
    options = [f for f in dataclasses.fields(cls) if f.init and f.name != "name"]
    if options:
        docs = _field_docs(cls)
        yield f"**Options**, as `{name}{{NAME=VALUE ...}}`:\n"
        yield "| option | default | is |\n|---|---|---|"
        for option in options:
            default = "*none*" if option.default in (None, ()) else f"`{option.default}`"
            yield f"| `{option.name}` | {default} | {docs[option.name]} |"
        yield ""


def _load(name: str) -> type[RpegPass]:
    cls = PASSES[name]()
    assert issubclass(cls, RpegPass)
    return cls


def _title(cls: type[RpegPass]) -> str:
    """The first line of the pass's module, behind its name."""
    first = (inspect.getdoc(sys.modules[cls.__module__]) or "").splitlines()[0]
    return first.partition(": ")[2].rstrip(".")


def _body(doc: str) -> Lines:
    """Paragraphs as they are, `Before:` and `After:` as blocks of IR."""
    for part in re.split(r"^(?=Before:|After:)", doc, flags=re.M):
        heading, _, rest = part.partition("\n")
        if heading in ("Before:", "After:"):
            yield f"{heading.rstrip(':')}\n\n```mlir\n{textwrap.dedent(rest).strip()}\n```\n"
        elif part.strip():
            yield f"{part.strip()}\n"


def _field_docs(cls: type[RpegPass]) -> dict[str, str]:
    """The text below each field of a class."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in zip(tree.body, tree.body[1:], strict=False):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(inspect.cleandoc(str(below.value.value)).split())
    return found
