"""Checkpoints: what is refused and by which name, what is kept, what a kill leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rpeg.resources import resource
from rpeg.rundir.manifest import Manifest, Written
from rpeg.runtime.errors import CheckpointFailure
from rpeg.runtime.layout import Layout
from rpeg.runtime.state.checkpoint import (
    Restored,
    State,
    newest_sound,
    read_parts,
    restore,
    restore_models,
    save,
    save_models,
    saved_steps,
    verified,
)


class Number:
    """A part of the state: one tensor."""

    def __init__(self, value: float = 0.0) -> None:
        self.value = torch.full((64,), value)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Checkpoints of the steps 10, 20 and 30; each holds its step."""
    for step in (10, 20, 30):
        save(tmp_path, step, State({"number": Number(step)}), keep=3)
    return tmp_path


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def damaged_manifest(checkpoint: Path) -> None:
    flip(checkpoint / "manifest.json")


def older_format(checkpoint: Path) -> None:
    manifest = {"step": 30, "processes": 1, "files": ["number.pt"]}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


DAMAGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut short": (lambda c: cut(c / "number.pt"), "number.pt: "),
    "a byte flipped": (lambda c: flip(c / "number.pt"), "number.pt: its checksum differs"),
    "a file lost": (lambda c: (c / "number.pt").unlink(), "number.pt: missing"),
    "manifest changed": (damaged_manifest, "manifest.json: its checksum differs"),
    "manifest lost": (lambda c: (c / "manifest.json").unlink(), "manifest.json: missing"),
    "older format": (older_format, "manifest.json: written by another version of rpeg"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_used(
    folder: Path, damage: str
) -> None:
    inflict, said = DAMAGES[damage]
    inflict(folder / "step-000030")
    number = Number()
    restored = restore(folder, State({"number": number}))
    assert restored.step == number.value[0] == 20
    (note,) = restored.notes
    assert note.startswith(f"checkpoint step-000030 is damaged: {said}")
    assert newest_sound(folder) == (20, [note])


def test_every_single_byte_of_the_manifest_counts(folder: Path) -> None:
    path = folder / "step-000030" / "manifest.json"
    whole = path.read_bytes()
    for k in range(len(whole)):
        path.write_bytes(whole[:k] + bytes([whole[k] ^ 4]) + whole[k + 1 :])
        assert verified(path.parent), f"byte {k}"
    path.write_bytes(whole)
    assert verified(path.parent) == []


def test_where_none_is_sound_all_are_named(folder: Path) -> None:
    for step in saved_steps(folder):
        flip(folder / f"step-{step:06d}" / "number.pt")
    with pytest.raises(CheckpointFailure, match=r"step-000030 .*step-000020 .*step-000010") as info:
        restore(folder, State({"number": Number()}))
    assert f"delete {folder}" in str(info.value)


def test_without_checkpoints_a_run_begins(tmp_path: Path) -> None:
    assert restore(tmp_path / "none", State({"number": Number()})) == Restored()


def test_the_newest_stay(folder: Path) -> None:
    save(folder, 40, State({"number": Number(40)}), keep=2)
    assert saved_steps(folder) == [30, 40]
    assert sorted(path.name for path in folder.iterdir()) == ["step-000030", "step-000040"]


def test_damaged_checkpoints_never_push_out_the_sound_one(folder: Path) -> None:
    for step in (20, 30):
        flip(folder / f"step-{step:06d}" / "number.pt")
    state = State({"number": Number()})
    assert restore(folder, state).step == 10
    save(folder, 20, state, keep=1)
    assert saved_steps(folder) == [20]
    assert verified(folder / "step-000020") == []


def test_leftovers_of_killed_processes_go(folder: Path) -> None:
    for name in (".step-000040.tmp", ".step-000010.old"):
        (folder / name / "actor").mkdir(parents=True)
    restore(folder, State({"number": Number()}))
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


def test_a_disk_that_refuses_is_a_failure_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Manifest, "write", refuse)
    with pytest.raises(CheckpointFailure, match="No space left on device"):
        save(folder, 40, State({"number": Number(40)}), keep=1)
    assert saved_steps(folder) == [10, 20, 30]


class Shares:
    """A part of which each of two shares holds its own; this process has both."""

    def __init__(self, saves: tuple[int, int] | None) -> None:
        self.saves = saves
        self.loaded: list[dict[str, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        assert self.saves is not None
        return {"share": self.saves[0]}

    def load_shares(self, states: Sequence[dict[str, Any]]) -> None:
        self.loaded = list(states)


def test_each_share_has_a_file_and_reads_all(tmp_path: Path) -> None:
    state = State(shares={"y.buffer": Shares((0, 1))})
    save(tmp_path, 10, state, keep=1)
    assert (tmp_path / "step-000010" / "y.buffer.0-of-1.pt").is_file()
    part = Shares(None)
    assert restore(tmp_path, State(shares={"y.buffer": part})).step == 10
    assert part.loaded == [{"share": 0}]


def test_batches_ahead_are_never_left_behind(tmp_path: Path) -> None:
    save(tmp_path, 10, State(shares={"y.buffer": Shares((0, 1))}), keep=2)
    with pytest.raises(CheckpointFailure, match=r"sampled ahead \(y\.buffer\)"):
        restore(tmp_path, State())
    part = Shares(None)
    save(tmp_path, 20, State(), keep=2)
    assert restore(tmp_path, State(shares={"y.buffer": part})).step == 20
    assert part.loaded == []


class Model:
    """A trained model whose weights are one number."""

    layout, dtype = Layout(), torch.float32
    shape: Any = SimpleNamespace(critic=False)
    hf_folder = resource("models") / "tiny-qwen3-digits"

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def save_shards(self, folder: Path) -> None:
        (folder / ".metadata").touch()
        (folder / "shard").write_text(str(self.value))

    def load_shards(self, folder: Path) -> None:
        self.value = float((folder / "shard").read_text())


@dataclass
class Critics:
    """Another pool, as home speaks with it."""

    folder: Path
    step: int
    dies: bool = False

    def begin(self) -> None:
        """It writes at once."""
        self._said = save_models(self.folder, self.step, {"critic": Model(self.step)})

    def written(self) -> list[Written]:
        """Nothing is committed before it has said what."""
        assert self.step not in saved_steps(self.folder)
        if self.dies:
            raise RuntimeError("a process is gone")
        return [self._said]


def test_models_of_two_pools_are_committed_together(folder: Path) -> None:
    state = State({"number": Number(40)}, {"actor": Model(40)})
    save(folder, 40, state, 3, Critics(folder, 40))
    checkpoint = folder / "step-000040"
    assert verified(checkpoint) == []
    assert set(Manifest.read(checkpoint).layouts) == {"actor", "critic"}
    for name in ("actor", "critic"):
        model = Model()
        assert restore_models(folder, 40, {name: model}) == []
        assert model.value == 40
    flip(checkpoint / "critic" / "shard")
    assert verified(checkpoint) == ["critic/shard: its checksum differs"]
    assert restore(folder, State({"number": Number()})).step == 30


def test_a_death_between_writing_and_committing(folder: Path) -> None:
    """The shards of all pools are there, and the checkpoint before is the newest."""
    state = State({"number": Number(40)}, {"actor": Model(40)})
    with pytest.raises(RuntimeError, match="is gone"):
        save(folder, 40, state, 3, Critics(folder, 40, dies=True))
    begun = folder / ".step-000040.tmp"
    assert (begun / "actor" / "shard").is_file() and (begun / "critic" / "shard").is_file()
    assert restore(folder, State({"number": Number()})).step == 30
    assert not begun.exists()


def test_what_is_in_flight_is_never_left_behind(tmp_path: Path) -> None:
    in_flight = {"y.flight": {"ordinals": [4]}, "train": {"next": 8}}
    save(tmp_path, 10, State(away=in_flight), keep=2)
    assert read_parts(tmp_path, 10, ["train", "y.flight"]) == in_flight
    with pytest.raises(CheckpointFailure, match=r"in flight \(y\.flight\).*index order"):
        read_parts(tmp_path, 10, ["train"])
    save(tmp_path, 20, State(away={"train": {"next": 8}}), keep=2)
    with pytest.raises(CheckpointFailure, match=r"was written in index order.*\(y\.flight\)"):
        read_parts(tmp_path, 20, ["train", "y.flight"])
