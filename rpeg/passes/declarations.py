"""How declarations become the objects of a program: models, data, verifiers, engines, buffers."""

from collections.abc import Mapping

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from rpeg.ir.declared import declaration
from rpeg.ir.ops.declare import DataOp, DeclareOp, ModelOp, StateOp, VerifierOp
from rpeg.ir.ops.movement import PublishOp, model_of, pool_of
from rpeg.ir.ops.sampling import GenerateOp, GetOp, LogprobOp, ValuesOp
from rpeg.ir.ops.step import StepOp
from rpeg.ir.rrt.calls import CallOp
from rpeg.ir.stages import stages
from rpeg.ir.types.attributes import RecordAttr, plain
from rpeg.ir.types.values import (
    CursorType,
    OptimizerType,
    StateType,
    TrajectoriesType,
    WeightsType,
)
from rpeg.passes.layouts import bound_of
from rpeg.passes.programs import Cannot, Program, lag_bound

DATA = {"prompts": "PromptData", "demos": "DemoData", "pairs": "PairData"}
"""The runtime's class for each kind of data."""
MODELS = ("policy", "value", "actor_critic", "reward", "process_reward")
"""The kinds of models that compile."""


class Declarations:
    """Makes what a program works with, before its loop."""

    def __init__(self, program: Program, step: StepOp) -> None:
        self.program = program
        self.step = step
        self.stages = [op for op in stages(step).values() if program.place.runs(op)]
        self.initial: dict[str, SSAValue] = {}
        """The initial weights of trained models that others start from, by the trained one."""

    def one(self, op: DeclareOp) -> None:
        """The object of one declaration. Raises Cannot and NotHere."""
        match op:
            case ModelOp():
                made = self._model(op)
            case DataOp():
                settings = {"source": op.source, **op.settings()}
                made = self._called(op, DATA[op.form_name], settings)
            case VerifierOp() if op.form_name == "outcome":
                settings = {"kind": op.form, "source": op.source, **op.settings()}
                made = self._called(op, "Verifier", settings)
            case StateOp():
                made = self._called(op, "Scalar", op.settings())
            case _:
                why = f"{op.KIND} {op.form_name} does not compile yet: leave it out"
                raise Cannot(op, f"`{op.title}`: {why}")
        made.results[0].name_hint = op.title
        self.program.objects[op.title] = made.results[0]

    def needed(self, op: DeclareOp) -> bool:
        """Whether the program has an object for a declaration: a pool's tasks read it."""
        return op.used() if not self.program.place.several else op.title in self._mentioned()

    def _mentioned(self) -> set[str]:
        """The names of what this pool's tasks read, and whose tokens its models read."""
        here = (op for op in self.step.body.block.ops if self.program.place.runs(op))
        values = (v for op in here for inner in op.walk() for v in inner.operands)
        return {name for v in values if (name := _declared_by(v))} | self._readers().keys()

    def publishing(self, op: PublishOp) -> None:
        """What a publish takes on this pool: a register, and where it arrives an engine."""
        program, model, pool = self.program, model_of(op) or "", pool_of(op) or ""
        if program.place.several and not program.place.at_home:
            if pool == program.place.pool:
                self._engine(op, model, self._received(op, model), f"{model}_weights")
        elif program.place.several and pool != program.place.pool:
            self._sent(op, model, pool)
        elif model not in program.engines:
            register = program.call(op, "LatestWeights", program.run, program.declared(model))
            title = "local_weights" if program.place.several else "weights"
            self._engine(op, model, register, f"{model}_{title}")

    def _sent(self, op: PublishOp, model: str, pool: str) -> None:
        program = self.program
        target = {"target": StringAttr(pool)}
        made = program.call(
            op, "SentWeights", program.run, program.declared(model), settings=target
        )
        made.results[0].name_hint = f"{model}_weights"
        program.sent[model, pool] = made.results[0]

    def _received(self, op: PublishOp, model: str) -> CallOp:
        program = self.program
        generates = [g for g in self.stages if isinstance(g, GenerateOp) and model_of(g) == model]
        windows = (g.weights.type for g in generates)
        widest = max(t.lag[1] for t in windows if isinstance(t, WeightsType))
        settings = {"source": StringAttr(program.place.home), "window": plain(widest)}
        sampled = program.declared(model)
        return program.call(op, "ReceivedWeights", program.run, sampled, settings=settings)

    def _engine(self, op: PublishOp, model: str, register: CallOp, title: str) -> None:
        """The engine that reads a register."""
        program = self.program
        groups = {"groups": program.groups[model]}
        sampled = program.declared(model)
        engine = program.call(op, "EmbeddedEngine", program.run, sampled, keywords=groups)
        register.results[0].name_hint = title
        engine.results[0].name_hint = f"{model}_engine"
        program.registers[model], program.engines[model] = register.results[0], engine.results[0]

    def shared_tokens(self, at: StepOp) -> None:
        """The check that models of other sources read a policy's tokens as it writes them."""
        for policy, readers in self._readers().items():
            models = [self.program.declared(name) for name in (policy, *readers)]
            self.program.call(at, "share_tokenizer", *models)

    def _readers(self) -> dict[str, list[str]]:
        """By policy: the models of other sources that read its trajectories."""
        found: dict[str, list[str]] = {}
        for op in self.stages:
            y = op.operands[1].type if isinstance(op, LogprobOp | ValuesOp) else None
            reader = model_of(op) or ""
            if isinstance(y, TrajectoriesType) and self._source(reader) != self._source(y.owner):
                readers = found.setdefault(y.owner, [])
                readers += [reader] if reader not in readers else []
        return found

    def _source(self, name: str) -> str | None:
        """Where a model's tokenizer comes from, and its weights unless it is trained."""
        model = declaration(self.step, name)
        assert isinstance(model, ModelOp), "a verified stage works with a declared model"
        return model.uri if model.initial is None else self._source(model.initial)

    def buffer(self, op: GenerateOp) -> None:
        """The queue between a generate and what reads its trajectories."""
        title = op.trajectories.name_hint or "y"
        held = op.trajectories.type
        assert isinstance(held, TrajectoriesType)
        capacity = plain(1 + held.lag[1])
        settings = {"name": StringAttr(title), "capacity": capacity, **lag_bound(op)}
        made = self.program.call(op, "TrajectoryBuffer", self.program.run, settings=settings)
        made.results[0].name_hint = f"{title}_buffer"
        self.program.buffers[op] = made.results[0]

    def _called(self, op: DeclareOp, cls: str, settings: Mapping[str, Attribute | None]) -> CallOp:
        """A constructor that takes the run and the declared name."""
        named = {"name": StringAttr(op.title), **settings}
        return self.program.call(op, cls, self.program.run, settings=named)

    def _judge(self, op: ModelOp) -> CallOp:
        return self.program.call(
            op,
            "Judge",
            self.program.run,
            keywords=self._keywords(op),
            settings={
                "name": StringAttr(op.title),
                "source": self._text(op) if self._alone(op) else None,
                **op.settings(),
            },
        )

    def _model(self, op: ModelOp) -> CallOp:
        if op.form_name == "generative_reward":
            return self._judge(op)
        if op.form_name not in MODELS:
            raise Cannot(op, f"`{op.title}`: model {op.form_name} does not compile yet")
        if op.shared_layers is not None:
            why = "shared_layers does not compile yet: leave it out, and both heads share the trunk"
            raise Cannot(op, f"`{op.title}`: {why}")
        if op.lora is not None:
            raise Cannot(op, f"`{op.title}`: adapters (lora) do not compile yet: leave lora out")
        if op.float_of("router_aux"):
            raise Cannot(op, f"`{op.title}`: router_aux does not compile yet: leave it out")
        if op.optim is None:
            return self._frozen(op)
        here = self.program.place.trains(op.title)
        return self._trainer(op, op.optim) if here else self._sampled(op)

    def _sampled(self, op: ModelOp) -> CallOp:
        """A model that another pool trains."""
        return self._called(op, "SampledModel", {"source": self._text(op)})

    def _text(self, op: ModelOp) -> StringAttr | None:
        """The source of a model's initial weights, outside the file."""
        source = self._source(op.title)
        return None if source is None else StringAttr(source)

    def _frozen(self, op: ModelOp) -> CallOp:
        return self.program.call(
            op,
            "FrozenModel",
            self.program.run,
            keywords=self._keywords(op),
            settings={
                "name": StringAttr(op.title),
                "role": op.form,
                "dtype": op.dtype,
                "source": self._text(op) if self._alone(op) else None,
                "micro_batch": self._micro_batch(op),
            },
        )

    def _keywords(self, op: ModelOp) -> dict[str, SSAValue]:
        """What a model is made of besides settings."""
        keywords = {"groups": self.program.groups[op.title]}
        trained = self._trained_above(op)
        if trained is not None:
            keywords["source"] = self._initial(op, trained)
        return keywords

    def _trained_above(self, op: ModelOp) -> str | None:
        """The trained model of this program whose initial weights another one has."""
        name = op.initial
        while name is not None:
            above = declaration(self.step, name)
            assert isinstance(above, ModelOp), "models start from models"
            if above.optim is not None and self.program.place.trains(name):
                return name
            name = above.initial
        return None

    def _alone(self, op: ModelOp) -> bool:
        """Whether a model is loaded from its source, rather than from a model of the program."""
        return self._trained_above(op) is None

    def _initial(self, op: ModelOp, other: str) -> SSAValue:
        if other not in self.initial:
            trainer = self.program.declared(other)
            made = self.program.call(op, "InitialWeights", trainer).results[0]
            made.name_hint = f"{other}_initial"
            self.initial[other] = made
        return self.initial[other]

    def _trainer(self, op: ModelOp, optimizer: Attribute) -> CallOp:
        assert isinstance(optimizer, RecordAttr)
        return self.program.call(
            op,
            "Trainer",
            self.program.run,
            keywords=self._keywords(op),
            settings={
                "name": StringAttr(op.title),
                "role": op.form,
                "source": self._text(op) if self._alone(op) else None,
                "dtype": op.dtype,
                "optimizer": RecordAttr.make("AdamW", optimizer.settings),
                "horizon": plain(self.step.steps),
                "micro_batch": self._micro_batch(op),
            },
        )

    def _micro_batch(self, op: ModelOp) -> RecordAttr | None:
        clause = bound_of(op.title, self.stages)
        return RecordAttr.make("MicroBatch", clause.settings) if clause is not None else None


def _declared_by(value: SSAValue) -> str | None:
    """The name of the declaration that a value is, or is a version of."""
    if isinstance(value.owner, GetOp):
        return value.owner.symbol_name
    match value.type:
        case WeightsType() | OptimizerType():
            return value.type.owner
        case CursorType() | StateType():
            return value.type.symbol
        case _:
            return None
