"""Samples whose tokens have several sources: versions of the weights, and tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from rpeg.interp.environments import Episode, Episodes
from rpeg.interp.rectangle import Rectangle
from rpeg.interp.sampler import Completion, Rows, SamplingSettings, collated, sample
from rpeg.interp.tools import Tool, answer
from rpeg.interp.values import Weights
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.trajectories import Prompts, Trajectories

NOBODY = -1
"""The version of a token that no weights wrote."""


@dataclass(frozen=True)
class Writer:
    """The sources of the tokens of one `generate`."""

    weights: Weights
    """The newest that write."""
    tools: Mapping[str, Tool] = field(default_factory=dict)
    max_turns: int = 1
    held: Sequence[Weights] = ()
    """Versions by their number, where an oracle chose among them."""
    versions: Tensor | None = None
    """[samples, tokens] int64: which of them writes each token."""
    environment: Episodes | None = None
    """What answers every turn, in place of tools."""

    def write(self, prompts: Prompts, settings: SamplingSettings) -> tuple[Trajectories, Tensor]:
        """n samples for each prompt, and the log-probs [samples, max_tokens] they are drawn under.

        Where one version writes all, they are sampled as without a window, bit by bit.
        """
        found = None if self.versions is None else self.versions.unique().tolist()
        if self.tools or self.environment is not None or (found is not None and len(found) > 1):
            return self._one_by_one(prompts, settings)
        weights = self.weights if found is None else replace(self.held[found[0]], version=found[0])
        return sample(weights, prompts, settings)

    def _one_by_one(
        self, prompts: Prompts, settings: SamplingSettings
    ) -> tuple[Trajectories, Tensor]:
        ids = [self.weights.model.network.tokenizer.encode(row.prompt) for row in prompts.rows]
        places = [(k, s) for k in range(len(ids)) for s in range(settings.n)]
        found = []
        for k, s in places:
            talk = None if self.environment is None else self.environment.begin(prompts.rows[k])
            number, ordinal = k * settings.n + s, prompts.ordinals[k : k + 1]
            found.append(Draft(self, ids[k], settings, ordinal, s, number, talk).run())
        return collated(self.weights, prompts, ids, found, settings)

    def logprobs(self, y: Trajectories) -> Tensor:
        """[samples, max_tokens] how probable the tokens of y are to who writes them."""
        rows = Rectangle.of(y, self.weights.model.network.tokenizer)
        if self.versions is None:
            return self.weights.model.outputs(self.weights.tensors, rows).logprob
        found = torch.zeros(y.tokens.shape)
        for version in self.versions.unique().tolist():
            held = self.held[version]
            said = held.model.outputs(held.tensors, rows).logprob
            found = torch.where(self.versions == version, said, found)
        return found

    def by(self, sample: int, position: int) -> tuple[Weights, int]:
        """(weights, their version) that write a token."""
        if self.versions is None:
            return self.weights, self.weights.version
        version = int(self.versions[sample, position])
        return self.held[version], version

    def until(self, sample: int, position: int, end: int) -> int:
        """How far the version of `position` goes, at most to `end`."""
        if self.versions is None:
            return end
        row = self.versions[sample, position:end]
        return position + int((row == row[0]).cumprod(dim=0).sum())


class Draft:
    """One sample, span by span and turn by turn."""

    def __init__(
        self,
        writer: Writer,
        prompt: tuple[int, ...],
        settings: SamplingSettings,
        ordinal: Tensor,
        index: int,
        row: int,
        episode: Episode | None,
    ) -> None:
        self._writer = writer
        self._episode = episode
        self._prompt = prompt
        self._settings = settings
        self._coordinates = ordinal, torch.tensor([index])
        self._row = row
        self._text = Completion([], [], False, [], [])
        self._turn = 0
        """Where the turn at work began."""
        self._turns = 1

    def run(self) -> Completion:
        """The whole sample."""
        end = self._settings.max_tokens
        while len(self._text.tokens) < end and not self._text.finished:
            self._span(self._writer.until(self._row, len(self._text.tokens), end))
            if self._text.finished and self._turns < self._writer.max_turns:
                self._answer()
        return self._text

    def _span(self, end: int) -> None:
        """Goes on with one version to position `end`, or to the end of the turn."""
        tokens, start = self._text.tokens, len(self._text.tokens)
        weights, version = self._writer.by(self._row, start)
        model = weights.model
        rows = Rows(
            model.network, model.effective(weights.tensors), self._settings, *self._coordinates
        )
        context = torch.tensor([[*self._prompt, *tokens]])
        said = rows.run(context, range(start, end), tokens[self._turn :])[0]
        self._add(said.tokens, said.logprobs, version)
        self._text = replace(self._text, finished=said.finished)

    def _answer(self) -> None:
        """Lets the environment speak, or a tool where the turn calls one."""
        tokenizer, turn = self._writer.weights.model.network.tokenizer, self._text.tokens
        said = self._said(turn[self._turn :], tokenizer)
        if said is None:
            return
        room = self._settings.max_tokens - len(self._text.tokens)
        ids = tokenizer.encode_text(said)[:room]
        self._add(list(ids), [0.0] * len(ids), NOBODY)
        self._text = replace(self._text, finished=False)
        self._turn, self._turns = len(self._text.tokens), self._turns + 1

    def _said(self, turn: list[int], tokenizer: Tokenizer) -> str | None:
        if self._writer.environment is not None and self._episode is not None:
            return self._writer.environment.answer(self._episode, turn)
        return answer(tokenizer.decode(turn), self._writer.tools)

    def _add(self, tokens: list[int], logprobs: list[float], version: int) -> None:
        text, written = self._text, [version] * len(tokens)
        self._text = replace(
            text,
            tokens=[*text.tokens, *tokens],
            logprobs=[*text.logprobs, *logprobs],
            versions=[*text.versions, *written],
            mask=[*text.mask, *[version != NOBODY] * len(tokens)],
        )
