"""The tables of `rpeg validate-model`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rpeg.cost.hardware import constants_of, known_machines, load_machine
from rpeg.cost.validation.eras import SECOND
from rpeg.cost.validation.predictions import FIELDS, Outcome
from rpeg.cost.validation.scores import AIMS, Score, group, has_fields, reasons, score, scored
from rpeg.cost.validation.scores import source as source_of
from rpeg.cost.validation.validate import Validation


def text(found: Validation, worst: int = 0) -> str:
    """Everything that the command prints."""
    fitted, left_out = scored(found.outcomes), scored(found.left_out)
    parts = [
        _title("With the shipped constants, by group"),
        _table(_by_group(fitted)),
        _title("Leaving out the source a record comes from, by group"),
        _table(_by_group(left_out), aims=True),
        _title("Leaving out the source, by group and source"),
        _table(_by_source(left_out)),
        _title("Fields a record needs to be predicted"),
        "".join(f"{kind:12} {', '.join(fields)}\n" for kind, fields in FIELDS.items()),
        _coverage(fitted),
        _title("Not predicted"),
        _reasons(found.outcomes),
        _title("Constants of each device"),
        _devices(),
        _title("Constants of each era"),
        _eras(found),
    ]
    if worst:
        parts += [_title(f"The {worst} worst, leaving out their source"), _worst(left_out, worst)]
    return "".join(parts)


def _title(words: str) -> str:
    return f"\n{words}\n{'-' * len(words)}\n"


def _by_group(outcomes: Sequence[Outcome]) -> list[Score]:
    names = sorted({group(outcome) for outcome in outcomes})
    return [score(name, [o for o in outcomes if group(o) == name]) for name in names]


def _by_source(outcomes: Sequence[Outcome]) -> list[Score]:
    keys = sorted({(group(outcome), source_of(outcome)) for outcome in outcomes})
    return [
        score(
            f"{name}: {source}",
            [o for o in outcomes if (group(o), source_of(o)) == (name, source)],
        )
        for name, source in keys
    ]


def _table(scores: Sequence[Score], aims: bool = False) -> str:
    width = max([len(one.name) for one in scores] + [8])
    head = f"{'':{width}} records predicted  median    mean   rank"
    lines = [head + ("     aim" if aims else "")]
    for one in scores:
        line = (
            f"{one.name:{width}} {one.records:7} {one.predicted:9} "
            f"{_percent(one.median)} {_percent(one.mean)} {_correlation(one.rank)}"
        )
        lines.append(line + (_aim(one) if aims else ""))
    return "\n".join(lines) + "\n"


def _percent(value: float) -> str:
    return "      -" if math.isnan(value) else f"{100 * value:6.1f}%"


def _correlation(value: float) -> str:
    return "     -" if math.isnan(value) else f"{value:6.2f}"


def _aim(one: Score) -> str:
    aim = AIMS.get(one.name)
    if aim is None:
        return ""
    if not one.predicted:
        return f"  {100 * aim:3.0f}% -"
    return f"  {100 * aim:3.0f}% {'met' if one.median <= aim else 'missed'}"


def _coverage(outcomes: Iterable[Outcome]) -> str:
    able = [outcome for outcome in outcomes if has_fields(outcome.row)]
    lines = ["\nOf the records that have them, predicted:\n"]
    for name in sorted({group(outcome) for outcome in able}):
        mine = [outcome for outcome in able if group(outcome) == name]
        told = sum(outcome.predicted is not None for outcome in mine)
        lines.append(f"{name:24} {told:4} of {len(mine):4}  {100 * told / len(mine):5.1f}%\n")
    return "".join(lines)


def _reasons(outcomes: Iterable[Outcome]) -> str:
    counted = sorted(reasons(outcomes).items(), key=lambda item: (item[0][0], -item[1]))
    return "".join(f"{name:24} {count:4}  {why}\n" for (name, why), count in counted)


def _devices() -> str:
    lines = []
    for name in known_machines():
        constants = constants_of(load_machine(name))
        told = "  ".join(f"{key} {value:.4g}" for key, value in constants.items())
        lines.append(f"{name:10} {told}\n")
    return "".join(lines)


def _eras(found: Validation) -> str:
    return "".join(
        f"{kind:9} {name:24} slowdown {era.slowdown:6.3f}  {SECOND[kind]} {era.second:.3g}\n"
        for (kind, name), era in sorted(found.eras.items())
    )


def _worst(outcomes: Iterable[Outcome], number: int) -> str:
    told = [outcome for outcome in outcomes if outcome.predicted is not None]
    told.sort(key=lambda outcome: -outcome.error)
    return "".join(
        f"{outcome.row.id[:80]:80} {outcome.quantity:24} measured {outcome.measured:.4g} "
        f"predicted {outcome.predicted:.4g}\n"
        for outcome in told[:number]
    )
