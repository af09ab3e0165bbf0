"""What a run is known by: literals count; comments, params, the step count and plans don't."""

from __future__ import annotations

from rpeg.frontend import load
from rpeg.frontend.parse import parse
from rpeg.frontend.render import render
from rpeg.frontend.resolve import resolved
from rpeg.ir.types.attributes import SOURCE_HASH

TEXT = """rpeg 0.1
# A comment.
pipeline p {
  param steps = 3
  param size = 4
  model actor = policy("m", optim=adamw(lr=1e-3))
  data train = demos("d.jsonl")

  step i < $steps {
    b = batch(train, size=$size)
    ce = cross_entropy(b)
    actor@i+1 = update(actor@i, ce, agg=token_mean)
  }
}
"""


def known_by(text: str) -> str:
    module = load(text, "p.rpeg").module
    assert module is not None
    return str(module.attributes[SOURCE_HASH])


def test_what_does_not_count() -> None:
    same = known_by(TEXT)
    assert known_by(TEXT.replace("# A comment.\n", "")) == same
    assert known_by(TEXT.replace("steps = 3", "steps = 300")) == same
    assert known_by(TEXT.replace("size=$size", "size=4").replace("  param size = 4\n", "")) == same


def test_where_it_runs_and_how_long_does_not_count() -> None:
    plan = """
  expect train = lognormal(mean=9, cv=0.5)

  plan one on "h100-8" {
    pool all = nodes(0..0)
    actor on all, par(tp=2, dp=4)
  }
"""
    assert known_by(TEXT.removesuffix("}\n") + plan + "}\n") == known_by(TEXT)


def test_what_counts() -> None:
    same = known_by(TEXT)
    assert known_by(TEXT.replace("size = 4", "size = 8")) != same
    assert known_by(TEXT.replace("lr=1e-3", "lr=2e-3")) != same


def test_params_are_resolved_everywhere() -> None:
    file, problems = parse(TEXT, "p.rpeg")
    assert file is not None, problems
    pipeline = resolved(file.pipelines[0])
    assert not pipeline.params
    assert "$" not in render(file.__class__(file.version, (pipeline,)))
