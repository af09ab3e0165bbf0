"""Trajectories as another model reads them: a reward model may have a tokenizer of its own."""

from __future__ import annotations

from dataclasses import replace

from rpeg.runtime.batches.examples import pad
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Trajectories

Spelling = tuple[tuple[int, ...], tuple[int, ...]]
"""Ids of a prompt, and of the response to it."""


def spelled(y: Trajectories, tokenizer: Tokenizer) -> Trajectories:
    """y with ids that `tokenizer` reads as y's texts. Ids that do so already stay. Otherwise prompt
    and response are tokenized anew, with an end token where the response has ended; per-token
    fields of y do not fit the new tokens.
    """
    found = [_spelling(y, row, tokenizer) for row in range(len(y.rows))]
    if all(found[row] == _own(y, row) for row in range(len(y.rows))):
        return y
    tokens, mask = pad([response for _, response in found])
    prompts = tuple(prompt for prompt, _ in found)
    return replace(y, prompt_ids=prompts, tokens=tokens, mask=mask)


def _own(y: Trajectories, row: int) -> Spelling:
    return y.prompt_ids[row], tuple(y.tokens[row][y.mask[row]].tolist())


def _spelling(y: Trajectories, row: int, tokenizer: Tokenizer) -> Spelling:
    prompt, text = tokenizer.encode_prompt(y.rows[row]), y.texts[row]
    _, response = own = _own(y, row)
    kept = [i for i in response if i not in tokenizer.eos_ids]
    ended = len(kept) < len(response)
    if own[0] == prompt and ended == bool(y.finished[row]) and tokenizer.decode(kept) == text:
        return own
    again = tokenizer.encode_completion(text)
    return prompt, again if y.finished[row] or len(again) == 1 else again[:-1]
