"""Seeded mutants of a module that still parse: edits of its operations, in the generic form."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FloatAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    f64,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.tools.opt.targets import mlir
from tests.unit.tools.fuzzing.trees import TRIES, Unchanged

Edit = Callable[[ModuleOp, random.Random], None]


def mutant(module: ModuleOp, draw: random.Random) -> str:
    """The text of a module after one to three random edits. The module stays as it is."""
    made = module.clone()
    wanted = draw.choice((1, 1, 1, 2, 3))
    for _ in range(TRIES):
        with suppress(Unchanged):
            draw.choice(EDITS)(made, draw)
            wanted -= 1
        if wanted == 0:
            break
    return mlir(made, generic=True)


def one(items: Sequence[Operation], draw: random.Random) -> Operation:
    """Any of some operations. Raises Unchanged if there is none."""
    if not items:
        raise Unchanged
    return draw.choice(items)


def inner(module: ModuleOp) -> list[Operation]:
    """Every operation below the module."""
    return [op for op in module.walk() if op is not module]


def reading(module: ModuleOp) -> list[Operation]:
    """Every operation that has operands."""
    return [op for op in inner(module) if op.operands]


def values(module: ModuleOp) -> Iterator[SSAValue]:
    """Every value."""
    for op in module.walk():
        yield from op.results
        for region in op.regions:
            for block in region.blocks:
                yield from block.args


def _like(value: SSAValue, module: ModuleOp, draw: random.Random) -> SSAValue:
    """Another value, most often of the same class of type. Raises Unchanged without one."""
    others = [v for v in values(module) if v is not value]
    same = [v for v in others if type(v.type) is type(value.type)]
    found = same if same and draw.random() < 0.8 else others
    if not found:
        raise Unchanged
    return draw.choice(found)


# ---- operands and operations


def _swap_operands(module: ModuleOp, draw: random.Random) -> None:
    op = one([op for op in inner(module) if len(op.operands) > 1], draw)
    operands = list(op.operands)
    draw.shuffle(operands)
    op.operands = operands


def _other_operand(module: ModuleOp, draw: random.Random) -> None:
    op = one(reading(module), draw)
    index = draw.randrange(len(op.operands))
    op.operands[index] = _like(op.operands[index], module, draw)


def _operand_count(module: ModuleOp, draw: random.Random) -> None:
    """An operand dropped, doubled or more."""
    op = one(reading(module), draw)
    operands, index = list(op.operands), draw.randrange(len(op.operands))
    match draw.choice(("drop", "double", "more")):
        case "drop":
            del operands[index]
        case "double":
            operands.insert(index, operands[index])
        case _:
            operands.insert(index, _like(operands[index], module, draw))
    op.operands = operands


def _yielded(module: ModuleOp, draw: random.Random) -> None:
    """A state yielded twice, never, or as another version."""
    op = one([op for op in inner(module) if op.name in ("rpeg.yield", "rpeg.keep")], draw)
    if not op.operands:
        raise Unchanged
    operands, index = list(op.operands), draw.randrange(len(op.operands))
    operands[index] = draw.choice((operands[0], _like(operands[index], module, draw)))
    op.operands = operands


def _delete(module: ModuleOp, draw: random.Random) -> None:
    op = one(inner(module), draw)
    for result in op.results:
        if result.uses:
            outside = [v for v in values(module) if not _inside(v, op)]
            alike = [v for v in outside if type(v.type) is type(result.type)] or outside
            if not alike:
                raise Unchanged
            result.replace_all_uses_with(draw.choice(alike))
    if any(use.operation not in set(op.walk()) for v in _made(op) for use in v.uses):
        raise Unchanged
    op.detach()
    op.erase(safe_erase=False)


def _made(op: Operation) -> Iterator[SSAValue]:
    for each in op.walk():
        yield from each.results


def _inside(value: SSAValue, op: Operation) -> bool:
    owner = value.owner
    around: Operation | None = owner.parent_op() if isinstance(owner, Block) else owner
    while around is not None and around is not op:
        around = around.parent_op()
    return around is op


def _double(module: ModuleOp, draw: random.Random) -> None:
    """An operation once more behind itself; what follows reads the second, or the first."""
    op = one(inner(module), draw)
    copy = op.clone()
    block = op.parent_block()
    assert block is not None
    block.insert_op_after(copy, op)
    if op.results and draw.random() < 0.5:
        for result, again in zip(op.results, copy.results, strict=True):
            result.replace_uses_with_if(again, lambda use: use.operation is not copy)


def _move(module: ModuleOp, draw: random.Random) -> None:
    """To another place, most often in the same block."""
    op = one(inner(module), draw)
    home = op.parent_block()
    assert home is not None
    blocks = [b for o in module.walk() for r in o.regions for b in r.blocks if not _holds(op, b)]
    block = home if draw.random() < 0.8 else draw.choice(blocks)
    others = [o for o in block.ops if o is not op]
    op.detach()
    if not others:
        block.add_op(op)
    elif draw.random() < 0.5:
        block.insert_op_before(op, draw.choice(others))
    else:
        block.insert_op_after(op, draw.choice(others))


def _holds(op: Operation, block: Block) -> bool:
    around = block.parent_op()
    while around is not None and around is not op:
        around = around.parent_op()
    return around is op


def _result_type(module: ModuleOp, draw: random.Random) -> None:
    value = draw.choice(list(values(module)) or _none())
    other = draw.choice((_like(value, module, draw).type, _altered(value.type, module, draw)))
    Rewriter.replace_value_with_new_type(value, other)


def _none() -> list[SSAValue]:
    raise Unchanged


# ---- settings and attributes

WORDS = ("x", "", "mean", "none", "all", "fp8", "strict", "head", "drop", "i", "token_mean", "1")


def _setting(module: ModuleOp, draw: random.Random) -> None:
    table = draw.choice(_tables(module))
    name = draw.choice(list(table))
    table[name] = _altered(table[name], module, draw)


def _borrowed(module: ModuleOp, draw: random.Random) -> None:
    """A setting with the value that another setting has, of another name or the same."""
    tables = _tables(module)
    table, other = draw.choice(tables), draw.choice(tables)
    name = draw.choice(list(table))
    table[name] = other[name] if name in other else draw.choice(list(other.values()))


def _settings(module: ModuleOp, draw: random.Random) -> None:
    """A setting dropped, or one that is not known."""
    table = draw.choice(_tables(module))
    if draw.random() < 0.5:
        del table[draw.choice(list(table))]
    else:
        table[draw.choice((*table, "unheard_of"))[:-1] or "x"] = plain(draw.choice(WORDS))


def _tables(module: ModuleOp) -> list[dict[str, Attribute]]:
    tables = [t for op in inner(module) for t in (op.properties, op.attributes) if t]
    if not tables:
        raise Unchanged
    return tables


def _altered(value: Attribute, module: ModuleOp, draw: random.Random) -> Attribute:
    """A value somewhat like another."""
    match value:
        case IntegerAttr():
            number = int(value.value.data) + draw.choice((-1, 1, 2, -9, 1000))
            changed = draw.choice((number, 0, -1, 1, 2 * number))
            return IntegerAttr(changed % 2, value.type) if value.type != i64 else plain(changed)
        case FloatAttr():
            number = float(value.value.data)
            return FloatAttr(draw.choice((-number, 0.0, 1.5, 2 * number, number / 2, 1e9)), f64)
        case StringAttr():
            return StringAttr(draw.choice((*WORDS, value.data + "s", value.data[:-1])))
        case SymbolRefAttr():
            return SymbolRefAttr(draw.choice([*_symbols(module), "nobody"]))
        case ArrayAttr() if value.data:
            return ArrayAttr(_items(list(value.data), module, draw))
        case RecordAttr():
            return _record(value, module, draw)
        case _ if hasattr(value, "parameters") and value.parameters:
            return _parameter(value, module, draw)
        case _:
            return draw.choice((plain(1), plain(0.5), plain("x"), UnitAttr(), ArrayAttr([])))


def _items(items: list[Attribute], module: ModuleOp, draw: random.Random) -> list[Attribute]:
    index = draw.randrange(len(items))
    match draw.choice(("drop", "double", "swap", "alter")):
        case "drop":
            del items[index]
        case "double":
            items.insert(index, items[index])
        case "swap":
            items[0], items[index] = items[index], items[0]
        case _:
            items[index] = _altered(items[index], module, draw)
    return items


def _record(value: RecordAttr, module: ModuleOp, draw: random.Random) -> Attribute:
    entries = dict(value.settings)
    if not entries or draw.random() < 0.1:
        return RecordAttr(StringAttr(draw.choice(("par", "mb", "adamw", "word"))), value.entries)
    name = draw.choice(list(entries))
    match draw.choice(("drop", "more", "alter", "alter", "alter")):
        case "drop":
            del entries[name]
        case "more":
            entries["more"] = entries[name]
        case _:
            entries[name] = _altered(entries[name], module, draw)
    return RecordAttr(value.word, DictionaryAttr(entries))


def _parameter(value: Attribute, module: ModuleOp, draw: random.Random) -> Attribute:
    """A type or attribute with another number or name inside."""
    text = str(value)
    digits = [n for n, character in enumerate(text) if character.isdigit()]
    if not digits:
        return draw.choice([v.type for v in values(module)] or [value])
    at = draw.choice(digits)
    return _reparsed(text[:at] + draw.choice("0123459") + text[at + 1 :], value)


def _reparsed(text: str, value: Attribute) -> Attribute:
    from xdsl.parser import Parser
    from xdsl.utils.exceptions import ParseError, VerifyException

    from rpeg.ir.registry import context

    try:
        return Parser(context(), text).parse_attribute()
    except (ParseError, VerifyException):
        return value


def _symbols(module: ModuleOp) -> list[str]:
    held = (op.properties.get("sym_name") for op in inner(module))
    return [name.data for name in held if isinstance(name, StringAttr)]


def _rename(module: ModuleOp, draw: random.Random) -> None:
    op = one([op for op in inner(module) if "sym_name" in op.properties], draw)
    names = [*_symbols(module), "nobody", "two words"]
    op.properties["sym_name"] = StringAttr(draw.choice(names))


EDITS: Sequence[Edit] = (
    *(_swap_operands, _other_operand, _other_operand, _other_operand, _operand_count, _yielded),
    *(_delete, _delete, _double, _double, _move, _move, _result_type, _setting, _setting, _setting),
    *(_setting, _borrowed, _borrowed, _settings, _rename),
)
