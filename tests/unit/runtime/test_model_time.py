"""Model spans stand round models, and round nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpeg.runtime import model_time
from rpeg.runtime.logs.clock import RunClock
from rpeg.runtime.model_time import MegatronTimers, model_seconds, model_span

RUNTIME = Path(model_time.__file__).parent

SITES = {
    ("engine/decoder.py", "engine", "return self._forward(ids, places, cache, slot=0, bias=None)"),
    ("engine/decoder.py", "engine", "hidden = self._forward(ids, places, cache, slot, bias)"),
    ("engine/decoder.py", "engine", "return self._head(hidden).float()"),
    (
        "engine/sampling.py",
        "engine",
        "logprobs = scaled.masked_fill(banned, float('-inf')).log_softmax(dim=-1)",
    ),
    ("megatron/optimizer.py", "optimizer", "_, clipped_norm, _ = self._optimizer.step()"),
    ("megatron/replica.py", "forward", "answer = model(inputs)"),
    (
        "megatron/replica.py",
        "forward",
        "found = self._vocab.logprob(answer.logits, inputs.targets, temperature)",
    ),
}
"""(module, part, what a span stands round): an engine's forward pass, Megatron-Core's, its
optimizer's step. Its backward pass is counted by its own timers."""


def spans(path: Path) -> Iterator[tuple[str, str, str]]:
    """The spans of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for item in node.items if isinstance(node, ast.With) else ():
            call = item.context_expr
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "model_span":
                body = "; ".join(map(ast.unparse, node.body))
                yield path.relative_to(RUNTIME).as_posix(), ast.literal_eval(call.args[0]), body


def mentions(name: str) -> dict[str, int]:
    """How often each module but their own says a name."""
    modules = (path for path in RUNTIME.rglob("*.py") if path.name != "model_time.py")
    found = {
        path.relative_to(RUNTIME).as_posix(): sum(
            isinstance(node, ast.Name) and node.id == name
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        )
        for path in modules
        if name in path.read_text(encoding="utf-8")
    }
    return {path: count for path, count in found.items() if count}


def test_what_spans_stand_round() -> None:
    found = [site for path in sorted(RUNTIME.rglob("*.py")) for site in spans(path)]
    assert set(found) == SITES
    assert len(found) == len(SITES)


def test_there_is_no_other_way_to_a_span() -> None:
    modules = [module for module, _, _ in SITES]
    assert mentions("model_span") == {module: modules.count(module) for module in modules}
    assert mentions("MegatronTimers") == {"megatron/replica.py": 1}


def test_of_megatrons_timers_only_that_of_backward_passes_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(range(100))
    monkeypatch.setattr(model_time.time, "perf_counter", lambda: next(clock))
    timers, before = MegatronTimers(), model_seconds()
    for name in ("forward-backward", "forward-compute", "optimizer-inner-step", "backward-compute"):
        timers(name, log_level=2).start(barrier=False)
        timers(name).stop()
    assert model_seconds() - before == 1


def test_a_stage_knows_how_much_of_it_was_inside_of_models() -> None:
    clock = RunClock()
    clock.begin_step(0)
    with clock.stage("update"):
        with clock.stage("rows"):
            pass
        with model_span("forward"):
            pass
    rows, update = clock.spans()
    assert rows.model == 0.0
    assert 0.0 < update.model <= update.end - update.begin
