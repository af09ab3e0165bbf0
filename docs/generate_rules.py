"""The page of the verifier's rules: a table of all, then each with its message, example and fix."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.frontend import load
from rpeg.ir import levels as ir
from rpeg.ir.rules.explain import LEVELS, PAGES, Rule, rules
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.ir.text.parse import parse_module

INTRODUCTION = f"""\
# Rules of the verifier

<!-- Written by docs/generate.py from {"/".join(PAGES.parts[-4:])}: change those instead. -->

What `rpeg check`, `rpeg-opt` and every pass refuse, by code. The same rules hold for `.rpeg` text
and for MLIR, and between passes.

```console
$ rpeg-opt examples/dapo.rpeg --error-codes
$ rpeg-opt --explain uncorrected-lag
$ rpeg-opt --list-rules
```

`rpeg check --json` has the code of each message too. Each example below is a file that breaks its
rule and no other (without its `+` lines), and that file mended (without its `-` lines); the tests
run both. Where the table says *note* or *warning*, the file is told of and still accepted. A rule
about a level holds between passes, and of a file where `rpeg-opt --verify-level` names the level.
"""


def rules_page() -> Iterator[str]:
    """The lines of the page."""
    known = rules()
    yield INTRODUCTION
    for level in LEVELS:
        of_level = [rule for rule in known.values() if rule.level == level]
        yield f"## {level[:1].upper()}{level[1:]}\n"
        yield "| rule | holds | message of its example |\n|---|---|---|"
        yield from map(_row, of_level)
        yield ""
        for rule in of_level:
            yield from _section(rule)


def _row(rule: Rule) -> str:
    first = _messages(rule)[0]
    message, kind = first.message.replace("|", "\\|"), first.severity
    title = rule.title.rstrip(".") + ("" if kind == "error" else f" (*{kind}*)")
    return f"| [`{rule.code}`](#{rule.code}) | {title} | `` {message} `` |"


def _section(rule: Rule) -> Iterator[str]:
    yield f"### {rule.code}\n\n{rule.title}\n\n{rule.body}\n"
    yield f"```text\n{chr(10).join(map(str, _messages(rule)))}\n```\n"
    yield f"```diff\n{rule.diff}```\n"


def _messages(rule: Rule) -> list[Diagnostic]:
    """What is said of the example that breaks a rule."""
    name = f"example.{rule.language}"
    if rule.language == "rpeg":
        return list(load(rule.broken, name).diagnostics)
    module, sources, problems = parse_module(rule.broken, name)
    found = [*problems, *(diagnose(module, sources) if module is not None else ())]
    level = next((name for name in ir.LEVELS if name == rule.at), None)
    if module is not None and level is not None:
        found += [sources.violation(op, v) for op, v in ir.level_violations(module, level)]
    return found
