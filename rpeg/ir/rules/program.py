"""Rules of programs (L3): names, settings and values of instructions.

`rpeg.ir.rrt` calls them from its verifiers. They hold back everything that could not be written as
a literal or a name, so that making text needs no checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from rpeg.ir.instructions import ANY, PAIRS, RECORDS, TABLES, Instruction
from rpeg.ir.rules import violations
from rpeg.ir.rules.settings import value_violations
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.text.naming import NAME
from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr
from rpeg.ir.vocabulary.records import CLAUSES
from rpeg.ir.vocabulary.records import RECORDS as SURFACE_RECORDS
from rpeg.ir.vocabulary.settings import INT, Range, Setting, python_value

if TYPE_CHECKING:
    from rpeg.ir.rrt import CallOp, ProgramOp

SHA256 = re.compile(r"[0-9a-f]{64}")
RUN = {
    name: Setting(name, INT, required=True, range=Range(least=1)) for name in ("steps", "processes")
}
"""Settings of `start` that are counts."""
RENAMED = {"evaluate": "eval", "evaluate_loss": "eval_loss", "evaluate_pairs": "eval_loss"}
"""Instructions whose name differs from that of their operation of the language."""
FIELDS = {
    "Layout": CLAUSES["par"].settings,
    "MicroBatch": CLAUSES["mb"].settings,
    "AdamW": SURFACE_RECORDS["adamw"].settings,
}
"""What the fields of the runtime's records hold: the same as those of the language's."""

# ---- names


def name_violations(program: ProgramOp) -> Iterator[Violation]:
    """Names that stand outside of string literals: in file names, comments and headers."""
    if not NAME.fullmatch(program.pool.data):
        yield Violation("plain-names", f"a process group has a plain name, not {program.pool}")
    start = program.start
    for setting, form in (("pipeline", NAME), ("source_sha256", SHA256)):
        held = start.settings.get(setting) if start is not None else None
        if held is not None and not (isinstance(held, StringAttr) and form.fullmatch(held.data)):
            what = "a plain name" if form is NAME else "64 hexadecimal digits"
            yield Violation("plain-names", f"start: {setting} is {what}, not {held}")


def pool_violations(program: ProgramOp, start: CallOp) -> Iterator[Violation]:
    """Another number of processes, or other pools, than the program is for."""
    started, count = python_value(start.settings.get("processes")), program.process_count
    table = start.settings.get("pools")
    if table is None:
        if started != count:
            text = f"the program is for {count} processes, its start says {started}"
            yield Violation("process-count", text)
        return
    pools = pools_of(table)
    mine = pools.get(program.pool.data)
    if mine is None or mine[1] - mine[0] != count:
        pool, has = program.pool.data, "none" if mine is None else f"{mine[0]} to {mine[1] - 1}"
        text = f"the program is for {count} processes of `{pool}`, its start has {has}"
        yield Violation("process-count", text, violations.setting("pools"))
    elif max(end for _, end in pools.values()) != started:
        text = f"the pools have other processes than the {started} that start says"
        yield Violation("process-count", text, violations.setting("processes"))
    for setting in ("pool", "home"):
        named = python_value(start.settings.get(setting))
        if named not in pools:
            text = f"start: {setting} is {named}, which is none of {', '.join(pools)}"
            yield Violation("unknown-process-group", text, violations.setting(setting))


def pools_of(table: Attribute) -> dict[str, tuple[int, int]]:
    """(first, past the last) of the processes of each pool of a table, as far as it says so."""
    held = table.settings if isinstance(table, RecordAttr) else {}
    found = {name: python_value(value) for name, value in held.items()}
    pairs = {name: bounds for name, bounds in found.items() if isinstance(bounds, tuple)}
    return {
        name: (bounds[0], bounds[1])
        for name, bounds in pairs.items()
        if len(bounds) == 2 and isinstance(bounds[0], int) and isinstance(bounds[1], int)
    }


# ---- settings


def setting_violations(call: CallOp, row: Instruction) -> Iterator[Violation]:
    """Unknown and missing settings, and values that no literal stands for."""
    titled = ("name",) if "Name" in row.things else ()
    known = {*row.settings, *row.optional, *titled}
    named = {*known, *row.keywords}
    unknown = {*call.settings} - known | (set() if row.free else {*call.named} - named)
    for name in sorted(unknown):
        text = f"{row.name} has no setting `{name}`{hint(name, named)}"
        yield Violation("unknown-setting", text, violations.setting(name))
    missing = [n for n in (*titled, *row.settings) if n not in {*call.settings, *call.named}]
    if missing and not unknown:
        yield Violation("missing-setting", f"{row.name} needs the setting `{missing[0]}`")
    kinds = _kinds(row.name)
    for name, value in call.settings.items():
        if isinstance(value, RecordAttr) and name not in kinds:
            yield from _record_violations(name, value)
        elif not isinstance(value, RecordAttr) and not _is_literal(value):
            text = f"{row.name}: `{name}` can't be {value}: expected a number, a text or a list"
            yield Violation("not-a-literal", text, violations.setting(name))
        elif name in kinds:
            yield from value_violations(kinds[name], value, name)


def _kinds(instruction: str) -> Mapping[str, Setting]:
    """What the settings of an instruction hold, where an operation of the language says so."""
    from rpeg.ir.vocabulary.tables import operations

    if instruction == "start":
        return RUN
    signature = operations().get(RENAMED.get(instruction, instruction))
    return signature.settings if signature is not None else {}


def _is_literal(value: Attribute) -> bool:
    if isinstance(value, ArrayAttr):
        return all(map(_is_literal, value))
    return isinstance(value, StringAttr | IntegerAttr | FloatAttr | SecondsAttr | BytesAttr)


def _record_violations(name: str, record: RecordAttr) -> Iterator[Violation]:
    if record.kind in TABLES:
        yield from _table_violations(name, record)
        return
    known = {**RECORDS, **PAIRS}
    fields = known.get(record.kind)
    if fields is None:
        text = f"`{record.kind}` is no record of the runtime{hint(record.kind, known)}"
        yield Violation("unknown-word", text, violations.setting(name))
        return
    if record.kind in PAIRS and not record.settings:
        yield Violation(
            "missing-setting", f"{record.kind} needs {fields[0]}", violations.setting(name)
        )
    for field, value in record.settings.items():
        if field not in fields:
            text = f"{record.kind} has no setting `{field}`{hint(field, fields)}"
            yield Violation("unknown-setting", text, violations.setting(f"{name}.{field}"))
        elif not _is_literal(value):
            text = f"{record.kind}: `{field}` can't be {value}"
            yield Violation("not-a-literal", text, violations.setting(f"{name}.{field}"))
        elif field in (kinds := FIELDS.get(record.kind, {})):
            yield from value_violations(kinds[field], value, f"{name}.{field}")


def _table_violations(name: str, record: RecordAttr) -> Iterator[Violation]:
    pairs = pools_of(record)
    for key, value in record.settings.items():
        if key not in pairs:
            text = f"{record.kind}: `{key}` is two numbers, not {value}"
            yield Violation("not-a-literal", text, violations.setting(f"{name}.{key}"))


# ---- values


def thing_violations(row: Instruction, found: Sequence[str]) -> Iterator[Violation]:
    """Positional values of other classes or in another number than the instruction takes."""
    wanted = [w for w in row.things if w != "Name"]
    if len(found) < len(wanted) or (len(found) > len(wanted) and not row.more):
        yield Violation("call-operands", f"{row.name} takes {len(wanted)} values, not {len(found)}")
        return
    wanted += [row.more] * (len(found) - len(wanted))
    for number, (have, want) in enumerate(zip(found, wanted, strict=True), 1):
        if ANY not in (want, have) and have not in want.split(" | "):
            either = want.replace(" |", " or a")
            text = f"{row.name} takes a {either} as value {number}, not a {have}"
            yield Violation("call-operands", text)
