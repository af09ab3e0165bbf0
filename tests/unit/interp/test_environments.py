"""An environment answers every turn; its words train nothing, and its reward is of the turns."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rpeg.interp import Interpreter, InterpreterError, Replay, World
from rpeg.interp.network import Network, initial_tensors
from rpeg.runtime.models.model_source import open_source
from rpeg.runtime.trajectories import Trajectories
from tests.unit.interp.pipelines import parse
from tests.unit.interp.small import VOCABULARY, write_world

SAYS = "=7="
ROUNDS = 3
CODE = f'''
class Count:
    """Answers two turns; the sample has earned the 3s that the policy said, and its row."""

    def __init__(self, row):
        self.threes, self.turns, self.row = 0, 0, row

    def step(self, turn):
        self.threes, self.turns = self.threes + turn.count("3"), self.turns + 1
        return "{SAYS}" if self.turns < {ROUNDS} else None

    def reward(self):
        return self.threes + int(self.row.answer)


class Silent(Count):
    def step(self, turn):
        return ""


class Broken(Count):
    def step(self, turn):
        return turn.nonsense


class Numbers(Count):
    def step(self, turn):
        return 3


class Unpaid(Count):
    def reward(self):
        return None


class Deaf:
    def __init__(self, row):
        pass

    def reward(self):
        return 0


class Picky(Count):
    def __init__(self, row):
        raise ValueError("not this row")


SEED = 1
'''
STOP = ", ".join(f'"{digit}"' for digit in "0123456789")
STEP = f"""
    q = batch(train, size=4)
    y, lp = generate(actor@i, q, world, n=2, max_tokens=16, max_turns=5, stop=[{STOP}])
    r = score(world, y)
    adv = group_advantage(r, baseline=mean, scale=none)
    pg = policy_gradient(y, adv)
    actor@i+1 = update(actor@i, pg, agg=token_mean)
    every(steps=1) {{
      dev = eval(actor@i+1, train, world, world, max_turns=2, max_tokens=4, limit=2)
    }}"""


def things(episode: str = "Count", more: str = "") -> str:
    world = f'tool world = environment("python:counting_world:{episode}")'
    return f'{world}\n  data train = prompts("prompts.jsonl")\n  {more}'


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("RPEG_ALLOW_PYTHON", "1")
    write_world(tmp_path)
    (tmp_path / "counting_world.py").write_text(CODE)
    return World(tmp_path)


def spoken(y: Trajectories, row: int) -> tuple[list[str], list[str]]:
    """What the policy wrote of a sample, token by token, and what it read."""
    pairs = list(zip(y.tokens[row].tolist(), y.versions[row].tolist(), strict=True))
    wrote = [VOCABULARY[t] for t, version in pairs if version >= 0 and VOCABULARY[t] != "<eos>"]
    return wrote, [VOCABULARY[t] for t, version in pairs if version < 0 and t]


def test_rewards_and_what_is_trained_on(world: World) -> None:
    record = Interpreter(parse(STEP, more=things()), "p", world).run(2)
    heard = 0
    for step in record.steps:
        y, rewards = step.trajectories["y"], step.rewards["r"]
        for row in range(len(y.rows)):
            wrote, read = spoken(y, row)
            heard += len(read)
            assert "".join(read) in (SAYS * (ROUNDS - 1))[: len(read)] + SAYS
            assert rewards[row] == "".join(wrote).count("3") + int(y.rows[row].answer or "")
        assert torch.equal(y.mask, y.versions >= 0)
        assert step.metrics["dev"] >= 0
    assert heard > 8 * len(SAYS)


def test_the_gradient_is_of_the_policys_own_words(world: World) -> None:
    """By hand: REINFORCE over the tokens that the policy wrote, read in their context."""
    machine = Interpreter(parse(STEP, more=things()), "p", world)
    step = machine.run(1).steps[0]
    y, reward = step.trajectories["y"], step.rewards["r"].view(-1, 2)
    adv = (reward - reward.mean(dim=1, keepdim=True)).flatten()
    source = open_source(world.root / "tiny", "tiny", 0)
    tensors = {n: t.requires_grad_() for n, t in initial_tensors(source).items()}
    total = torch.zeros(())
    for row, prompt in enumerate(y.prompt_ids):
        ids = torch.tensor([[*prompt, *y.tokens[row].tolist()]])
        said = Network(source).logits(tensors, ids).log_softmax(dim=-1)[0, len(prompt) - 1 : -1]
        chosen = said.gather(1, y.tokens[row].unsqueeze(1)).squeeze(1)
        total = total - adv[row] * chosen[y.versions[row] >= 0].sum()
    (total / (y.versions >= 0).sum()).backward()
    grads = [t.grad for t in tensors.values() if t.grad is not None]
    norm = torch.stack([g.square().sum() for g in grads]).sum().sqrt()
    torch.testing.assert_close(torch.tensor(step.grad_norms["actor"]), norm.view(1))


def test_a_recording_is_replayed(world: World) -> None:
    module = parse(STEP, more=things())
    record = Interpreter(module, "p", world).run(2)
    again = Interpreter(module, "p", World(world.root), oracle=Replay(record)).run(2)
    for name, held in record.weights["actor"].items():
        assert torch.equal(held, again.weights["actor"][name])


@pytest.mark.parametrize(
    ("episode", "message"),
    [
        ("Silent", r"step\(\) said nothing: give a text, or None"),
        ("Broken", r"step\(\) failed at \S+counting_world.py:23: AttributeError"),
        ("Numbers", r"step\(\) gave 3: give a text, or None to end the sample"),
        ("Unpaid", r"reward\(\): the reward must be a finite number, not None"),
        ("Deaf", r"its call with a row gives a Deaf, which has no step\(\)"),
        ("Picky", r"its call with a row failed at \S+counting_world.py:46: ValueError\('not this"),
    ],
)
def test_what_an_environment_may_not_do(episode: str, message: str, world: World) -> None:
    at = r"^p.rpeg:\d+:\d+: rpeg.tool: `world`: "
    with pytest.raises(InterpreterError, match=at + message):
        Interpreter(parse(STEP, more=things(episode)), "p", world).run(1)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("counting_world:Cuont", r"`Cuont` is not there in \S+/counting_world.py: name .*`Count`"),
        ("counting_world:SEED", r"`SEED` is a value in \S+/counting_world.py: name a function"),
        ("nowhere:Game", r"nowhere can't be imported: there is none in \S+, nor an installed one"),
        ("half.done:Game", r"half.done can't be imported: there is none in "),
        ("unwritten:Game", r"unwritten can't be imported: SyntaxError"),
        ("lacking:Game", r"lacking can't be imported: ModuleNotFoundError.*'no_such_module'"),
    ],
)
def test_code_that_is_not_there(source: str, message: str, world: World) -> None:
    (world.root / "unwritten.py").write_text("class\n")
    (world.root / "lacking.py").write_text("import no_such_module\n")
    text = things().replace("counting_world:Count", source)
    at = rf"^p.rpeg:\d+:\d+: rpeg.tool: `python:{source}`: "
    with pytest.raises(InterpreterError, match=at + message):
        Interpreter(parse(STEP, more=text), "p", world)
