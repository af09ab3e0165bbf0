"""Rules of one instruction (L3): its settings and its values.

They hold back everything that could not be written as a literal, so that making text needs no
checks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, StringAttr
from xdsl.ir import Attribute

from rpeg.ir.rrt.instructions import ANY, RECORDS, TABLES, Instruction, pools_of
from rpeg.ir.rules import violations
from rpeg.ir.rules.settings import value_violations
from rpeg.ir.rules.violations import Violation, hint
from rpeg.ir.types.attributes import BytesAttr, RecordAttr, SecondsAttr
from rpeg.ir.vocabulary.records import CLAUSES
from rpeg.ir.vocabulary.records import RECORDS as SURFACE_RECORDS
from rpeg.ir.vocabulary.settings import INT, Range, Setting
from rpeg.ir.vocabulary.tables import operations

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

# ---- settings


def argument_violations(
    row: Instruction, settings: Mapping[str, Attribute], named: Collection[str]
) -> Iterator[Violation]:
    """Unknown and missing settings, and values that no literal stands for."""
    titled = ("name",) if "Name" in row.things else ()
    known = {*row.settings, *row.optional, *titled}
    words = {*known, *row.keywords}
    unknown = {*settings} - known | (set() if row.free else {*named} - words)
    for name in sorted(unknown):
        text = f"{row.name} has no setting `{name}`{hint(name, words)}"
        yield Violation("unknown-setting", text, violations.setting(name))
    missing = [n for n in (*titled, *row.settings) if n not in {*settings, *named}]
    if missing and not unknown:
        yield Violation("missing-setting", f"{row.name} needs the setting `{missing[0]}`")
    kinds = _kinds(row.name)
    for name, value in settings.items():
        if isinstance(value, RecordAttr) and name not in kinds:
            yield from _record_violations(name, value)
        elif not isinstance(value, RecordAttr) and not _is_literal(value):
            text = f"{row.name}: `{name}` can't be {value}: expected a number, a text or a list"
            yield Violation("not-a-literal", text, violations.setting(name))
        elif name in kinds:
            yield from value_violations(kinds[name], value, name)


def _kinds(instruction: str) -> Mapping[str, Setting]:
    """What the settings of an instruction hold, where an operation of the language says so."""
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
    fields = RECORDS.get(record.kind)
    if fields is None:
        text = f"`{record.kind}` is not a record of the runtime{hint(record.kind, RECORDS)}"
        yield Violation("unknown-word", text, violations.setting(name))
        return
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
