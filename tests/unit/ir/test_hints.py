"""What a message offers to write can be written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from rpeg.frontend import check
from rpeg.ir.text.diagnostics import Diagnostic
from rpeg.ir.vocabulary.records import ALLOW, CLAUSES, EXPECT, POOLS, RECORDS
from rpeg.ir.vocabulary.settings import FLOAT, INT, TEXT, Setting
from rpeg.ir.vocabulary.signature import Signature
from rpeg.ir.vocabulary.tables import constructors, operations

DECLARED = ("model", "data", "verifier", "tool", "state")
TABLES = (RECORDS, ALLOW, EXPECT, POOLS, CLAUSES, operations(), *map(constructors, DECLARED))


def needed() -> Iterator[tuple[Signature, Setting]]:
    """Every setting that has no default, with its word."""
    for table in TABLES:
        for signature in table.values():
            settings = signature.settings.values()
            yield from ((signature, setting) for setting in settings if setting.required)


@pytest.mark.parametrize(
    "setting", [pytest.param(s, id=f"{word.name}.{s.name}") for word, s in needed()]
)
def test_a_missing_setting_is_offered_a_value_of_its_own(setting: Setting) -> None:
    if setting.kind.words:
        assert setting.example in setting.kind.words
    elif setting.kind == TEXT:
        assert json.loads(setting.usual)
    elif setting.kind in (INT, FLOAT):
        number = {INT: int, FLOAT: float}[setting.kind](setting.usual)
        assert number in setting.range


STEP = """rpeg 0.1
pipeline p {
  model actor = policy("tiny", optim=adamw(lr=1e-6))
  data train = prompts("rows.jsonl")
  verifier good = outcome("rule:math")
  step i < 9 {
    q = batch(train, size=8)
    y, beh = generate(actor@[i-2..i], q, n=4, max_tokens=64)
    r = score(good, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    # more
    pg = LOSS
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }
}
"""
LOSSES = (
    "ppo_clip(y, adv, beh, clip_low=0.2, clip_high=0.28, clip_dual=3.0)",
    "ppo_clip(y, adv, beh, clip_low=3e-4, clip_high=4e-4, ratio=sequence)",
    "cispo(y, adv, beh, clip_high=4.0)",
    "policy_gradient(y, adv)",
)


def errors(text: str) -> list[Diagnostic]:
    return [d for d in check(text, "f.rpeg") if d.severity == "error"]


def offered(message: str) -> tuple[list[str], str]:
    """(lines before the loss, its call) of what a message says to write."""
    _, _, advice = message.partition(": write ")
    return re.findall("`([^`]*)`", advice), advice.rpartition(", then ")[2]


@pytest.mark.parametrize("loss", LOSSES)
def test_a_correction_of_staleness_can_be_pasted(loss: str) -> None:
    (problem,) = errors(STEP.replace("LOSS", loss))
    lines, call = offered(problem.message)
    assert lines == ["prox = logprob(actor@i, y)", "w = importance(prox, beh)"]
    settings = [part for part in call[:-1].split(", ") if "=" in part]
    assert len(settings) == loss.count("=")
    mended = STEP.replace("# more", "\n    ".join(lines)).replace("LOSS", call)
    assert errors(mended) == []


def test_names_that_are_taken_are_not_offered() -> None:
    text = STEP.replace("score(good", "score(w").replace("verifier good", "verifier w")
    text = re.sub(r"\badv\b", "prox", text).replace("LOSS", "policy_gradient(y, prox)")
    (problem,) = errors(text)
    lines, call = offered(problem.message)
    assert call == "policy_gradient(y, prox, w_1)"
    mended = text.replace("# more", "\n    ".join(lines)).replace("policy_gradient(y, prox)", call)
    assert errors(mended) == []


def test_weights_that_are_there_are_offered() -> None:
    there = "now = logprob(actor@i, y)\n    iw = importance(now, beh)"
    (problem,) = errors(STEP.replace("# more", there).replace("LOSS", LOSSES[0]))
    call = "ppo_clip(y, adv, now, iw, clip_low=0.2, clip_high=0.28, clip_dual=3.0)"
    assert problem.message.endswith(f": write {call}")
    assert errors(STEP.replace("# more", there).replace("LOSS", call)) == []


def test_what_starts_from_a_broken_declaration_has_no_error_of_its_own() -> None:
    text = STEP.replace("# more", "").replace("[i-2..i]", "i").replace("LOSS", LOSSES[3])
    text = text.replace(
        'policy("tiny", optim=adamw(lr=1e-6))', 'policy("tiny", optim=adamw(lr=no))'
    )
    more = "\n  model ref = policy(actor@0)\n  model critic = value(ref@0)\n  data train"
    assert [d.at.line for d in errors(text.replace("\n  data train", more))] == [3]


def test_a_ratio_is_of_what_a_collect_keeps() -> None:
    text = STEP.replace("# more", "").replace("[i-2..i]", "i").replace("LOSS", LOSSES[3])
    assert errors(text) == []
    found = errors(text.removesuffix("}\n") + "  expect y = ratio(mean=0.5)\n}\n")
    assert ["write lognormal(mean=500, cv=0.5)" in d.message for d in found] == [True]
    assert errors(text.removesuffix("}\n") + "  expect y = lognormal(mean=500, cv=0.5)\n}\n") == []
