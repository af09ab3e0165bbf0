"""`rpeg check`: parse, verify, and on a cluster prove order, staleness and memory."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rpeg.frontend import Loaded
from rpeg.frontend.overrides import dump_params
from rpeg.ir.text.diagnostics import Diagnostic, has_errors, show
from rpeg.passes.base import pipelines
from rpeg.tools.checking.compiles import refusals
from rpeg.tools.compiling import Checked as Whole
from rpeg.tools.compiling import load_with, widened, windows_kept
from rpeg.tools.console import FAILED, OK, Failure, Source, language_only, read, tell
from rpeg.tools.cores import core_problems
from rpeg.tools.messages import record, records, unrepeated
from rpeg.tools.predicting.arguments import Target, target, target_arguments
from rpeg.tools.sources import length_problems, source_problems

if TYPE_CHECKING:
    from rpeg.tools.checking.findings import Findings

HELP = "check files: all problems, each with its place; and whether a plan works on a cluster"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE[:PIPELINE]",
        help=".rpeg text, and which of its pipelines",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    parser.add_argument("--params", action="store_true", help="print the value of every param")
    target_arguments(parser)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the messages as JSON; with a cluster, an object of messages and findings",
    )


def run(options: argparse.Namespace) -> int:
    """Checks each file, and reports on all of them."""
    where = target(options)
    there = where if where.cluster or where.plan else None
    checked = [_checked(name, where, there) for name in options.files]
    if options.json:
        print(json.dumps(_as_json(checked, there is not None), indent=2))
    else:
        for one in checked:
            _tell(one, options.params)
    return max(one.code for one in checked)


@dataclass(frozen=True)
class Unchecked:
    """A file that can't be read, or can't be there where it is to run."""

    name: str
    failure: Failure

    @property
    def code(self) -> int:
        """The exit code that it deserves."""
        return self.failure.code


@dataclass(frozen=True)
class Checked:
    """A file, and what was found in it."""

    source: Source
    loaded: Loaded
    diagnostics: Sequence[Diagnostic]
    findings: Sequence[Findings] = ()
    """Of each pipeline, where a cluster or a plan is named."""
    refused: frozenset[str] = frozenset()
    """The pipelines that do not compile, wherever they run."""

    @property
    def code(self) -> int:
        """The exit code that it deserves."""
        return FAILED if has_errors(self.diagnostics) else OK


def _checked(name: str, where: Target, there: Target | None) -> Checked | Unchecked:
    """One file; its errors must not hide those of others."""
    try:
        source = read(name)
        language_only(source, "rpeg check")
        return _examine(source, where, there)
    except Failure as failure:
        return Unchecked(name, failure)


def _examine(source: Source, where: Target, there: Target | None) -> Checked:
    loaded = load_with(where.sets, source)
    messages = [*loaded.diagnostics, *_of_sources(loaded, source)]
    if has_errors(messages) or loaded.module is None:
        return Checked(source, loaded, messages)
    findings: list[Findings] = []
    refused: set[str] = set()
    for pipeline in pipelines(loaded.module):
        alone = replace(source, pipeline=pipeline.title)
        whole, plans = _alone(alone, where.sets), None
        messages += windows_kept(whole.module, alone, where.ahead)
        if too_far := widened(whole.module, whole.sources, alone, where.ahead):
            messages += too_far
            continue
        if there is not None:
            found, problems = _examined(alone, there)
            messages = [*unrepeated(messages, problems), *problems]
            findings += [found] if found is not None else []
            plans = [found.plan] if found is not None else []
        notes, anywhere = refusals(whole, alone, plans)
        messages += [n for n in notes if not _said(n, messages)]  # as an error already
        refused |= {pipeline.title} if anywhere else set()
    return Checked(source, loaded, messages, findings, frozenset(refused))


def _alone(source: Source, overrides: Sequence[str]) -> Whole:
    """One pipeline of a file without errors, by itself."""
    loaded = load_with(overrides, source)
    assert loaded.module is not None
    return Whole(loaded.module, next(pipelines(loaded.module)), loaded.sources)


def _said(note: Diagnostic, messages: Sequence[Diagnostic]) -> bool:
    """Whether what a note says at its place is an error there."""
    return any(
        m.severity == "error" and m.at == note.at and note.message.endswith(m.message)
        for m in messages
    )


def _examined(source: Source, there: Target) -> tuple[Findings | None, Sequence[Diagnostic]]:
    """One pipeline of a file without errors, by itself: passes rewrite its module."""
    from rpeg.tools.checking.findings import examine

    alone = load_with(there.sets, source)
    assert alone.module is not None
    return examine(alone.module, alone.sources, source, there)


def _tell(checked: Checked | Unchecked, params: bool) -> None:
    if isinstance(checked, Unchecked):
        tell(checked.failure)
        return
    source, loaded = checked.source, checked.loaded
    show(checked.diagnostics, {source.name: source.text}, sys.stderr)
    if has_errors(checked.diagnostics):
        notes = dict.fromkeys(note for found in checked.findings for note in found.notes)
        print("".join(f"note: {note}\n" for note in notes), end="", file=sys.stderr)
        return
    assert loaded.module is not None and loaded.file is not None
    if params:
        for node in loaded.file.pipelines:
            print(f"# {node.name}")
            print(dump_params(node), end="")
        return
    lines = {found.pipeline: found.lines() for found in checked.findings}
    for pipeline in pipelines(loaded.module):
        count = sum(1 for op in pipeline.walk() if op.name.startswith("rpeg.")) - 1
        but = "; rpeg compile refuses it" if pipeline.title in checked.refused else ""
        print(f"{source.path}:{pipeline.title}: no errors ({count} operations){but}")
        print("".join(f"  {line}\n" for line in lines.get(pipeline.title, ())), end="")


def _of_sources(loaded: Loaded, source: Source) -> Iterator[Diagnostic]:
    """Problems with the sources on this machine; files that are missing here are warnings."""
    for pipeline in pipelines(loaded.module) if loaded.module is not None else ():
        yield from source_problems(
            pipeline, loaded.sources, source, allow_python=True, needs_files=False
        )
        yield from length_problems(pipeline, loaded.sources, source)
        yield from core_problems(pipeline, loaded.sources, source.name)


def _as_json(checked: Sequence[Checked | Unchecked], there: bool) -> object:
    messages = [message for one in checked for message in _messages(one)]
    whole = (one for one in checked if isinstance(one, Checked))
    findings = [found.to_json() for one in whole for found in one.findings]
    return {"messages": messages, "findings": findings} if there else messages


def _messages(checked: Checked | Unchecked) -> list[dict[str, Any]]:
    if isinstance(checked, Unchecked):
        return records(checked.failure, checked.name)
    return [record(diagnostic) for diagnostic in checked.diagnostics]
