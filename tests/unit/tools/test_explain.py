"""`rpeg explain`: figures that agree with each other, and what can't be predicted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.unit.passes.pipelines import grpo
from tests.unit.tools.commands import PLAN, Shell

EXAMPLES = Path(__file__).parents[3] / "examples"
CLUSTERS = EXAMPLES.parent / "clusters"
PPO = str(EXAMPLES / "ppo_critic.rpeg")
ASYNC = str(EXAMPLES / "async_grpo_alps64.rpeg")


def figures(shell: Shell, *words: str) -> dict[str, object]:
    done = shell("explain", *words, "--json")
    assert (done.code, done.err) == (0, "")
    found: dict[str, object] = json.loads(done.out)
    return found


def test_what_stops_a_plan_is_told_once(shell: Shell) -> None:
    text = grpo().removesuffix("}\n") + PLAN.replace("    y on", "    # y on") + "}\n"
    shell.write(text=text)
    done = shell("explain", "p.rpeg", "--plan", "wide")
    assert done.code == 1
    assert done.err.count("the plan leaves y open") == 1
    assert "error: the plan leaves y open" in done.err


def test_cluster_files_are_refused_in_one_form(shell: Shell) -> None:
    text = (CLUSTERS / "h100.toml").read_text()
    one = 'max_nodes = { value = 1, source = "default", cite = "" }\n'
    for key in ("gpus_per_node", "memory_gb", "hbm_gb_per_s", "gemm_efficiency"):
        changed = re.sub(rf"(?m)^{key} = .*$", f"{key} = 3", text)
        (shell.folder / "my.toml").write_text(one + changed)
        done = shell("explain", "p.rpeg", "--cluster", "my.toml")
        assert done.code == 2
        assert re.match(rf"error: --cluster: my.toml:\d+:1: {key} has another", done.err), done.err


def test_a_synchronous_step_waits_for_all_of_itself(shell: Shell) -> None:
    found = figures(shell, PPO, "--plan", "node")
    hops = found["critical_hops"]
    assert isinstance(hops, list)
    assert [hop["task"] for hop in hops] == [
        *("y", "r", "lp_old", "lp_ref", "v", "critic", "every_1/actor", "publish_actor"),
    ]
    assert sum(hop["seconds"] for hop in hops) == pytest.approx(found["period_s"])
    assert sum(hop["steps"] for hop in hops) == found["critical_distance"] == 1
    changes = found["what_if"]
    assert isinstance(changes, list)
    saved = {change["what"]: found["period_s"] - change["period_s"] for change in changes}  # type: ignore[operator]
    assert saved["`y` takes a tenth less"] == pytest.approx(hops[0]["seconds"] / 10)


def test_pools_of_their_own_wait_for_the_slower_one(shell: Shell) -> None:
    done = shell("explain", ASYNC, "--cluster", "alps-64")
    assert done.code == 0
    assert "async_grpo: plan alps64 on alps-64, 256 GPUs\n" in done.out
    assert "behind y of the step before, through q: next on the same resource\n" in done.out
    assert "no line `expect aime24`" in done.out


def without_a_window(folder: Path) -> str:
    """The file ASYNC, sampling under the newest weights; what else it says of a window stays."""
    text = Path(ASYNC).read_text(encoding="utf-8")
    for old, new in (("@[i-$staleness..i]", "@i"), (" bound=strict, overflow=drop,", "")):
        text = text.replace(old, new)
    (folder / "sync.rpeg").write_text(text.replace("  param staleness = 2\n", ""))
    return str(folder / "sync.rpeg")


def test_what_a_window_gains_is_asked_without_editing_the_file(
    shell: Shell, tmp_path: Path
) -> None:
    file = without_a_window(tmp_path)
    words = (file, "--plan", "alps64")
    wide = figures(shell, *words, "--staleness", "2")
    assert wide["period_s"] == figures(shell, ASYNC, "--plan", "alps64")["period_s"]
    assert wide["period_s"] < 0.9 * figures(shell, *words)["period_s"]  # type: ignore[operator]
    simulated = shell("simulate", *words, "--staleness", "2", "--steps", "2", "--json")
    assert (simulated.code, simulated.err) == (0, "")
    for command in ("explain", "simulate", "report", "check"):
        done = shell(command, *words, "--staleness", "5")
        assert (done.code, done.out) == (1, "")
        assert "`y` would be up to 5 steps old, the file allows 4" in done.err


def test_without_a_window_pools_wait_for_each_other(shell: Shell, tmp_path: Path) -> None:
    found = figures(shell, without_a_window(tmp_path), "--plan", "alps64")
    hops = found["critical_hops"]
    assert isinstance(hops, list)
    assert (hops[0]["task"], hops[0]["why"]) == ("y", "staleness")
    assert {hop["resource"] for hop in hops} >= {"rollout", "trainer"}
    changes = found["what_if"]
    assert isinstance(changes, list)
    assert changes[0]["what"] == "weights may be one step older"


def test_times_vary_where_no_cap_holds_them(shell: Shell, tmp_path: Path) -> None:
    text = Path(PPO).read_text(encoding="utf-8")
    free = tmp_path / "free.rpeg"
    free.write_text(
        text.replace("max_tokens=1024", "max_tokens=8192").replace("cap=1024", "cap=8192")
    )
    found = figures(shell, str(free), "--plan", "node")
    assert found["varied_period_s"] != found["period_s"]
    capped = figures(shell, PPO, "--plan", "node")
    assert capped["varied_period_s"] == pytest.approx(capped["period_s"])


def test_the_only_plan_names_the_cluster(shell: Shell) -> None:
    assert shell("explain", PPO).out == shell("explain", PPO, "--plan", "node").out
    assert "where is it to run?" in shell("explain", ASYNC).err
    assert "where is it to run?" in shell("explain", str(EXAMPLES / "dpo.rpeg")).err


def test_the_size_of_what_is_evaluated(shell: Shell) -> None:
    """The least of the limits and of the lines of a file that is here; else it is noted."""

    def seconds(name: str, data: str) -> tuple[float, bool]:
        text = Path(ASYNC).read_text(encoding="utf-8")
        text = re.sub(r'prompts\("data/aime24.jsonl".*\)', f"prompts({data})", text)
        shell.write(text=text, name=name)
        found: Any = figures(shell, name, "--plan", "alps64")
        took = {stage["stage"]: stage["seconds"] for stage in found["stages"]}
        return took["aime"], any("size of `aime24`" in note for note in found["notes"])

    (shell.folder / "thirty.jsonl").write_text("{}\n" * 30 + "\n", encoding="utf-8")
    thirty = seconds("file.rpeg", '"thirty.jsonl"')
    unknown = seconds("unknown.rpeg", '"gone.jsonl"')
    assert unknown[1] and not thirty[1] and unknown[0] > thirty[0]
    assert seconds("limit.rpeg", '"gone.jsonl", limit=30') == thirty
    assert seconds("both.rpeg", '"thirty.jsonl", limit=500') == thirty


def test_prompts_that_nothing_tells_of_are_noted(shell: Shell) -> None:
    assert "no line `expect train`: prompts of 150 tokens on average\n" in shell("explain", PPO).out


def test_what_cannot_be_predicted(shell: Shell) -> None:
    slow = shell("explain", str(EXAMPLES / "async_two_pools.rpeg"), "--plan", "two")
    assert slow.code == 1
    assert "rpeg calibrate" in slow.err
    text = Path(PPO).read_text(encoding="utf-8").replace("hf:Qwen/Qwen2.5-7B-Instruct", "models/x")
    shell.write(text=text)
    unknown = shell("explain", "p.rpeg", "--plan", "node")
    assert unknown.code == 1
    assert unknown.err.startswith("p.rpeg:")
    assert shell("explain", "p.mlir").code != 0
