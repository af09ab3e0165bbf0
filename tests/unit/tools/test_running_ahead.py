"""`--staleness`: what a pass makes of a text is compiled, and is another program than the text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from rpeg.tools.ahead import Ahead
from rpeg.tools.compiling import Choice, compile_text
from rpeg.tools.console import Failure, Source
from tests.unit.passes.pipelines import grpo, place
from tests.unit.tools.commands import Shell
from tests.unit.tools.opt import EXAMPLES, opt

ALLOW = ("  step i", "  allow bounded_async(staleness=4)\n  step i")


def program(shell: Shell, out: str, *options: str, file: str = "p.rpeg") -> str:
    """The program that a text is compiled to for one process, without the name of its file."""
    done = shell("compile", file, "--processes", "1", "-o", str(shell.folder / out), *options)
    assert done.code == 0, done.err
    text = (shell.folder / out / "program_all.py").read_text(encoding="utf-8")
    return re.sub(r"from \w+\.rpeg", "from p.rpeg", text)


def identity(text: str) -> str:
    found = re.search(r'source_sha256="(\w+)"', text)
    assert found is not None
    return found[1]


def test_the_program_works_ahead(shell: Shell) -> None:
    shell.write(ALLOW)
    found = program(shell, "out", "--staleness", "2", "--correction", "icepop")
    assert "y_buffer.ahead(i)" in found and "capacity=3, max_lag=2" in found
    assert re.search(r"rt\.importance\(.*floor=0\.5, cap=5\.0, mode=\"mask\"", found)


def test_a_run_of_it_is_no_run_of_the_text(shell: Shell) -> None:
    """Nor of another staleness; one of the text that says the same is."""
    shell.write(ALLOW)
    texts = [program(shell, f"out{k}", "--staleness", k) for k in ("0", "1", "2")]
    assert program(shell, "out") == texts[0]
    assert len({identity(text) for text in texts}) == 3
    step = "rpeg-bounded-async{staleness=2}"
    written = rewritten(shell, step)
    shell.write(text=written, name="q.rpeg")
    assert program(shell, "same", file="q.rpeg") == texts[2]


def rewritten(shell: Shell, passes: str) -> str:
    done = opt(str(shell.folder / "p.rpeg"), "-p", passes, "-t", "rpeg")
    assert done.code == 0, done.err
    return done.out


def test_a_plan_of_two_pools(shell: Shell) -> None:
    """A line of the plan comes with the new stage, on the pool that trains."""
    plan = (
        '  plan two on "cpu" {\n    pool rollout = cores(0..0, per_node=1)\n'
        "    pool trainer = cores(0..0, per_node=1)\n    y on rollout, par(dp=1)\n"
        "    r on rollout\n    lp_ref on trainer, par(dp=1)\n"
        "    actor on trainer, par(dp=1), publish(rollout, mode=reshard), "
        "publish(trainer, mode=reshard)\n    heldout_acc on trainer, par(dp=1)\n  }\n}\n"
    )
    sampled = ("    lp_old = logprob(actor@i, y)\n", ""), ("adv, lp_old,", "adv, lp,")
    shell.write(text=grpo(ALLOW, *sampled).removesuffix("}\n") + plan)
    out = shell.folder / "out"
    done = shell("compile", "p.rpeg", "--plan", "two", "--staleness", "2", "-o", str(out))
    assert done.code == 0, done.err
    rollout, trainer = ((out / f"program_{p}.py").read_text() for p in ("rollout", "trainer"))
    assert 'rt.ReceivedWeights(run, actor, source="trainer", window=2)' in rollout
    assert "rt.importance" in trainer and "rt.importance" not in rollout


REFUSED = {
    "async_corrections:decoupled": "staleness=2 narrows no window",
    "async_corrections:icepop": "staleness=2 narrows no window",
    "dpo:dpo": "samples from no model that it trains",
    "reward_model:reward_model": "samples from no model that it trains",
    "sft_warmup:sft_warmup": "samples from no model that it trains",
    "sort_digits:warmup": "samples from no model that it trains",
    "on_policy_distillation:opd": "distill is on-policy",
    "gspo_moe:gspo": "routing=record does not compile yet",
    "multi_turn_tools:search_agent": "adapters (lora) do not compile yet",
}
"""Examples that can't run two steps ahead, and why."""


def ahead(text: str, pipeline: str) -> ModuleOp:
    """The program of a pipeline of a text that runs two steps ahead. Raises Failure."""
    source = Source(Path("p.rpeg"), text, pipeline)
    return compile_text(source, Choice(processes=1, ahead=Ahead(2, "decoupled"), allow_python=True))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda path: path.stem)
def test_examples_compile_to_run_ahead(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = file.read_text(encoding="utf-8")
    if "allow bounded_async" not in text:
        text = re.sub("(?m)^  step ", "  allow bounded_async(staleness=2)\n  step ", text)
    for pipeline in re.findall(r"^pipeline (\w+)", text, flags=re.M):
        refused = REFUSED.get(f"{file.stem}:{pipeline}")
        if refused is None:
            assert "rrt.ahead" in str(ahead(text, pipeline))
            continue
        with pytest.raises(Failure):
            ahead(text, pipeline)
        assert refused in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compile", "run", "verify"])
def test_what_is_refused_has_a_place(shell: Shell, command: str) -> None:
    text = shell.write(ALLOW)
    more = ["-o", str(shell.folder / "out")] if command == "compile" else []
    done = shell(command, "p.rpeg", "--staleness", "5", *more)
    assert done.code == 1
    at = place(text, "generate(actor")
    assert f"p.rpeg:{at}: error: `y` would be up to 5 steps old, the file allows 4" in done.err
    assert "out" not in shell.names()


EXPLAINED = ["--cluster", "alps-1", "--arch", "actor=qwen3-0.6b", "--arch", "ref=qwen3-0.6b"]
NARROWER = (
    "`y` may be 2 steps old as the file says it, and staleness={} narrows no window: write {}"
)


@pytest.mark.parametrize("command", ["compile", "check", "explain"])
def test_a_window_of_the_text_is_not_narrowed(shell: Shell, command: str) -> None:
    """Less is an error; nothing at all leaves the text as it is, which is noted."""
    shell.write(ALLOW)
    text = rewritten(shell, "rpeg-bounded-async{staleness=2}")
    shell.write(text=text)
    more = {"compile": ["-o", str(shell.folder / "out")], "explain": EXPLAINED}
    given = [command, "p.rpeg", *more.get(command, ())]
    at = f"p.rpeg:{place(text, 'generate(actor')}"
    done = shell(*given, "--staleness", "1")
    assert f"{at}: error: {NARROWER.format(1, 'actor@[i-1..i]')}" in done.err and done.code == 1
    done = shell(*given, "--staleness", "0")
    assert done.err.count(f"{at}: note: {NARROWER.format(0, 'actor@i')}") == 1 and done.code == 0
    done = shell(*given, "--staleness", "2")
    assert "narrows" not in done.err and done.code == 0


def test_permission_is_asked_for(shell: Shell) -> None:
    shell.write()
    done = shell("compile", "p.rpeg", "--staleness", "1", "-o", str(shell.folder / "out"))
    assert done.code == 1 and "add `allow bounded_async(...)` to permit it" in done.err


def test_a_correction_of_nothing(shell: Shell) -> None:
    shell.write(ALLOW)
    done = shell("run", "p.rpeg", "--correction", "icepop")
    assert (done.code, done.out) == (2, "")
    assert "--correction is for what --staleness changes: give both" in done.err


def test_a_check_without_a_cluster_tells_what_may_not_run_ahead(shell: Shell) -> None:
    """Of each pipeline of a file, at its own place."""
    shell.write(ALLOW)
    done = shell("check", "p.rpeg", "--staleness", "2")
    assert (done.code, done.err) == (0, "")
    done = shell("check", "p.rpeg", "--staleness", "5")
    assert (done.code, done.out) == (1, "")
    assert re.search(r"p\.rpeg:\d+:\d+: error: `y` would be up to 5 steps old", done.err)
    done = shell("check", "p.rpeg", "--correction", "icepop")
    assert done.code == 2 and "--correction is for what --staleness changes" in done.err
