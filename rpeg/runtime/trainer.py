"""Trained models, frozen models, and the initial weights of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from rpeg.runtime.batches.batching import microbatches, minibatches, together
from rpeg.runtime.batches.examples import Examples, ModelInputs
from rpeg.runtime.batches.spelling import spelled
from rpeg.runtime.errors import ModelFailure
from rpeg.runtime.groups import Groups
from rpeg.runtime.interfaces import NamedTensors
from rpeg.runtime.layout import AdamW, Layout, MicroBatch
from rpeg.runtime.losses import Aggregation, Totals, loss_weights
from rpeg.runtime.models.model_source import ModelSource, open_source
from rpeg.runtime.models.shape import ModelShape
from rpeg.runtime.models.tokenizer import Tokenizer
from rpeg.runtime.pools.sampled import SampledModel
from rpeg.runtime.schedule import learning_rate
from rpeg.runtime.state.ledger import consumed
from rpeg.runtime.terms import Lesson, LossTerm, Said
from rpeg.runtime.trajectories import Batch, Demos, Pairs, Trajectories
from rpeg.sharding.boxes import Held

if TYPE_CHECKING:
    from rpeg.runtime.megatron.model import Answer
    from rpeg.runtime.run import Run


ANSWERS: Mapping[str, tuple[str, ...]] = {
    "policy": ("logprob",),
    "value": ("values",),
    "actor_critic": ("logprob", "values"),
    "reward": ("score",),
    "process_reward": ("token_scores",),
}
"""What a model can be asked for, by its role."""

_NAMES = {"logprob": "log-probs", "values": "values"}

Value = TypeVar("Value")
"""A batch, or a field of it."""

WHOLE = MicroBatch()
"""No bound: the whole minibatch at once."""


@dataclass(frozen=True)
class InitialWeights:
    """A model's weights before step 0 of the run, after a resume too: they are read again."""

    model: Model | SampledModel

    @property
    def source(self) -> ModelSource:
        """Where they are read."""
        return self.model.source


def open_weights(
    run: Run,
    name: str,
    source: str | InitialWeights,
    *,
    critic: bool = False,
    two_heads: bool = False,
) -> ModelSource:
    """The weights that a model starts from; says that they are being loaded. Raises ModelFailure
    for one that is to predict tokens and starts from one that scores.
    """
    heads = {"critic": critic, "two_heads": two_heads}
    if isinstance(source, InitialWeights):
        opened = ModelSource(source.source.folder, run.seed, **heads)
    else:
        path = run.resolve(source)
        if source.startswith("hf:") and not path.is_dir():
            run.say(f"fetching {source}, unless it is in the cache")
        opened = open_source(path, source, run.seed, **heads)
    run.say(f"loading `{name}`: {opened.shape.parameters / 1e6:.1f} M parameters")
    if opened.shape.critic and not critic:
        raise ModelFailure(
            f"`{name}`: {opened.folder} holds a model that scores, and it needs one that predicts "
            "tokens: name the model that it was trained from"
        )
    return opened


class Model:
    """A model that answers log-probs, values or scores; the common part of trained and frozen
    ones.
    """

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        role: str,
        source: str | InitialWeights,
        groups: Groups,
        dtype: str,
        micro_batch: MicroBatch = WHOLE,
    ) -> None:
        self.run = run
        self.name = name
        self.role = role
        self.groups = groups
        self.micro_batch = micro_batch
        if role not in ANSWERS:
            raise ModelFailure(f"`{name}`: {role} models can't run yet, only {', '.join(ANSWERS)}")
        heads = {"critic": not self.predicts, "two_heads": role == "actor_critic"}
        self.source = open_weights(run, name, source, **heads)
        from rpeg.runtime.megatron.replica import Replica  # which takes seconds

        self.tokenizer: Tokenizer = self.source.tokenizer
        """Its tokenizer."""
        self.replica = Replica(self.source, groups, dtype)
        self._crossing = run.crossing(groups)

    def here(self, batch: Value) -> Value:
        """A batch of the run's shares, or a field of it, in this model's. Collective."""
        if self._crossing is None:
            return batch
        with self.run.clock.stage(f"rows_{self.name}"):
            return self._crossing.there(batch)

    def _back(self, found: Tensor) -> Tensor:
        """A field of this model's shares, in the run's. Collective."""
        if self._crossing is None:
            return found
        with self.run.clock.stage(f"rows_{self.name}"):
            return self._crossing.back(found)

    @property
    def predicts(self) -> bool:
        """Whether it predicts tokens; else its one head gives numbers."""
        return "logprob" in ANSWERS[self.role]

    @property
    def shape(self) -> ModelShape:
        """Its architecture."""
        return self.source.shape

    @property
    def hf_folder(self) -> Path:
        """The Hugging Face folder whose configuration and tokenizer it has."""
        return self.source.folder

    def named_tensors(self) -> NamedTensors:
        """The current weights, whole, under Hugging Face names. Collective over tp and pp."""
        return self.replica.named_tensors()

    def held_tensors(self) -> Iterator[tuple[Held, Tensor]]:
        """(box of a whole tensor, this process's part of the current weights that it is)."""
        return self.replica.held_tensors()

    def logprob(self, y: Trajectories | Pairs) -> Tensor:
        """[samples, max_tokens] log-probs of y's tokens under the current weights, zero outside
        the mask; a pair is two samples.
        """
        (found,) = self.answers(self._examples(y), "logprob")
        return found

    def values(self, y: Trajectories) -> Tensor:
        """[samples, max_tokens] a critic's values before y's tokens, zero outside the mask."""
        (found,) = self.answers(self._examples(y), "values")
        return found

    def answers(self, examples: Examples, *asked: Said) -> list[Tensor]:
        """Of one forward pass over examples of this model's shares: [samples, max_tokens] for each
        thing asked for, in the run's shares.
        """
        for each in asked:
            self._require(each, _NAMES[each])
        with self.run.clock.stage(f"{'_'.join(asked)}_{self.name}"):
            found = [self._back(each) for each in self._per_token(examples, *asked)]
        for each, tensor in zip(asked, found, strict=True):
            self.run.oracle.computed(self, each, tensor)
        return found

    def score(self, y: Trajectories) -> Tensor:
        """[samples] a reward model's scores of y's responses."""
        self._require("score", "scores of responses")
        with self.run.clock.stage(f"score_{self.name}"):
            scores = self._scores(spelled(self.here(y), self.tokenizer))
        self.run.oracle.computed(self, "values", scores.unsqueeze(1))
        return scores

    def token_scores(self, y: Trajectories) -> Tensor:
        """[samples, max_tokens] a process-reward model's scores of y's tokens, zero outside the
        mask. Raises ModelFailure if it has another tokenizer than y.
        """
        self._require("token_scores", "scores of tokens")
        if spelled(y, self.tokenizer) is not y:
            raise ModelFailure(
                f"`{self.name}` scores tokens, and has another tokenizer than the policy: use a "
                "reward model, which scores texts"
            )
        with self.run.clock.stage(f"score_{self.name}"):
            examples = self._examples(y).behind(whole=False)
            (found,) = self._per_token(examples, "values")
            scores = self._back(found[:, 1:])
        self.run.oracle.computed(self, "values", scores)
        return scores

    def pair_scores(self, pairs: Pairs) -> Tensor:
        """[2 pairs] a reward model's scores of chosen and rejected responses, side by side."""
        self._require("score", "scores of responses")
        return self._scores(self.here(pairs))

    def _scores(self, batch: Trajectories | Pairs) -> Tensor:
        examples = Examples.of(batch, self.tokenizer).behind(whole=True)
        (found,) = self._per_token(examples, "values")
        return self._back(found.sum(dim=1))

    def _examples(self, batch: Batch) -> Examples:
        """What this model reads of a batch of the run's shares."""
        return Examples.of(self.here(batch), self.tokenizer)

    def demo_nll(self, demos: Demos | Pairs) -> tuple[Tensor, Tensor]:
        """([rows] summed negative log-likelihood in nats, [rows] completion tokens)."""
        examples = self._examples(demos)
        (found,) = self._per_token(examples, "logprob")
        return self._back(-found.sum(dim=1)), self._back(examples.mask.sum(dim=1))

    def _require(self, answer: str, what: str) -> None:
        if answer not in ANSWERS[self.role]:
            raise ModelFailure(f"`{self.name}` is a {self.role}, which has no {what}")

    def _per_token(self, examples: Examples, *said: Said) -> list[Tensor]:
        parts = self._microbatches(examples, torch.arange(len(examples)))
        return self.replica.per_token(examples, parts, said)

    def _microbatches(self, examples: Examples, rows: Tensor) -> list[list[int]]:
        """Without rows, this process idles along with those that have some."""
        bound, rounds = self.micro_batch, self.replica.rounds
        return microbatches(rows, examples.lengths, bound, rounds, examples.together)


class FrozenModel(Model):
    """A model that is never trained: a reference, a teacher, a reward model. It keeps no
    gradients.
    """


class Trainer(Model):
    """A trained model and its optimizer."""

    def __init__(
        self,
        run: Run,
        name: str,
        *,
        role: str,
        source: str | InitialWeights,
        groups: Groups,
        dtype: str,
        optimizer: AdamW,
        horizon: int,
        micro_batch: MicroBatch = WHOLE,
    ) -> None:
        super().__init__(
            run,
            name,
            role=role,
            source=source,
            groups=groups,
            dtype=dtype,
            micro_batch=micro_batch,
        )
        from rpeg.runtime.megatron.optimizer import Optimizer

        self.settings = optimizer
        self.horizon = horizon
        self.updates = 0
        """Updates it has had; fewer than steps where some steps leave it out."""
        self._optimizer = Optimizer(self.replica, optimizer)
        run.attach_model(name, self)

    @property
    def version(self) -> int:
        """Of its weights now: finished steps, the one at work included; 0 = initial weights."""
        return self.run.version

    def update(
        self,
        *terms: LossTerm,
        agg: Aggregation,
        epochs: int = 1,
        minibatches: int = 1,
        shuffle: bool = True,
        routing: str = "free",
        seed: int = 0,
    ) -> None:
        """epochs x minibatches optimizer steps on the sum of the terms.

        Rows without loss (all advantages zero, no other term) count, but aren't computed, and don't
        enter the reported means. `routing` matters to experts only, and these models are dense.
        Collective.
        """
        with self.run.clock.stage(f"update_{self.name}"):
            assert all(term.batch is terms[0].batch for term in terms), "one batch an update"
            examples = Examples.of(terms[0].batch, self.tokenizer)
            active = _active(terms)
            self.run.ledger.note(
                consumed(
                    self.name,
                    terms[0].batch,
                    examples.tokens,
                    examples.mask,
                    active,
                    epochs=epochs,
                    minibatches=minibatches,
                )
            )
            if self._crossing is not None:
                terms = tuple(term.moved(self.here) for term in terms)
                examples, active = Examples.of(terms[0].batch, self.tokenizer), _active(terms)
            if self.role == "reward":
                examples = examples.behind(whole=True)
            for epoch in range(epochs):
                seeds = (self.run.seed, seed, self.updates, epoch)
                steps = self._minibatches(examples, minibatches, shuffle, seeds)
                for rows, totals in zip(steps, self._totals(examples, steps), strict=True):
                    share = 1.0 / (epochs * minibatches)
                    weighing = _Weighing(agg, totals)
                    self._step(examples, terms, rows[active[rows]], weighing, share)
            self.updates += 1

    def _minibatches(
        self, examples: Examples, count: int, shuffle: bool, seeds: Sequence[int]
    ) -> list[Tensor]:
        shares = torch.zeros(self.groups.dp_size, dtype=torch.long)
        shares[self.groups.dp_rank] = len(examples) // examples.together
        sizes = self.groups.sum_over_data(shares).tolist()
        parts = minibatches(sizes, self.groups.dp_rank, count, shuffle=shuffle, seeds=seeds)
        return [together(part, examples.together) for part in parts]

    def _totals(self, examples: Examples, steps: list[Tensor]) -> list[Totals]:
        """What each minibatch trains on, over all processes."""
        lengths = examples.mask.sum(dim=1)
        counts = torch.stack(
            [torch.stack([lengths[rows].sum(), (lengths[rows] > 0).sum()]) for rows in steps]
        )
        return [Totals(*pair) for pair in self.groups.sum_over_data(counts).tolist()]

    def _step(
        self,
        examples: Examples,
        terms: Sequence[LossTerm],
        rows: Tensor,
        weighing: _Weighing,
        share: float,
    ) -> None:
        """One optimizer step on a minibatch's active rows; this process may have none."""
        temperature = examples.temperature

        def loss(answer: Answer, inputs: ModelInputs, micro: list[int]) -> Any:
            out = self.replica.outputs(answer, inputs, temperature)
            weights = weighing.weights(inputs.mask, idle=not micro)
            lesson = Lesson(micro or examples.idle, out, terms, weights)
            if micro:
                self.run.oracle.trained(self, examples, lesson)
            return _loss_and_report(lesson)

        self._optimizer.zero_grad()
        reports = self.replica.run(examples, self._microbatches(examples, rows), loss)
        lr = learning_rate(self.settings, self.updates, self.horizon)
        norm = self._optimizer.step(lr)
        self.run.oracle.stepped(self, norm)
        self._log("grad_norm", norm)
        self._log("lr", lr)
        for report in reports:
            self._report(report, share)

    def _report(self, report: _Report, share: float) -> None:
        self._log("loss", report.loss * share, how="sum")
        for name, value in report.means.items():
            self._log(name, value, report.count)

    def _log(self, name: str, value: float, weight: float = 1.0, how: Any = "mean") -> None:
        prefix = "" if self.predicts else f"{self.name}/"
        shard = None if self._crossing is None else self.groups.dp_rank
        self.run.log(prefix + name, value, weight, how, shard)

    @property
    def layout(self) -> Layout:
        """How it is spread over processes."""
        return self.groups.layout

    @property
    def dtype(self) -> torch.dtype:
        """Of its weights."""
        dtype: torch.dtype = self.replica.config.params_dtype
        return dtype

    def save_shards(self, folder: Path) -> None:
        """Writes weights, optimizer and count of updates into an empty folder. Collective."""
        from rpeg.runtime.megatron import storage

        storage.save(folder, self.replica, self._optimizer, {"updates": self.updates})

    def load_shards(self, folder: Path) -> None:
        """Reads what `save_shards` wrote, under any layout. Collective."""
        from rpeg.runtime.megatron import storage

        self.updates = storage.load(folder, self.replica, self._optimizer)["updates"]


def _active(terms: Sequence[LossTerm]) -> Tensor:
    """[samples] bool: rows that any term trains on."""
    return torch.stack([term.active() for term in terms]).any(dim=0)


@dataclass(frozen=True)
class _Weighing:
    """From the losses of a micro-batch to its part of the minibatch's loss."""

    agg: Aggregation
    totals: Totals

    def weights(self, mask: Tensor, *, idle: bool) -> Tensor:
        """[batch, tokens] or [pairs]; an idle micro-batch takes part with weights of zero."""
        weights = loss_weights(mask, self.agg, self.totals)
        return torch.zeros_like(weights) if idle else weights


@dataclass(frozen=True)
class _Report:
    """What one micro-batch adds to the step's metrics."""

    loss: float
    count: int
    """Tokens, or pairs, that the means are over."""
    means: dict[str, float]


def _loss_and_report(lesson: Lesson) -> tuple[Tensor, _Report]:
    out, weights = lesson.out, lesson.weights
    loss = weights.new_zeros(())
    stats = {"entropy": out.entropy} if out.entropy.shape == weights.shape else {}
    for term in lesson.terms:
        fields = lesson.fields(term)
        loss = loss + (weights * term.loss(out, fields)).sum()
        with torch.no_grad():
            stats |= term.stats(out, fields)
    trained = weights > 0
    count = int(trained.sum())
    means = {
        name: float((value.detach() * trained).sum()) / max(count, 1)
        for name, value in stats.items()
    }
    return loss, _Report(float(loss.detach()), count, means)
