"""Operations with side effects: eval, checkpoint, export, stop."""

from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import PurePosixPath
from typing import ClassVar

from xdsl.ir import Attribute, Operation
from xdsl.irdl import irdl_op_definition

from rpeg.ir.base import RpegOp
from rpeg.ir.declared import step_of
from rpeg.ir.definitions import gives, many, maybe, operand, optional, required, setting
from rpeg.ir.ops.sampling import LANGUAGE_MODEL
from rpeg.ir.ops.updates import TRAINABLE
from rpeg.ir.rules import violations
from rpeg.ir.rules.tools import tool_violations
from rpeg.ir.rules.violations import Violation
from rpeg.ir.text.naming import shown
from rpeg.ir.types.values import DataType, MetricType, WeightsType
from rpeg.ir.vocabulary.settings import FLOAT, INT, TEXT
from rpeg.ir.vocabulary.signature import Scope


@irdl_op_definition
class EvalOp(RpegOp):
    """The mean reward of a model on a whole data set; reported under the metric's name."""

    name = "rpeg.eval"
    SURFACE: ClassVar[str] = "eval"
    SCOPE: ClassVar[Scope] = "step"
    PLACED: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True
    weights = operand(LANGUAGE_MODEL)
    prompts = operand("data.prompts")
    scorer = operand("verifier | tool.environment")
    tools = many("tool")
    n = setting(INT, 1, least=1)
    max_tokens = required(INT, "1024", least=1)
    temperature = setting(FLOAT, 0.0, least=0)
    max_turns = setting(INT, 1, least=1)
    limit = maybe(INT, least=1)
    seed = setting(INT, 0)
    metric = gives("metric")

    def infer(self) -> Sequence[Attribute]:
        return [MetricType()]

    def rules(self) -> Iterator[Violation]:
        return tool_violations(self, self.tools)


@irdl_op_definition
class EvalLossOp(RpegOp):
    """The mean supervised loss of a policy on a whole set of demonstrations; on one of pairs the
    loss of a reward model, or dpo's with a reference and beta, and how often it ranks them right.
    """

    name = "rpeg.eval_loss"
    SURFACE: ClassVar[str] = "eval_loss"
    SCOPE: ClassVar[Scope] = "step"
    PLACED: ClassVar[bool] = True
    READS_NEXT: ClassVar[bool] = True
    weights = operand(f"{LANGUAGE_MODEL} | model.reward")
    examples = operand("data.demos | data.pairs")
    reference = optional("model.policy")
    beta = maybe(FLOAT, above=0)
    limit = maybe(INT, least=1)
    metric = gives("metric")

    def infer(self) -> Sequence[Attribute]:
        return [MetricType()]

    def rules(self) -> Iterator[Violation]:
        model, data = self.weights.type, self.examples.type
        assert isinstance(model, WeightsType) and isinstance(data, DataType)
        if model.what == "reward" and data.what != "pairs":
            yield Violation(
                "eval-operands",
                f"`{model.owner}` is a reward model, whose loss is on pairs; "
                f"`{data.symbol}` holds {data.what}",
                violations.operand(1),
            )
            return
        compared = data.what == "pairs" and model.what != "reward"
        for name, given in (("reference", self.reference), ("beta", self.beta)):
            if compared and given is None:
                yield Violation(
                    "eval-operands",
                    "the loss of a policy on pairs is dpo's: write "
                    f"eval_loss({shown(self.weights)}, {data.symbol}, ref, beta=0.1)",
                )
                return
            if given is not None and not compared:
                yield Violation("eval-operands", f"`{name}` is for a policy on pairs: remove it")


@irdl_op_definition
class CheckpointOp(RpegOp):
    """Saves the whole state at i+1; there is nothing to choose."""

    name = "rpeg.checkpoint"
    SURFACE: ClassVar[str] = "checkpoint"
    SCOPE: ClassVar[Scope] = "step"
    keep = setting(INT, 3, least=1)


@irdl_op_definition
class ExportOp(RpegOp):
    """Writes a model as a Hugging Face folder with safetensors."""

    name = "rpeg.export"
    SURFACE: ClassVar[str] = "export"
    SCOPE: ClassVar[Scope] = "step"
    READS_NEXT: ClassVar[bool] = True
    weights = operand(TRAINABLE)
    to = required(TEXT, '"out/model"')

    def rules(self) -> Iterator[Violation]:
        folder = PurePosixPath(self.text_of("to"))
        above = takewhile(lambda op: op is not self, _exports(self))
        if any(folder == PurePosixPath(other.text_of("to")) for other in above):
            yield Violation(
                "repeated-export",
                f'another export writes to "{folder}": give each a folder of its own',
                violations.setting("to"),
            )


def _exports(op: Operation) -> Iterator[ExportOp]:
    """The exports of the step around an operation, in their order."""
    step = step_of(op)
    return (o for o in step.walk() if isinstance(o, ExportOp)) if step is not None else iter(())


@irdl_op_definition
class StopOp(RpegOp):
    """Ends the run after this step once a metric is above a bound; the count stays the limit."""

    name = "rpeg.stop"
    SURFACE: ClassVar[str] = "stop"
    SCOPE: ClassVar[Scope] = "step"
    metric = operand("metric")
    above = required(FLOAT, "0.9")

    def rules(self) -> Iterator[Violation]:
        parent = self.parent_op()
        if parent is not None and parent.name != "rpeg.every":
            yield Violation(
                "misplaced-operation",
                "stop belongs inside every(...) { }: the metric is measured there",
            )


OPS: tuple[type[RpegOp], ...] = (EvalOp, EvalLossOp, CheckpointOp, ExportOp, StopOp)
