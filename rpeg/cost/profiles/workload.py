"""What a step works on: how many sequences, how long their prompts and responses are.

Lengths are what the file's `expect` lines say. What none tells is assumed, and noted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from xdsl.ir import Operation, SSAValue

from rpeg.cost.lengths import Distribution, Lengths, LengthsError, listed
from rpeg.cost.profiles.data_sets import known_rows
from rpeg.cost.profiles.shapes import ShapeError
from rpeg.ir.declared import declaration, pipeline_of
from rpeg.ir.ops.declare import DataOp, ExpectOp, ToolOp, VerifierOp
from rpeg.ir.ops.losses import PolicyLossOp
from rpeg.ir.ops.sampling import BatchOp, GenerateOp
from rpeg.ir.stages import stage_name
from rpeg.ir.text.naming import trajectories_of, unmoved
from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.types.batches import DemosType, PairsType
from rpeg.ir.types.values import CursorType, DataType, TrajectoriesType
from rpeg.ir.vocabulary.settings import python_value

PROMPT = Lengths(mean=150.0, cap=1024.0, spread=0.5)
"""Prompts where nothing tells: mathematics data sets have 80 to 200 tokens."""

DEMONSTRATION = Lengths(mean=512.0, cap=4096.0, spread=0.8)
"""Responses of demonstrations and pairs where nothing tells."""

VERDICT = Lengths(mean=0.01, cap=10.0, spread=1.0)
"""Seconds of a verifier where nothing tells: a few expressions in Python."""

COMPARED = Lengths(mean=1e-4, cap=10.0, spread=1.0)
"""Seconds of a rule that only compares texts, or counts tokens."""

COMPARING = ("rule:answer_tag", "rule:exact_match", "rule:overlong")
"""Such rules."""

EVALUATED = 500.0
"""Rows of a data set that is gone through whole, where nothing tells."""

FILL = 0.5
"""Mean response where nothing tells, over the most tokens allowed."""
JUDGED = 0.25
"""The same of a judge's answers, which no line of a file speaks of."""


@dataclass(frozen=True)
class Rows:
    """Sequences that a stage goes over; each is a prompt and a response."""

    number: float
    prompt: Distribution
    response: Distribution
    a_prompt: float = 1.0
    """Responses of one prompt."""

    @property
    def average(self) -> float:
        """Tokens of a sequence, on average."""
        return self.prompt.average + self.response.average

    @property
    def tokens(self) -> float:
        """S1: tokens of all."""
        return self.number * self.average

    @property
    def read(self) -> float:
        """Tokens that a pass reads: of a response all but the last, which is predicted."""
        return self.number * (self.prompt.average + max(self.response.average - 1.0, 0.0))

    @property
    def packed(self) -> float:
        """Those of them with a prompt once for all of its responses."""
        return self.packed_in(1.0)

    def packed_in(self, parts: float) -> float:
        """Tokens that passes over so many parts read in all, with a prompt once for its responses
        of a part. Each response falls into any of them: micro-batches are balanced by lengths.
        """
        times = parts * _any_of(1.0 / parts, self.a_prompt)
        return self.read - self.number * self.prompt.average * (1.0 - times / self.a_prompt)

    @property
    def squares(self) -> float:
        """S2: squares of the sequences' lengths, prompts independent of responses."""
        cross = 2.0 * self.prompt.average * self.response.average
        return self.number * (self.prompt.square + cross + self.response.square)

    def groups(self, share: float) -> Rows:
        """Such a share of them, whole groups."""
        return replace(self, number=self.number * share)

    def share(self, number: float) -> Rows:
        """So many of them, drawn from all: fewer of one prompt."""
        prompts = self.number / self.a_prompt * _any_of(number / self.number, self.a_prompt)
        return replace(self, number=number, a_prompt=number / prompts)


def _any_of(chance: float, times: float) -> float:
    """The chance of an event of a certain chance in any of so many trials."""
    return 1.0 - float((1.0 - chance) ** times)


@dataclass
class Workload:
    """The rows of a pipeline's values; it collects what it had to assume."""

    pipeline: Operation
    folder: Path
    assumed: list[str] = field(default_factory=list[str])

    def rows(self, value: SSAValue) -> Rows:
        """The rows of trajectories, of a batch, or of a field of either."""
        source = trajectories_of(value) or value
        match source.type:
            case TrajectoriesType() as held:
                return self._sampled(source, held.prompts.data, held.n)
            case DemosType() as held:
                return self._read(source, held.size.data)
            case PairsType() as held:
                return self._read(source, 2 * held.size.data)
            case _:
                raise TypeError(f"{source.type} has no rows")

    def of_data(self, data: DataType, number: float, most: float | None) -> Rows:
        """Rows of a data set: with responses of up to `most` tokens, or with those they have."""
        if most is None:
            return self._demonstrations(data.symbol, number)
        return Rows(number, self.prompts(data.symbol), self._response(data.symbol, most))

    def size(self, data: str, limit: int | None) -> float:
        """Rows of a data set that is gone through whole, or until `limit`."""
        declared = declaration(self.pipeline, data)
        known = known_rows(declared, self.folder) if isinstance(declared, DataOp) else None
        told = [number for number in (known, limit) if number is not None]
        if not told:
            self._assume(f"nothing tells the size of `{data}`: {EVALUATED:g} rows; limit=N tells")
        return float(min(told, default=EVALUATED))

    def prompts(self, data: str) -> Distribution:
        """Prompts of a data set."""
        return self._expected(data) or self._usual_prompts(f"no line `expect {data}`")

    def _usual_prompts(self, why: str) -> Distribution:
        self._assume(f"{why}: prompts of {PROMPT.mean:g} tokens on average")
        return PROMPT

    def verdict(self, verifier: str, timeout: float) -> Distribution:
        """Seconds that a verifier or tool takes for one answer, no more than its timeout."""
        told = self._expected(verifier, timeout, timeout)
        if told is not None:
            return told
        declared = declaration(self.pipeline, verifier)
        compares = isinstance(declared, VerifierOp) and declared.uri in COMPARING
        usual = COMPARED if compares else VERDICT
        text = f"{usual.mean * 1000:g} ms an answer"
        self._assume(f"no line `expect {verifier}`: taken as {text}")
        return Lengths(usual.mean, timeout, usual.spread)

    def judged(self, judge: str, rows: Rows, most: float) -> Rows:
        """What a judge is asked: a prompt that holds prompt and response, for a short answer."""
        asked = Lengths(rows.average, rows.prompt.quantile(1.0) + rows.response.quantile(1.0))
        average = JUDGED * most
        text = f"answers of {average:g} tokens on average, a quarter of what is allowed"
        self._assume(f"`{judge}`: {text}")
        return Rows(rows.number, asked, Lengths(average, most))

    def _sampled(self, y: SSAValue, prompts: int, n: int) -> Rows:
        made = unmoved(y).owner
        generate = self._generate(made) if isinstance(made, Operation) else None
        if generate is None:
            name = y.name_hint or ""
            usual = self._usual_prompts(f"no generate makes `{name}`")
            return Rows(prompts * n, usual, self._response(name, 1024.0), n)
        most = float(generate.int_of("max_tokens"))
        response = self._response(stage_name(generate), most)
        return Rows(prompts * n, self._prompts_of(generate.prompts), response, n)

    def _generate(self, made: Operation) -> GenerateOp | None:
        """The generate that makes trajectories, inside of a collect or by itself."""
        return next((op for op in made.walk() if isinstance(op, GenerateOp)), None)

    def _prompts_of(self, batch: SSAValue) -> Distribution:
        source = batch.owner.source.type if isinstance(batch.owner, BatchOp) else None
        if isinstance(source, CursorType):
            return self.prompts(source.symbol)
        return self._usual_prompts("no data set is named for a batch")

    def _read(self, batch: SSAValue, number: float) -> Rows:
        source = batch.owner.source.type if isinstance(batch.owner, BatchOp) else None
        return self._demonstrations(source.symbol if isinstance(source, CursorType) else "", number)

    def _demonstrations(self, data: str, number: float) -> Rows:
        told = self._expected(data)
        if told is None:
            text = f"responses of {DEMONSTRATION.mean:g} tokens on average"
            self._assume(f"no line `expect {data}`: {text}")
        usual = self._usual_prompts(f"`{data}` has responses in its file")
        return Rows(number, usual, told or DEMONSTRATION)

    def _response(self, name: str, most: float) -> Distribution:
        told = self._expected(name, most)
        if told is None:
            text = f"responses of {FILL * most:g} tokens on average, half of what is allowed"
            self._assume(f"no line `expect {name}`: {text}")
        return told or Lengths(FILL * most, most)

    def _expected(
        self, name: str, most: float = float("inf"), usual: float | None = None
    ) -> Distribution | None:
        """What the file expects of a name, capped by `most`; without a cap of its own at `usual`,
        or several means. Raises ShapeError.
        """
        pipeline = pipeline_of(self.pipeline)
        lines = pipeline.regions[0].block.ops if pipeline is not None else ()
        told = (op for op in lines if isinstance(op, ExpectOp) and op.target.data == name)
        found = (self._told(op, most, usual) for op in told)
        return next((each for each in found if each is not None), None)

    def _told(self, line: ExpectOp, most: float, usual: float | None) -> Distribution | None:
        try:
            return _distribution(line.distribution, most, usual, self.folder)
        except LengthsError as error:
            raise ShapeError(line, str(error)) from error

    def kept(self, collect: Operation) -> float:
        """The share of its groups that a collect keeps; all where nothing tells."""
        names = {r.name_hint for r in collect.results}
        share = self._ratio(names)
        if share is None:
            name = next((n for n in names if n), "")
            self._assume(f"no line `expect {name} = ratio(...)`: every group is kept")
        return share or 1.0

    def told_apart(self, losses: Iterable[Operation]) -> float:
        """The share of groups that an update computes: rows whose advantages are all zero are left
        out, unless a loss has none. All where nothing tells.
        """
        shares = [
            self._ratio({loss.operands[1].name_hint}) if isinstance(loss, PolicyLossOp) else None
            for loss in losses
        ]
        return max((share or 1.0 for share in shares), default=1.0)

    def _ratio(self, names: Collection[str | None]) -> float | None:
        """What the file says of any of these names."""
        pipeline = pipeline_of(self.pipeline)
        for op in pipeline.regions[0].block.ops if pipeline is not None else ():
            told = isinstance(op, ExpectOp) and op.target.data in names
            if isinstance(op, ExpectOp) and told and op.distribution.kind == "ratio":
                share = python_value(op.distribution.settings["mean"])
                assert isinstance(share, float)
                return share
        return None

    def _assume(self, text: str) -> None:
        if text not in self.assumed:
            self.assumed.append(text)


TYPICAL_CAP = 12.0
"""Longest over mean, of a log-normal without a cap."""


def _distribution(
    record: RecordAttr, most: float, usual: float | None, folder: Path
) -> Distribution | None:
    held = {name: python_value(value) for name, value in record.settings.items()}
    if record.kind == "histogram" and isinstance(held.get("file"), str):
        return listed(folder / str(held["file"]), most)
    mean, spread, cap = held.get("mean"), held.get("cv"), held.get("cap")
    if record.kind != "lognormal" or not isinstance(mean, int | float):
        return None
    top = float(cap) if isinstance(cap, int) else usual or TYPICAL_CAP * mean
    assert isinstance(spread, float)
    return Lengths(float(mean), min(top, most), spread)


def timeout_of(pipeline: Operation, name: str) -> float:
    """Seconds after which a verifier's answer counts as none."""
    step = pipeline.regions[0].block.ops
    found = (op for op in step if isinstance(op, VerifierOp | ToolOp) and op.title == name)
    held = next((python_value(op.properties.get("timeout")) for op in found), None)
    return held if isinstance(held, float) else VERDICT.cap
