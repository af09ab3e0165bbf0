"""The pages of the rules: what each is for, how to mend what breaks it, an example of both.

The example of a page is a diff: its lines without a `+` are a file that breaks this rule and no
other, its lines without a `-` the same file mended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from rpeg.ir.rules import codes

PAGES = Path(__file__).parent / "pages"

LEVELS: Mapping[str, object] = {
    "every level": codes.EveryLevel,
    "L0": codes.Algorithm,
    "plans": codes.Plan,
    "L1": codes.Placed,
    "L2": codes.Schedule,
    "L3": codes.Program,
}
"""What rules are about, with their codes."""

_PAGE = re.compile(
    r"# (?P<code>[a-z-]+)\n\n\*\*(?P<title>.+)\*\*\n\n(?P<body>.+?)\n\n"
    r"```diff(?: (?P<at>L\d))?\n(?P<diff>.+?)```\n",
    re.DOTALL,
)


@dataclass(frozen=True)
class Rule:
    """One rule of the verifier."""

    code: str
    level: str
    title: str
    """The rule, as a sentence."""
    body: str
    """Why it is one, and how to mend what breaks it."""
    diff: str
    """From an example that breaks it to one that does not."""
    at: str = ""
    """The level at which the example is verified, where that matters; `diff L0` in the page."""

    @property
    def broken(self) -> str:
        """The example with the mistake: `.rpeg` text, or MLIR."""
        return self._without("+")

    @property
    def mended(self) -> str:
        """The example without it."""
        return self._without("-")

    @property
    def language(self) -> str:
        """What the example is written in: `rpeg` or `mlir`."""
        return "rpeg" if self.mended.startswith("rpeg 0") else "mlir"

    def _without(self, mark: str) -> str:
        lines = self.diff.splitlines(keepends=True)
        return "".join(line[1:] for line in lines if not line.startswith(mark))


def codes_of(level: str) -> tuple[str, ...]:
    """The codes of a level's rules, in the order of the pipeline's parts."""
    return get_args(LEVELS[level])


def rules() -> dict[str, Rule]:
    """Every rule, by code, level by level."""
    return {code: _rule(code, level) for level in LEVELS for code in codes_of(level)}


def explained(code: str) -> str:
    """The page of a rule, as `rpeg-opt --explain` shows it. Raises KeyError for another word."""
    rule = rules()[code]
    return (
        f"{rule.code} ({rule.level})\n\n{rule.title}\n\n{rule.body}\n\n"
        f"An example that breaks it (-), mended (+):\n\n{rule.diff}"
    )


def _rule(code: str, level: str) -> Rule:
    text = (PAGES / f"{code}.md").read_text(encoding="utf-8")
    page = _PAGE.fullmatch(text)
    if page is None or page["code"] != code:
        raise ValueError(f"{code}.md is not `# {code}`, **a sentence**, paragraphs and a diff")
    return Rule(code, level, page["title"], page["body"], page["diff"], page["at"] or "")
