"""docs/staleness.md: its lines are of the language, and what it says is refused is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rpeg.frontend import check, load
from rpeg.ir.rules.staleness import COVERS, WORDS
from rpeg.passes.rpeg_bounded_async import CORRECTIONS

PAGE = (Path(__file__).parents[2] / "docs" / "staleness.md").read_text(encoding="utf-8")
SNIPPETS = dict(re.findall(r"<!-- check: ([^\n]+) -->\n```\n(.*?)```", PAGE, re.S))
PROGRAM = """rpeg 0.1
pipeline p {{
  model actor = policy("tiny", optim=adamw(lr=1e-3))
  data train = prompts("train.jsonl")
  verifier correct = outcome("rule:exact_match")
  step i < 10 {{
    q = batch(train, size=4)
    {generate}
    r = score(correct, y)
    adv = group_advantage(r, baseline=mean, scale=std)
    {loss}
    actor@i+1 = update(actor@i, pg, agg=token_mean)
  }}
}}
"""
GENERATE = SNIPPETS["overflow=resume needs old_spans"]
LOSS = SNIPPETS["a loss that does not cover its window"]


def errors(text: str) -> list[str]:
    return [d.message for d in check(text, "page.rpeg") if d.severity == "error"]


def test_the_lines_of_the_page_are_a_program() -> None:
    assert errors(PROGRAM.format(generate=GENERATE, loss=LOSS)) == []


def test_resume_needs_old_spans() -> None:
    without = GENERATE.replace(", old_spans=mask", "")
    found = errors(PROGRAM.format(generate=without, loss=LOSS))
    assert len(found) == 1 and "write old_spans=mask" in found[0]


def test_the_error_of_a_stale_loss_is_the_lines_to_write() -> None:
    stale = "pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)"
    found = errors(PROGRAM.format(generate=GENERATE, loss=stale))
    assert len(found) == 1
    assert all(line in found[0] for line in LOSS.splitlines()[:2])


@pytest.mark.parametrize(
    "settings",
    re.findall(r"^\| (?:decoupled|truncated|IcePop|sequence mask).*?\| `(.*?)` \|", PAGE, re.M),
)
def test_settings_of_corrections_are_settings(settings: str) -> None:
    loss = LOSS.replace("importance(prox, lp)", f"importance(prox, lp, {settings})")
    assert load(PROGRAM.format(generate=GENERATE, loss=loss), "page.rpeg").module is not None


def test_passes_write_the_settings_of_the_table() -> None:
    rows = re.findall(
        r"^\| (?:decoupled|truncated|IcePop|sequence mask).*?\| `(.*?)` \|", PAGE, re.M
    )
    written = [", ".join(f"{k}={v}" for k, v in held.items()) for held in CORRECTIONS.values()]
    assert rows == written


def test_tables_say_what_the_verifier_says() -> None:
    assert all(f"`{word}`" in PAGE for words in WORDS.values() for word in words)
    covered = re.findall(r"^\| (?:none|a clip|weighted).*?\| (\d+) \|", PAGE, re.M)
    assert sorted(map(int, covered)) == sorted(COVERS.values())


def refused(loss: str, window: str = "[i-2..i]", settings: str = "") -> list[str]:
    generate = f"y, lp = generate(actor@{window}, q, n=8, max_tokens=64{settings})"
    return errors(PROGRAM.format(generate=generate, loss=loss))


@pytest.mark.parametrize("loss", ["policy_gradient(y, adv)", "cispo(y, adv, lp, clip_high=0.28)"])
def test_the_loss_that_an_error_offers_verifies(loss: str) -> None:
    (found,) = refused(f"pg = {loss}")
    assert ", then " in found
    mended = found.rpartition(", then ")[2]
    lines = [*LOSS.splitlines()[:2], f"pg = {mended}"]
    assert refused("\n    ".join(lines)) == []


HEAD = ", bound=head"


def test_a_window_that_bounds_admission_needs_weights() -> None:
    (found,) = refused("pg = ppo_clip(y, adv, lp, clip_low=0.2, clip_high=0.2)", "[i-1..i]", HEAD)
    assert found.startswith("`y` may be 1 versions old when admitted and older when trained on")
    assert refused(LOSS, "[i-8..i]", HEAD) == []
    (found,) = refused(LOSS, "[i-9..i]", HEAD)
    assert "when admitted" in found and "covers 8" in found


UNWEIGHTED = ["kl_loss(y, lp, coef=0.001)", "entropy_bonus(y, coef=0.01)"]


@pytest.mark.parametrize("term", UNWEIGHTED)
def test_terms_without_a_correction_follow_a_loss_that_has_one(term: str) -> None:
    (found,) = refused(f"pg = {term}")
    assert "has no correction of its own, and `y` may be 2 versions old" in found
    assert not any("correction" in error for error in refused(f"pg = {term}", "i"))
    both = PROGRAM.replace("actor@i, pg,", "actor@i, pg, more,")
    loss = f"{LOSS}more = {term}"
    assert errors(both.format(generate=GENERATE, loss=loss)) == []


def under(allow: str, settings: str, window: str = "[i-2..i]") -> list[str]:
    """Errors of a step with this window in a file that allows so much."""
    text = PROGRAM.replace("  step", f"  allow bounded_async({allow})\n  step")
    generate = f"y, lp = generate(actor@{window}, q, n=8, max_tokens=64{settings})"
    return errors(text.format(generate=generate, loss=LOSS))


@pytest.mark.parametrize(
    ("allow", "settings", "said"),
    [
        ("", ", bound=head", "bound=head: the file allows bound=strict: write bound=strict, or"),
        (", bound=strict", ", bound=head", "allow bounded_async(..., bound=head)"),
        (", overflow=drop", ", overflow=truncate", "write overflow=drop, or"),
        (
            ", overflow=resume, old_spans=mask",
            ", overflow=resume, old_spans=drop",
            "write old_spans=mask, or",
        ),
    ],
)
def test_a_window_says_what_its_file_allows(allow: str, settings: str, said: str) -> None:
    (found,) = under(f"staleness=2{allow}", settings)
    assert said in found
    assert under(f"staleness=2{settings}", settings) == []
    assert under(f"staleness=2{allow}", "") == []


def test_no_staleness_allowed_reads_this_steps_weights() -> None:
    (found,) = under("staleness=0", "", "[i-1..i]")
    assert "read actor@i, or allow staleness=1" in found
    (found,) = under("staleness=-1", "", "[i-1..i]")
    assert found == "staleness=-1: expected at least 0"
