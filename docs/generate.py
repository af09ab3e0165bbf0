"""Writes the pages that follow from the code; `--check` compares them instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from generate_levels import levels_page
from generate_passes import pass_pages
from generate_rules import rules_page

from rpeg.frontend.written import value
from rpeg.ir.ops.declare import DECLARE
from rpeg.ir.vocabulary.records import ALLOW, CLAUSES, EXPECT, POOLS, RECORDS, SCHEMES
from rpeg.ir.vocabulary.settings import Setting
from rpeg.ir.vocabulary.signature import Signature
from rpeg.ir.vocabulary.tables import constructors, operations

HERE = Path(__file__).parent

VOCABULARY = """\
# The vocabulary

<!-- Written by docs/generate.py from the definitions of the operations: change those instead. -->

Every right-hand side of a `.rpeg` file is a call `name(things..., setting=value...)`. Things stand
in the order shown, settings in any; a setting without a default and not *optional* must be given.

The **scope** of an operation is the smallest unit on which it is a pure map: a stage may start on a
stream of such units, and not below it. A **stage** costs something, so that a plan gives it a line.
"""


def vocabulary() -> Iterator[str]:
    """The lines of the reference of the language's words."""
    yield VOCABULARY
    yield from _section("Operations of a step", operations())
    for cls in DECLARE:
        yield from _section(f"`{cls.KIND} NAME = ...`", constructors(cls.KIND))
    yield from _section("Values with settings of their own", RECORDS)
    yield from _section("`allow ...`: structural passes that are permitted", ALLOW)
    yield from _section("`expect NAME = ...`: distributions, for planning only", EXPECT)
    yield from _section("`pool NAME = ...`", POOLS)
    yield from _section("`STAGE on POOL, ...`: clauses of a plan's line", CLAUSES)
    yield "## Sources\n"
    yield 'A source is text, `"scheme:rest"`, or a path relative to the file.\n'
    yield "| scheme | is |\n|---|---|"
    yield from (f"| `{scheme}` | {what} |" for scheme, what in SCHEMES.items())


def _section(title: str, table: Mapping[str, Signature]) -> Iterator[str]:
    yield f"## {title}\n"
    for signature in table.values():
        yield from _entry(signature)


def _entry(signature: Signature) -> Iterator[str]:
    region = " { ... }" if signature.region else ""
    yield f"### `{signature.call}{region}`\n"
    doc = " ".join(signature.doc.split())
    yield doc[:1].upper() + doc[1:].rstrip(".") + ".\n"
    lines = [*_facts(signature), *_things(signature)]
    if lines:
        yield "\n".join(f"- {line}" for line in lines) + "\n"
    if signature.settings:
        yield "| setting | takes | default |\n|---|---|---|"
        yield from map(_row, signature.settings.values())
        yield ""


def _facts(signature: Signature) -> Iterator[str]:
    if not signature.scope:
        return
    stage = ", a stage" if signature.placed else ""
    yield f"scope: {signature.scope}{stage}"
    if signature.results:
        yield f"gives: {', '.join(signature.results)}"


def _things(signature: Signature) -> Iterator[str]:
    for operand in signature.operands:
        optional = " (optional)" if operand.optional and not operand.many else ""
        yield f"`{operand.shown}`: {operand.pattern.noun}{optional}"


def _row(setting: Setting) -> str:
    takes = ", ".join(filter(None, (setting.kind.noun.replace("|", "\\|"), str(setting.range))))
    return f"| `{setting.name}` | {takes} | {_default(setting)} |"


def _default(setting: Setting) -> str:
    if setting.default is not None:
        return f"`{value(setting.default, setting.kind)}`"
    return "*required*" if setting.required else "*optional*"


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "vocabulary.md": vocabulary,
    "levels.md": levels_page,
    "rules.md": rules_page,
    **pass_pages(),
}


def main(check: bool) -> int:
    """Writes each page, or says which differ from the code."""
    stale = []
    for name, lines in PAGES.items():
        text = "\n".join(lines()).rstrip() + "\n"
        path = HERE / name
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(f"docs/{name} is not what docs/generate.py writes: run it")
    print("\n".join(stale), end="\n" if stale else "", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
