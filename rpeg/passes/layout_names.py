"""Names of layouts: `tp2sp` is tensor parallel over 2 with sharded sequences, `dp4zero1` four
replicas that share one optimizer.

A name is its settings, concatenated: `dp`, `tp`, `pp` and `vpp` with a width, `zero` with a level,
`sp`, and what is recomputed, `selective` or `full`. What is left out has its default.
`dp2+actor=tp2` is `dp2` for everything but the model `actor`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rpeg.ir.layout import LATER

Value = int | bool | str
WIDTHS = ("dp", "tp", "pp", "vpp", "zero")
FLAGS: Mapping[str, tuple[str, Value]] = {
    "sp": ("sp", True),
    "selective": ("recompute", "selective"),
    "full": ("recompute", "full"),
}
"""Parts without a number: setting and value."""
NOT_YET: Mapping[str, str] = {
    **LATER,
    "lora": "low-rank adapters",
}
"""What the language has words for, but programs can't do yet."""
WIDEST = 2**20
"""More processes than any cluster has."""

_PART = re.compile(
    rf"(?P<width>{'|'.join(WIDTHS)})(?P<number>[1-9][0-9]*)"
    rf"|(?P<flag>{'|'.join(FLAGS)})"
    rf"|(?P<later>{'|'.join(NOT_YET)})[0-9]*"
)


class LayoutNameError(ValueError):
    """A text that names no layout which compiles; the message says what to write."""


def parse_layout(name: str) -> dict[str, Value]:
    """The settings of a layout's name: `pp2vpp2` gives `{"pp": 2, "vpp": 2}`; what follows the
    first `+` is the setting `others`, as it stands.

    Raises LayoutNameError.
    """
    whole, plus, others = name.partition("+")
    own_layouts(others if plus else None)
    return _settings(whole) | ({"others": others} if plus else {})


def own_layouts(others: Value | None) -> dict[str, dict[str, Value]]:
    """By model: the settings of its own layout, from texts such as `actor=tp2+ref=pp2`.

    Raises LayoutNameError.
    """
    found: dict[str, dict[str, Value]] = {}
    for part in () if others is None else str(others).split("+"):
        model, equals, name = part.partition("=")
        if not equals or not model.isidentifier():
            raise LayoutNameError(
                f"`{part}` gives no model a layout: write MODEL=LAYOUT behind `+`, such as "
                "dp2+actor=tp2"
            )
        if model in found:
            raise LayoutNameError(f"`{others}` gives `{model}` two layouts")
        found[model] = _settings(name)
    return found


def _settings(name: str) -> dict[str, Value]:
    settings: dict[str, Value] = {}
    for part in _parts(name):
        setting, value = _setting(name, part)
        if setting in settings:
            raise LayoutNameError(f"`{name}` says {setting} twice")
        settings[setting] = value
    return settings


def layout_name(settings: Mapping[str, Value]) -> str:
    """The shortest name of these settings of a layout; `dp1` where all have their defaults."""
    parts = [
        *(f"{n}{settings[n]}" for n in WIDTHS if settings.get(n, _default(n)) != _default(n)),
        *(flag for flag, (n, value) in FLAGS.items() if settings.get(n) == value),
    ]
    return "".join(parts) or "dp1"


def _default(width: str) -> int:
    return 0 if width == "zero" else 1


def _parts(name: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(name) or not name:
        part = _PART.match(name, at)
        if part is None:
            raise LayoutNameError(
                f"`{name}` is not a layout: a name is dpN, tpN, ppN, vppN, zeroN, sp, selective "
                "and full in a row, such as tp2sp, pp2vpp2 or dp2zero1"
            )
        yield part
        at = part.end()


def _setting(name: str, part: re.Match[str]) -> tuple[str, Value]:
    later = part["later"]
    if later is not None:
        raise LayoutNameError(f"`{name}`: {NOT_YET[later]} ({later}) does not compile yet")
    return FLAGS[part["flag"]] if part["flag"] else (part["width"], _number(name, part["number"]))


def _number(name: str, digits: str) -> int:
    if len(digits) > len(str(WIDEST)) or int(digits) > WIDEST:
        shown = digits if len(digits) <= 24 else f"{digits[:20]}..."
        raise LayoutNameError(f"`{name[:40]}`: {shown} is too wide, at most {WIDEST}")
    return int(digits)
