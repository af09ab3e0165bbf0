"""`rpeg-bounded-async`: generation may run ahead of training, and the losses correct for it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from rpeg.ir.base import RpegOp, index_name
from rpeg.ir.declared import declarations, symbol_name
from rpeg.ir.ops.allow import allowed_staleness, allowed_windows
from rpeg.ir.ops.declare import PipelineOp
from rpeg.ir.ops.losses import DistillOp, LossOp, PolicyGradientOp, PolicyLossOp
from rpeg.ir.ops.regions import CollectOp
from rpeg.ir.ops.rewards import ImportanceOp
from rpeg.ir.ops.sampling import GenerateOp, LogprobOp, StaleOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.rules.staleness import COVERS, NARROWEST, WORDS, old_spans_violations, unallowed
from rpeg.ir.stages import STAGE, stages, value_names
from rpeg.ir.text.naming import name_of
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.ir.vocabulary.settings import python_value
from rpeg.passes.base import PassRefused, Problem, RpegPass, pipelines, step, tidied
from rpeg.passes.legality import Condition, Legality, Reason, reasons
from rpeg.passes.plan_lines import place_beside
from rpeg.passes.samples import Samples, at_start, is_above, losses_of, sampled_weights
from rpeg.passes.statistics import Meanings

CORRECTIONS: Mapping[str, Mapping[str, float | str]] = {
    "decoupled": {"cap": 5.0},
    "truncated": {"cap": 2.0},
    "icepop": {"floor": 0.5, "cap": 5.0, "mode": "mask"},
    "sequence_mask": {"floor": 0.2, "cap": 5.0, "mode": "mask", "level": "sequence"},
}
"""What `importance` is given: decoupled PPO, truncated importance sampling, IcePop, whole responses
masked. Sources of the figures: docs/staleness.md."""
WEIGHTED = COVERS["weighted"]
"""The most staleness that any loss covers."""
UNWEIGHTED = "none-if-covered"
"""Losses stay as they are, if they tolerate the lag."""


@dataclass(frozen=True)
class Widening:
    """A generate whose window is to be `[i-staleness..]`, and is not yet."""

    generate: GenerateOp
    start: SSAValue
    """Its model's weights as the step starts."""
    staleness: int
    words: Mapping[str, str]
    """bound, overflow and old_spans of the window."""
    correction: str
    losses: Sequence[tuple[LossOp, Samples]]
    """The losses of its samples."""

    @property
    def corrected(self) -> Iterator[tuple[PolicyLossOp, Samples]]:
        """The losses that get weights."""
        for loss, samples in self.losses:
            unweighted = isinstance(loss, PolicyLossOp) and loss.weights() is None
            if unweighted and self.correction != UNWEIGHTED:
                assert isinstance(loss, PolicyLossOp)
                yield loss, samples


def wider_window(op: GenerateOp, staleness: int) -> str | None:
    """What to write where a text lets samples be older than `staleness`; None where it doesn't."""
    (low, high), owner, i = sampled_weights(op).lag, sampled_weights(op).owner, index_name(op)
    if high <= staleness:
        return None
    newest = min(low, staleness)
    oldest = f"{i}-{staleness}" if staleness else i
    window = oldest if newest == staleness else f"[{oldest}..{f'{i}-{newest}' if newest else i}]"
    return (
        f"`{name_of(op.trajectories)}` may be {high} steps old as the file says it, and "
        f"staleness={staleness} narrows no window: write {owner}@{window} in the file"
    )


# ---- legality


def _beyond_allow(wide: Widening) -> Iterator[Reason]:
    op, allowed = wide.generate, allowed_staleness(wide.generate)
    if allowed is not None and wide.staleness > allowed:
        permit = f"write allow bounded_async(staleness={wide.staleness})"
        instead = [permit] if wide.staleness <= WEIGHTED else []  # no loss covers more
        instead.append(f"take staleness={_most(wide, WEIGHTED)}")
        text = f"`{name_of(op.trajectories)}` would be up to {wide.staleness} steps old"
        yield op, f"{text}, the file allows {allowed}: {', or '.join(instead)}"
    yield from ((op, found.message) for found in unallowed(wide.words, allowed_windows(op)))


def _most(wide: Widening, covers: int) -> int:
    """What the file allows of the staleness that a loss covers."""
    allowed = allowed_staleness(wide.generate)
    return covers if allowed is None else min(covers, allowed)


def _old_spans(wide: Widening) -> Iterator[Reason]:
    yield from ((wide.generate, found.message) for found in old_spans_violations(wide.words))


def _unrecorded(wide: Widening) -> Iterator[Reason]:
    for _, samples in wide.corrected:
        maker = samples.y.owner
        if samples.recorded is None and isinstance(maker, Operation):
            lost, y = name_of(samples.generate.logprobs), name_of(samples.y)
            text = f"a correction needs what `{y}` was sampled under: keep `{lost}` as well"
            yield maker, text


def _uncorrectable(wide: Widening) -> Iterator[Reason]:
    policy = {id(samples.y) for loss, samples in wide.losses if isinstance(loss, PolicyLossOp)}
    for loss, samples in wide.losses:
        y = name_of(samples.y)
        if isinstance(loss, DistillOp):
            yield loss, f"distill is on-policy: `{y}` must be of the weights of its step"
        elif loss.FOLLOWS and id(samples.y) not in policy:
            text = f"{loss.SURFACE} has no correction of its own, and no policy loss of `{y}` has"
            yield loss, f"{text}: add one"


def _uncovered(wide: Widening) -> Iterator[Reason]:
    corrected = {id(loss) for loss, _ in wide.corrected}
    for loss in (loss for loss, _ in wide.losses if isinstance(loss, PolicyLossOp)):
        how = "weighted" if id(loss) in corrected else loss.correction()
        covers = COVERS[how]
        if wide.staleness > covers:
            text = f"{loss.SURFACE} covers a staleness of {covers} here ({how})"
            less = f" and staleness={_most(wide, WEIGHTED)}" if wide.staleness > WEIGHTED else ""
            instead = [] if how == "weighted" else [f"take correction=decoupled{less}"]
            instead += [f"take staleness={_most(wide, covers)}"] if covers else []
            yield loss, f"{text}: {', or '.join(instead)}"
        elif wide.words["bound"] == "head" and how != "weighted":
            text = "bound=head lets samples grow older than the window, which only weights correct"
            yield loss, f"{text}: take correction=decoupled"


LEGALITY: Legality = (
    Condition(
        "allowed",
        "The file's `allow bounded_async` line permits the staleness, and the words of the window.",
        _beyond_allow,
    ),
    Condition(
        "old spans",
        "`old-spans` is said with `bound=strict` and `overflow=resume`, and only there.",
        _old_spans,
    ),
    Condition(
        "log-probs recorded",
        "Losses that get a weight have the log-probs that their samples were drawn under: a "
        "`collect` keeps them.",
        _unrecorded,
    ),
    Condition(
        "can be corrected",
        "Every loss that trains the policy on the samples can take weights, or follows one of the "
        "same samples that does; `distill` can't.",
        _uncorrectable,
    ),
    Condition(
        "covered",
        "The correction covers the staleness: 8 steps with weights; without, 1 step of a clip "
        "around the recorded log-probs, and none under `bound=head`.",
        _uncovered,
    ),
)


# ---- the pass


@dataclass(frozen=True)
class RpegBoundedAsyncPass(RpegPass):
    """
    Lets every `generate` of weights that the step trains read versions up to `staleness` steps old,
    and gives the policy losses of its samples importance weights, with the log-probs under the
    weights of step i that these need, where the step has none yet. Plans get a line for such a new
    stage, beside the update's. The queues between generation and training follow from the windows,
    when the step is lowered.

    Windows of just this width stay, and so do losses that have weights. With staleness 0 nothing
    changes. What can't be done is refused as a whole, with every reason at its place; that is so of
    a window that reaches further back as well, for none is narrowed.

    Before:
        %y, %lp = rpeg.generate %actor, %q {...}
        %pg = rpeg.loss.ppo_clip %y, %adv, %lp {...}
    After:
        %actor_1 = rpeg.stale %actor {low = 0 : i64, high = 2 : i64}
        %y, %lp = rpeg.generate %actor_1, %q {..., bound = "strict", overflow = "wait"}
        %prox = rpeg.logprob %actor, %y {stage = "prox"}
        %w = rpeg.importance %prox, %lp {cap = 5.0 : f64}
        %pg = rpeg.loss.ppo_clip %y, %adv, %prox, %w {...}
    """

    name = "rpeg-bounded-async"
    KIND = "S"
    ALLOW: ClassVar[str] = "bounded_async"
    LEGALITY: ClassVar[Legality] = LEGALITY
    STATISTICS: ClassVar[Meanings] = {
        "windows widened": "generates that may read older weights than before",
        "losses corrected": "policy losses that got importance weights",
        "log-probs added": "forward passes under the weights of step i, for the weights",
        "plan lines added": "lines for these, in plans",
    }
    staleness: int | None = None
    """How many steps old samples may be when they are trained on; without, what the file allows."""
    bound: str | None = None
    """`strict` or `head`; without, what the generate or else the `allow` line says."""
    overflow: str | None = None
    """`wait`, `resume`, `drop`, `truncate` or `defer`; without, the same."""
    old_spans: str | None = None
    """`mask`, `drop` or `regenerate`; without, the same."""
    correction: str = "decoupled"
    """`decoupled`, `truncated`, `icepop` or `sequence_mask`: weights for losses that have none;
    `none-if-covered`: losses stay as they are, which is refused where they don't cover the lag."""

    def __post_init__(self) -> None:
        """Raises ValueError for a word that an option doesn't have."""
        if self.staleness is not None and self.staleness < 0:
            raise ValueError(f"`staleness` is 0 or more, not {self.staleness}")
        words = {**WORDS, "correction": (*CORRECTIONS, UNWEIGHTED)}
        for option, known in words.items():
            given = getattr(self, option)
            if given is not None and given not in known:
                raise ValueError(
                    f"`{option}` is {', '.join(known[:-1])} or {known[-1]}, not {given}"
                )

    def rewrite(self, ctx: Context, op: ModuleOp) -> None:
        if self.staleness == 0:
            return
        wide = {pipeline: self._candidates(pipeline) for pipeline in pipelines(op)}
        found = (r for candidates in wide.values() for c in candidates for r in self._broken(c))
        if broken := [Problem(*reason) for reason in dict.fromkeys(found)]:
            raise PassRefused.of(broken)
        with tidied(op):
            for pipeline, candidates in wide.items():
                self._correct(pipeline, candidates)
                for candidate in candidates:
                    _widen(candidate)
                    self.count("windows widened")

    def _broken(self, candidate: Widening) -> Iterator[Reason]:
        if (wider := wider_window(candidate.generate, candidate.staleness)) is not None:
            return iter([(candidate.generate, wider)])
        return reasons(self.LEGALITY, candidate)

    def _candidates(self, pipeline: PipelineOp) -> list[Widening]:
        """The generates whose windows are of another width. Raises PassRefused where there is none
        that could have one.
        """
        permitted, body = self.allowed(pipeline), step(pipeline)
        generates = [op for op in body.walk() if isinstance(op, GenerateOp)]
        starts = ((op, at_start(body, sampled_weights(op).owner)) for op in generates)
        lagging = [(op, start) for op, start in starts if start is not None]
        if not lagging:
            text = f"`{pipeline.title}` samples from no model that it trains: nothing can run ahead"
            raise PassRefused(body, text)
        wide = [self._candidate(body, op, start, permitted) for op, start in lagging]
        return [w for w in wide if sampled_weights(w.generate).lag[1] != w.staleness]

    def _candidate(
        self, body: StepOp, op: GenerateOp, start: SSAValue, permitted: RecordAttr
    ) -> Widening:
        most = python_value(permitted.settings["staleness"])
        staleness = most if self.staleness is None else self.staleness
        assert isinstance(staleness, int), "a verified line has it"
        losses, words = tuple(losses_of(body, op)), self._words(op, permitted)
        return Widening(op, start, staleness, words, self.correction, losses)

    def _words(self, op: GenerateOp, permitted: RecordAttr) -> dict[str, str]:
        """The words of a window: those of the options, else its own, else those of the file."""
        own = {name: op.text_of(name) for name in WORDS if name in op.properties}
        file = {name: str(python_value(held)) for name, held in permitted.settings.items()}
        words = NARROWEST | (own or {n: w for n, w in file.items() if n in WORDS})
        options = {name: getattr(self, name) for name in WORDS}
        given = {name: word for name, word in options.items() if word is not None}
        if any(words[name] != word for name, word in given.items() if name in NARROWEST):
            words.pop("old_spans", None)  # said of another bound or overflow
        return {name: word for name in WORDS if (word := (words | given).get(name)) is not None}

    def _correct(self, pipeline: PipelineOp, candidates: Sequence[Widening]) -> None:
        names = Names(pipeline)
        weights: dict[SSAValue, SSAValue] = {}
        for wide in candidates:
            for loss, samples in wide.corrected:
                current = _current(wide.start, loss, samples)
                if current is None:
                    current = self._logprob(pipeline, names, loss, [wide.start, samples.y])
                weight = weights.get(current)
                if weight is None or not is_above(weight, loss):
                    weight = weights[current] = self._importance(names, loss, samples, current)
                _weigh(loss, current, weight)
                self.count("losses corrected")

    def _logprob(
        self, pipeline: PipelineOp, names: "Names", loss: LossOp, operands: Sequence[SSAValue]
    ) -> SSAValue:
        name = names.fresh("prox")
        stage = {STAGE: StringAttr(name)}
        made = LogprobOp.make(operands, attributes=stage, location=loss.location)
        Rewriter.insert_op(made, InsertPoint.before(loss))
        made.logprobs.name_hint = name
        self.count("log-probs added")
        self.count("plan lines added", place_beside(pipeline, name, name_of(operands[0])))
        return made.logprobs

    def _importance(
        self, names: "Names", loss: LossOp, samples: Samples, current: SSAValue
    ) -> SSAValue:
        assert samples.recorded is not None, "a condition of the rewrite"
        given, table = CORRECTIONS[self.correction], ImportanceOp.setting_table()
        held = {n: plain(given[n]) if n in given else s.default for n, s in table.items()}
        settings = {name: value for name, value in held.items() if value is not None}
        operands = [current, samples.recorded]
        made = ImportanceOp.make(operands, settings, location=loss.location)
        Rewriter.insert_op(made, InsertPoint.before(loss))
        made.weight.name_hint = names.fresh("w")
        return made.weight


class Names:
    """Generates names that are free in a pipeline."""

    def __init__(self, pipeline: PipelineOp) -> None:
        declared = (symbol_name(op) for op in declarations(pipeline))
        self._taken = {*value_names(pipeline), *stages(pipeline), *declared}

    def fresh(self, wanted: str) -> str:
        """`wanted`, or with a number behind it."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        return name


# ---- changes


def _current(start: SSAValue, loss: LossOp, samples: Samples) -> SSAValue | None:
    """The log-probs of samples under the weights of step i, where the step has them already."""
    readers = (use.operation for use in start.uses)
    found = (op for op in readers if isinstance(op, LogprobOp) and op.trajectories is samples.y)
    return next((op.logprobs for op in found if is_above(op.logprobs, loss)), None)


def _weigh(loss: PolicyLossOp, current: SSAValue, weight: SSAValue) -> None:
    """Takes the ratio against the weights of step i; the importance weight corrects from the
    sampling weights to those.
    """
    old = () if isinstance(loss, PolicyGradientOp) else (current,)
    loss.operands = [*loss.operands[:2], *old, weight]


def _widen(wide: Widening) -> None:
    op, held = wide.generate, sampled_weights(wide.generate)
    window = {"low": plain(held.lag[0]), "high": plain(wide.staleness)}
    stale = StaleOp.make([wide.start], window, location=op.location)
    Rewriter.insert_op(stale, InsertPoint.before(op))
    stale.stale.name_hint = held.owner
    op.operands[0] = stale.stale
    given = {**op.properties, **{name: plain(word) for name, word in wide.words.items()}}
    left_out = WORDS.keys() - wide.words.keys()
    op.properties = {n: given[n] for n in op.setting_table() if n in given and n not in left_out}
    _retype(op)


def _retype(op: RpegOp) -> None:
    """Gives the results the types that follow from the operands, and so for what hands them on."""
    for result, wanted in zip(list(op.results), op.inferred(), strict=True):
        if result.type != wanted:
            Rewriter.replace_value_with_new_type(result, wanted)
    around = op.parent_op()
    if isinstance(around, CollectOp):
        _retype(around)
