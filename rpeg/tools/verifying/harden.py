"""Hardening: the same pipeline, made small, quick, and hard to compute wrongly.

Two layouts can agree on a loss for the wrong reasons: with one optimizer step per batch and no KL
term the policy's ratio is 1, and the loss is the same number for any weights. So every update takes
two optimizer steps, its learning rate moves the weights, and its loss has a KL term to a reference
of other weights: at the actor's own weights that term's gradient is rounding noise, which Adam
blows up to the learning rate. What only measures or writes is left out, and paths become whole:
the text that is made means the same wherever it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from xdsl.builder import Builder
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.base import CheckedOp
from rpeg.ir.ops.declare import DataOp, ExpectOp, ModelOp, PipelineOp
from rpeg.ir.ops.effects import CheckpointOp, EvalLossOp, EvalOp, ExportOp, StopOp
from rpeg.ir.ops.losses import KlLossOp, LossOp
from rpeg.ir.ops.regions import EveryOp, YieldOp, terminator_of
from rpeg.ir.ops.sampling import BatchOp, GenerateOp, GetOp, LogprobOp
from rpeg.ir.ops.updates import UpdateOp
from rpeg.ir.text.naming import trajectories_of
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.ir.types.values import TrajectoriesType, WeightsType
from rpeg.passes.base import step
from rpeg.passes.plan_lines import place_beside

EFFECTS = (StopOp, EvalOp, EvalLossOp, CheckpointOp, ExportOp)
"""What measures or writes."""
REFERENCE = "verify_reference"
HEADED = ("value", "reward", "process_reward")
"""Kinds of models whose head gives numbers. A new one is zero, and hides which rows it read."""
SAMPLED = ("policy", "actor_critic")
HARDENED = (*SAMPLED, "generative_reward", *HEADED)
"""Kinds of models that get folders."""

LR = 3e-4
"""Far above float32's rounding within five steps, and no higher than what parity is bounded for."""
WARMUP = 5
"""Updates. In its first steps Adam moves a weight by its gradient's sign, however small that is:
where a gradient is nearly zero, rounding decides. Once it has seen some, it no longer does.
"""
KL = 0.2
MINIBATCHES = 2

Op = TypeVar("Op", bound=Operation)


@dataclass(frozen=True)
class Size:
    """How small a hardened pipeline is; what is smaller already stays."""

    steps: int = 5
    rows: int = 8
    """Of a batch, made a multiple of what every layout divides it by."""
    samples: int = 4
    """Of a prompt."""
    tokens: int = 12
    """Of a completion."""


@dataclass(frozen=True)
class Folders:
    """Where models and data are."""

    of_source: Callable[[str], Path]
    """The folder that the text of a source means."""
    perturbed: Callable[[Path], Path]
    """A folder with the model of another, its weights moved a little."""
    scoring: Callable[[Path], Path]
    """The same, with a head that scores, whose weights are not zero."""
    of_data: Callable[[str], str]
    """The source of a data set, under the whole path where it is one."""


@dataclass
class Hardening:
    """One pipeline at work."""

    pipeline: PipelineOp
    folders: Folders
    size: Size
    divisor: int
    """Of the rows of a batch."""
    notes: list[str] = field(default_factory=list[str])
    """What was changed, for people."""

    def run(self) -> None:
        """Changes the pipeline in place; types of results stay as they were: print and read it."""
        s, rows = self.size, max(self.size.rows // self.divisor, 1) * self.divisor
        self.notes.append(
            f"{s.steps} step{'s' * (s.steps > 1)} in fp32; batches of at most {rows} rows, "
            f"{s.samples} samples each, {s.tokens} tokens each"
        )
        step(self.pipeline).properties["count"] = IntegerAttr(s.steps, i64)
        self._leave_out()
        for batch in self._all(BatchOp):
            batch.properties["size"] = plain(self._rows(batch.int_of("size")))
        for generate in self._all(GenerateOp):
            _shrink(generate, n=s.samples, max_tokens=s.tokens)
            _set(generate, dtype="fp32", top_p=1.0)
        for data in self._all(DataOp):
            if data.uri is not None:
                data.properties["source"] = StringAttr(self.folders.of_data(data.uri))
        self._models()
        for update in self._all(UpdateOp):
            self._update(update)

    def _all(self, kind: type[Op]) -> list[Op]:
        return [op for op in self.pipeline.walk() if isinstance(op, kind)]

    def _rows(self, size: int) -> int:
        return max(min(size, self.size.rows) // self.divisor, 1) * self.divisor

    # ---- what does not train

    def _leave_out(self) -> None:
        for expected in self._all(ExpectOp):
            Rewriter.erase_op(expected)
        effects = [op for kind in EFFECTS for op in self._all(kind)]
        for op in effects:
            Rewriter.erase_op(op)
        for every in reversed(self._all(EveryOp)):
            self._every(every)
        if effects:
            names = sorted({op.SURFACE for op in effects})
            self.notes.append(f"left out: {', '.join(names)}")

    def _every(self, every: EveryOp) -> None:
        """One that holds nothing more goes; others run at each step."""
        ending = terminator_of(every)
        assert isinstance(ending, YieldOp)
        if all(isinstance(op, GetOp | YieldOp) for op in every.body.block.ops):
            for result, value in zip(every.results, ending.operands, strict=True):
                result.replace_all_uses_with(value)
            Rewriter.erase_op(every)
        elif every.int_of("steps") > 1 or every.int_of("from") > 0:
            _set(every, steps=1, **{"from": 0})
            self.notes.append("what runs every few steps runs at each")

    # ---- models

    def _models(self) -> None:
        """Sources become folders; frozen models get other weights than the trained ones have."""
        models = [m for m in self._all(ModelOp) if m.form_name in HARDENED]
        folders: dict[str, Path] = {}
        for model in models:
            source = model.initial
            folders[model.title] = folders[source] if source else self._folder(model)
        trained = {folders[m.title] for m in models if m.optim is not None}
        for model in models:
            folder = folders[model.title]
            if model.form_name in HEADED:
                self.notes.append(f"`{model.title}` has weights of its own, its head's too")
                folder = self.folders.scoring(folder)
            elif model.optim is None and folder in trained:
                self.notes.append(f"`{model.title}` has other weights than the trained model")
                folder = self.folders.perturbed(folder)
            model.properties["source"] = StringAttr(str(folder))
            _set(model, dtype="fp32")
            if model.max_tokens is not None:
                _shrink(model, max_tokens=self.size.tokens)

    def _folder(self, model: ModelOp) -> Path:
        assert model.uri is not None, "a verified model has a source"
        return self.folders.of_source(model.uri)

    # ---- updates

    def _update(self, update: UpdateOp) -> None:
        model = self._declared(update.makes())
        self._quicken(model)
        anchored = all(not isinstance(o.owner, LossOp) or o.owner.ANCHORED for o in update.losses)
        before = update.optimizer_steps
        if anchored:
            _set(update, minibatches=MINIBATCHES)
            _shrink(update, epochs=MINIBATCHES)
        if update.optimizer_steps != before:
            self.notes.append(
                f"`{model.title}` takes {update.optimizer_steps} optimizer steps per batch"
            )
        y = next((t for loss in update.losses if (t := _sampled(loss)) is not None), None)
        if y is not None and model.form_name in SAMPLED:
            self._divergence(update, y, model)

    def _declared(self, title: str) -> ModelOp:
        return next(m for m in self._all(ModelOp) if m.title == title)

    def _quicken(self, model: ModelOp) -> None:
        """A learning rate that moves weights at once, and rounding errors of them little."""
        assert isinstance(model.optim, RecordAttr), "a verified update has an optimizer"
        changed: Mapping[str, Attribute] = {"lr": plain(LR), "warmup": plain(WARMUP)}
        model.properties["optim"] = RecordAttr.make(
            model.optim.kind, {**model.optim.settings, **changed}
        )
        self.notes.append(
            f"`{model.title}` trains with lr={LR:g} and a warm-up of {WARMUP} updates"
        )

    def _divergence(self, update: UpdateOp, y: SSAValue, model: ModelOp) -> None:
        """A KL term that is not zero."""
        terms = [loss.owner for loss in update.losses if isinstance(loss.owner, KlLossOp)]
        if any(term.float_of("coef") > 0 for term in terms):
            return
        if terms:
            _set(terms[0], coef=KL)
            self.notes.append(f"`{model.title}` has kl_loss with coef={KL:g}")
            return
        build = Builder(InsertPoint.before(update))
        reference = build.insert(self._reference(model))
        logprobs = build.insert(LogprobOp.make([reference.results[0], y]))
        name = logprobs.logprobs.name_hint = f"{REFERENCE}_{model.title}_lp"
        place_beside(self.pipeline, name, model.title, frozen=True)
        settings = {"coef": plain(KL), "estimator": plain("k3")}
        loss = build.insert(KlLossOp.make([y, logprobs.logprobs], settings))
        loss.loss.name_hint = "verify_kl"
        update.operands = [*update.operands, loss.loss]
        self.notes.append(f"`{model.title}` has a kl_loss (coef={KL:g}) to other weights")

    def _reference(self, model: ModelOp) -> GetOp:
        """A frozen model with other weights than the trained one; declared once for each."""
        name = f"{REFERENCE}_{model.title}"
        assert model.uri is not None, "sources are folders by now"
        frozen = ModelOp.create(
            properties={
                "sym_name": StringAttr(name),
                "form": StringAttr("policy"),
                "source": StringAttr(str(self.folders.perturbed(Path(model.uri)))),
                "dtype": plain("fp32"),
            }
        )
        self.pipeline.body.block.insert_op_after(frozen, self._all(ModelOp)[-1])
        return GetOp.of(name, WeightsType(name, "policy", 0, 0))


def _sampled(loss: SSAValue) -> SSAValue | None:
    """The trajectories that a loss is of; None of demonstrations."""
    maker = loss.owner
    y = trajectories_of(maker.operands[0]) if isinstance(maker, LossOp) else None
    return y if y is not None and isinstance(y.type, TrajectoriesType) else None


def _set(op: CheckedOp, **settings: bool | int | float | str) -> None:
    op.properties.update({name: plain(value) for name, value in settings.items()})


def _shrink(op: CheckedOp, **most: int) -> None:
    """Whole-number settings, lowered to what they may be at most."""
    _set(op, **{name: min(op.int_of(name), bound) for name, bound in most.items()})
