"""The tokenizer of a model folder: text to ids and back, and which ids end a completion."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpeg.runtime.errors import DataFailure, ModelFailure
from rpeg.runtime.trajectories import Row

_TOKEN_FILES = ("generation_config.json", "config.json")


class Tokenizer:
    """`tokenizer.json` with the end and padding ids that the folder's configurations name."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer as Backend

        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelFailure(f"{folder} has no tokenizer.json: save a fast tokenizer into it")
        try:
            self._backend = Backend.from_file(str(path))
        except Exception as error:  # the library raises nothing more specific
            raise ModelFailure(f"{path} is not a tokenizer: {error}") from error
        settings = [_read(folder / name) for name in _TOKEN_FILES]
        self.eos_ids = frozenset(self._ids(folder, settings, "eos"))
        """Ids that end a completion."""
        if not self.eos_ids:
            raise ModelFailure(f"{folder} names no eos_token_id: add it to its config.json")
        pads = self._ids(folder, settings, "pad")
        self.pad_id: int | None = next((i for i in pads if i not in self.eos_ids), None)
        """Id that is never sampled, or None where the model has none of its own."""

    @property
    def size(self) -> int:
        """One more than the largest id."""
        return 1 + max(self._backend.get_vocab().values(), default=-1)

    def same_ids(self, other: Tokenizer) -> bool:
        """Whether the same ids stand for the same tokens."""
        return bool(self._backend.get_vocab() == other._backend.get_vocab())

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a prompt, with the beginning-of-sequence id where the model wants one."""
        return self._encode(text, special=True)

    def encode_prompt(self, row: Row) -> tuple[int, ...]:
        """`encode` of a row's prompt. Raises DataFailure, with the row's place, if it can't be."""
        try:
            ids = self.encode(row.prompt)
        except ModelFailure as error:
            raise DataFailure(f"{row.place}: {error}") from error
        if not ids:
            raise DataFailure(f"{row.place}: the prompt is empty: a model needs at least one token")
        return ids

    def encode_completion(self, text: str) -> tuple[int, ...]:
        """Ids of a completion, its end included."""
        return (*self._encode(text, special=False), min(self.eos_ids))

    def encode_text(self, text: str) -> tuple[int, ...]:
        """Ids of a text inside of a trajectory: nothing is added."""
        return self._encode(text, special=False)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens."""
        return str(self._backend.decode(list(ids)))

    def _encode(self, text: str, special: bool) -> tuple[int, ...]:
        try:
            return tuple(self._backend.encode(text, add_special_tokens=special).ids)
        except Exception as error:  # the library raises nothing more specific
            raise ModelFailure(f"the tokenizer can't encode {text!r}: {error}") from error

    def _ids(self, folder: Path, settings: list[dict[str, Any]], role: str) -> list[int]:
        found = [s.get(f"{role}_token_id") for s in settings]
        token = _read(folder / "tokenizer_config.json").get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        found.append(self._backend.token_to_id(text) if text else None)
        lists = [f if isinstance(f, list) else [f] for f in found if f is not None]
        return [int(i) for each in lists for i in each]


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelFailure(f"{path} is not valid JSON: {error}") from error
    return content
