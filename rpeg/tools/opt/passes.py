"""`--passes`: a pipeline such as `rpeg-a{x=1 y=2},rpeg-b`, its passes, and how each runs."""

from __future__ import annotations

import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import get_args, get_origin, get_type_hints

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.arg_spec import ArgSpec, parse_pipeline
from xdsl.utils.exceptions import ArgSpecParseError, DiagnosticException

from rpeg.ir.levels import LevelName, level_violations
from rpeg.ir.rules.verify import diagnose
from rpeg.ir.rules.violations import hint
from rpeg.ir.text.diagnostics import Diagnostic, DiagnosticsError
from rpeg.ir.text.sources import Sources
from rpeg.passes import PASSES
from rpeg.passes.base import PassRefused, RpegPass
from rpeg.tools.console import USAGE, Failure

_TYPES: Mapping[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
}
PassLoader = Callable[[], type[ModulePass]]


def parse_passes(text: str) -> list[ModulePass]:
    """The passes of a pipeline. Raises Failure, with what to write instead."""
    try:
        specs = list(parse_pipeline(text))
    except ArgSpecParseError as error:
        _, _, place = str(error).partition("\n")  # the line above names no place
        raise Failure(f"-p {text}: {place}".rstrip(), USAGE) from None
    return [_pass(spec) for spec in specs]


def apply(step: ModulePass, ctx: Context, module: ModuleOp, sources: Sources) -> None:
    """Runs one pass. Raises DiagnosticsError where it refuses; its crashes are its own."""
    try:
        step.apply(ctx, module)
    except PassRefused as refusal:
        found = (
            (sources.message(p.op, f"{step.name}: {p.message}", p.anchor), p.rule)
            for p in refusal.problems
        )
        raise DiagnosticsError(dataclasses.replace(d, rule=rule) for d, rule in found) from None
    except DiagnosticException as error:
        raise DiagnosticsError([sources.message(module, f"{step.name}: {error}")]) from None


def remarks(step: ModulePass, sources: Sources) -> list[Diagnostic]:
    """Why a pass of ours, in the run before, left places alone: notes, each at its place."""
    missed = step.missed if isinstance(step, RpegPass) else []
    return [
        sources.message(op, f"{step.name} does not apply: {text}", severity="note")
        for op, text in missed
    ]


def verify_after(who: str, module: ModuleOp, sources: Sources) -> None:
    """Verifies what a pass made. Raises DiagnosticsError: what it broke, each at its place."""
    broken = [d for d in diagnose(module, sources) if d.severity == "error"]
    if broken:
        text = f"after {who}: "
        raise DiagnosticsError(dataclasses.replace(d, message=text + d.message) for d in broken)


def verify_level(module: ModuleOp, level: LevelName, sources: Sources) -> None:
    """Raises DiagnosticsError with everything that is not legal at a level, each at its place."""
    broken = [sources.violation(op, found) for op, found in level_violations(module, level)]
    if broken:
        raise DiagnosticsError(broken)


def listing() -> str:
    """Each pass of ours, with its kind, options and the first paragraph of its documentation; then
    the names of the others, which are loaded only when they run.
    """
    ours = "".join(f"{_entry(load())}\n" for load in PASSES.values())
    others = ", ".join(sorted(_installed().keys() - PASSES.keys()))
    wrapped = textwrap.fill(others, 98, initial_indent="  ", subsequent_indent="  ")
    return f"{ours}\npasses of xDSL and of plug-ins:\n{wrapped}\n"


def _pass(spec: ArgSpec) -> ModulePass:
    cls = _loader(spec.name)()
    options = _options(cls)
    for option in spec.normalize_parameter_names().parameters:
        if option not in options:
            known = hint(option, options) or f"; it has: {', '.join(options) or 'none'}"
            raise Failure(f"{spec.name} has no option `{option}`{known}", USAGE)
    try:
        return cls.from_spec(spec)
    except ValueError as error:
        wrong = next(_misfits(cls, spec), _plain(str(error)))
        raise Failure(f"{spec}: {wrong}", USAGE) from None


def _loader(name: str) -> PassLoader:
    if name in PASSES:
        return PASSES[name]
    found = _installed().get(name)
    if found is None:
        near = hint(name, PASSES) or f"; known: {', '.join(PASSES)}"
        raise Failure(f"`{name}` is not a pass{near}", USAGE)
    return found


def _installed() -> dict[str, PassLoader]:
    """Passes of xDSL and of plug-ins."""
    from xdsl.universe import Universe

    return Universe.get_multiverse().all_passes


def _options(cls: type[ModulePass]) -> Sequence[str]:
    return [f.name for f in dataclasses.fields(cls) if f.init and f.name != "name"]


def _misfits(cls: type[ModulePass], spec: ArgSpec) -> Iterator[str]:
    """Options whose values are of another type than they take."""
    held = get_type_hints(cls)
    for option, values in spec.normalize_parameter_names().parameters.items():
        wanted = held[option]
        plain = [t for t in (wanted, *get_args(wanted)) if t in _TYPES]
        one = get_origin(wanted) is not tuple
        fits = all(isinstance(value, tuple(plain)) for value in values)
        if plain and not (fits and (len(values) == 1 or not one)):
            shown = ", ".join(map(str, values))
            yield f"`{option}` takes {' or '.join(_TYPES[t] for t in plain)}, not {shown}"


def _plain(message: str) -> str:
    return message[:1].lower() + message[1:]


def _entry(cls: type[ModulePass]) -> str:
    options = " ".join(_shown(cls))
    call = f"{cls.name}{{{options}}}" if options else cls.name
    kind = f"  [{cls.KIND}]" if issubclass(cls, RpegPass) else ""
    return f"{call}{kind}\n{_summary(cls)}"


def _shown(cls: type[ModulePass]) -> Iterator[str]:
    """Options with their defaults; in brackets those that may be left out and have none."""
    for field in dataclasses.fields(cls):
        if field.init and field.name != "name":
            yield _option(field.name, field.default)


def _option(name: str, default: object) -> str:
    if default is dataclasses.MISSING:
        return name
    if default is None or default == ():
        return f"[{name}]"
    return f"{name}={str(default).lower() if isinstance(default, bool) else default}"


def _summary(cls: type[ModulePass]) -> str:
    paragraph = (inspect.getdoc(cls) or "").partition("\n\n")[0]
    return textwrap.indent(paragraph, "    ")
