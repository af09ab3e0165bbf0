"""What may be said of a window of versions, and when: bound, overflow, and what befalls old spans.

`strict` holds for every trained token, `head` where a sample is admitted. Under `strict`, samples
that go on with new weights (`overflow=resume`) keep spans past the bound, so that the text says
what becomes of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rpeg.ir.rules import violations
from rpeg.ir.rules.violations import Violation

BOUNDS = ("strict", "head")
OVERFLOWS = ("wait", "resume", "drop", "truncate", "defer")
OLD_SPANS = ("mask", "drop", "regenerate")
WORDS = {"bound": BOUNDS, "overflow": OVERFLOWS, "old_spans": OLD_SPANS}
"""The settings of a window, in the order in which types write them."""
COVERS: Mapping[str, int] = {"weighted": 8, "anchored at behaviour": 1, "uncorrected": 0}
"""How many steps of staleness a policy loss tolerates, by its correction.

Weighted: AReaL (arXiv 2505.24298) trains to the same quality up to a staleness of 8 with its
decoupled objective, and finds naive PPO to degrade from 1 on; a ratio against the behaviour policy
itself is taken to bear 1 (one step off), as in one-step-off-policy pipelines. Under bound=head the
figure is taken of the lag at admission, and only a weighted loss bears what comes on top.
"""
NARROWEST = {"bound": "strict", "overflow": "wait"}
"""What every permission includes: no token past the bound, no sample changed or lost for it."""


def old_spans_violations(held: Mapping[str, str]) -> Iterator[Violation]:
    """`old_spans` stands with bound=strict and overflow=resume, and only there."""
    needed = held.get("bound") == "strict" and held.get("overflow") == "resume"
    if needed and "old_spans" not in held:
        yield Violation(
            "old-spans",
            "bound=strict with overflow=resume leaves spans past the bound in a sample: write "
            "old_spans=mask (they train nothing), drop (nor does their group) or regenerate",
            violations.setting("overflow"),
        )
    elif "old_spans" in held and not needed:
        yield Violation(
            "old-spans",
            "`old_spans` belongs to bound=strict with overflow=resume, where spans grow older than "
            "the bound: remove it",
            violations.setting("old_spans"),
        )


def unallowed(
    held: Mapping[str, str], allowed: Sequence[Mapping[str, object]]
) -> Iterator[Violation]:
    """A window says nothing that no `allow bounded_async` line of its file says."""
    for name, word in held.items():
        said = [window[name] for window in allowed if name in window]
        if said and word not in said and word != NARROWEST.get(name):
            yield Violation(
                "window-beyond-allow",
                f"{name}={word}: the file allows {name}={said[0]}: write {name}={said[0]}, or "
                f"allow bounded_async(..., {name}={word})",
                violations.setting(name),
            )
