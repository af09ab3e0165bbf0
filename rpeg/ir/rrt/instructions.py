"""The instructions of L3: the calls that a generated program makes of `rpeg.runtime`.

A test holds this table to the runtime's own signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Attribute

from rpeg.ir.types.attributes import RecordAttr
from rpeg.ir.vocabulary.settings import python_value

ANY = "any"
"""Any value of the program."""


@dataclass(frozen=True)
class Instruction:
    """One callable of the runtime."""

    name: str
    receiver: str = ""
    """Class of the object it is a method of; empty for a function or a class of the runtime."""
    things: tuple[str, ...] = ()
    """Classes of the positional values; `A | B` is one of them."""
    more: str = ""
    """Class of any number of further positional values."""
    each: str = ""
    """Class of one further result for each of those."""
    settings: tuple[str, ...] = ()
    """Settings that every call gives."""
    optional: tuple[str, ...] = ()
    """Settings that a call may leave out."""
    keywords: tuple[str, ...] = ()
    """Settings whose value is another value of the program."""
    free: bool = False
    """It takes values by keyword under any name."""
    results: tuple[str, ...] = ()
    """Classes of what it returns."""
    open: bool = False
    """What it returns is what was put in elsewhere: the call says its classes, behind `gives`."""

    def gives(self, things: int) -> list[str]:
        """Classes of what it returns for so many positional values."""
        wanted = [thing for thing in self.things if thing != "Name"]
        further = max(0, things - len(wanted)) if self.each else 0
        return [*self.results, *[self.each] * further]

    @property
    def key(self) -> tuple[str, str]:
        """Receiver and name."""
        return self.receiver, self.name


_RESPONSES = "Trajectories | Pairs"
_SAMPLING = ("n", "max_tokens", "temperature", "max_turns", "seed")

_ROWS = (
    # the run
    Instruction(
        "start",
        settings=("pipeline", "steps", "processes", "source_sha256"),
        optional=("may_stop", "pools", "pool", "home"),
        results=("Run",),
    ),
    Instruction("groups", "Run", settings=("layout",), results=("Groups",)),
    Instruction("restore", "Run"),
    Instruction("report", "Run", ("Trajectories",), free=True),
    Instruction("measure", "Run", ("Trajectories",), free=True),
    Instruction("checkpoint", "Run", settings=("keep",)),
    Instruction("export", "Run", ("Trainer",), settings=("to",)),
    Instruction("stop", "Run", ("Metric",), settings=("above",)),
    Instruction("finish", "Run"),
    # what exists
    Instruction(
        "Trainer",
        "",
        ("Run", "Name"),
        settings=("role", "source", "dtype", "optimizer", "horizon"),
        optional=("micro_batch",),
        keywords=("source", "groups"),
        results=("Trainer",),
    ),
    Instruction("InitialWeights", "", ("Trainer",), results=("Source",)),
    Instruction(
        "FrozenModel",
        "",
        ("Run", "Name"),
        settings=("role", "dtype"),
        optional=("source", "micro_batch"),
        keywords=("source", "groups"),
        results=("FrozenModel",),
    ),
    Instruction(
        "SampledModel", "", ("Run", "Name"), settings=("source",), results=("SampledModel",)
    ),
    Instruction("share_tokenizer", "", (ANY,), more=ANY),
    Instruction(
        "Judge",
        "",
        ("Run", "Name"),
        settings=("template", "max_tokens", "dtype"),
        optional=("source",),
        keywords=("source", "groups"),
        results=("Judge",),
    ),
    Instruction(
        "PromptData",
        "",
        ("Run", "Name"),
        settings=("source", "seed"),
        optional=("limit", "split"),
        results=("PromptData",),
    ),
    Instruction(
        "DemoData",
        "",
        ("Run", "Name"),
        settings=("source", "seed"),
        optional=("limit", "split"),
        results=("DemoData",),
    ),
    Instruction(
        "PairData",
        "",
        ("Run", "Name"),
        settings=("source", "seed"),
        optional=("limit", "split"),
        results=("PairData",),
    ),
    Instruction(
        "Verifier",
        "",
        ("Run", "Name"),
        settings=("kind", "source", "timeout"),
        optional=("soft", "max"),
        results=("Verifier",),
    ),
    Instruction("Scalar", "", ("Run", "Name"), settings=("init",), results=("Scalar",)),
    Instruction("LatestWeights", "", ("Run", "Trainer"), results=("LatestWeights",)),
    Instruction(
        "SentWeights", "", ("Run", "Trainer"), settings=("target",), results=("SentWeights",)
    ),
    Instruction(
        "ReceivedWeights",
        "",
        ("Run", "SampledModel"),
        settings=("source", "window"),
        results=("ReceivedWeights",),
    ),
    Instruction(
        "EmbeddedEngine",
        "",
        ("Run", "Trainer | SampledModel"),
        keywords=("groups",),
        results=("EmbeddedEngine",),
    ),
    Instruction(
        "TrajectoryBuffer",
        "",
        ("Run", "Name"),
        settings=("capacity", "max_lag", "bound"),
        optional=("old_spans",),
        results=("TrajectoryBuffer",),
    ),
    Instruction(
        "Channel",
        "",
        ("Run", "Name"),
        settings=("source", "target", "capacity"),
        optional=("max_lag", "bound", "old_spans"),
        results=("Channel",),
    ),
    Instruction(
        "Collect",
        "",
        ("Run", "Name"),
        settings=("groups", "max_rounds"),
        optional=("max_lag", "bound", "old_spans"),
        results=("Collect",),
    ),
    Instruction(
        "Rollouts",
        "",
        ("Run", "Name"),
        settings=("size", "max_lag", "bound", "overflow"),
        optional=("again",),
        keywords=("engine", "weights"),
        results=("Rollouts",),
    ),
    # weights on their way to an engine
    Instruction("publish", "LatestWeights", ("Trainer",)),
    Instruction("publish", "SentWeights", ("Trainer",)),
    Instruction("wait", "ReceivedWeights", settings=("step",), keywords=("step",)),
    Instruction("swap_weights", "EmbeddedEngine", ("LatestWeights | ReceivedWeights",)),
    Instruction("reset_prefix_cache", "EmbeddedEngine"),
    # the step
    Instruction("batch", "PromptData", settings=("size", "order", "seed"), results=("Prompts",)),
    Instruction("batch", "DemoData", settings=("size", "order", "seed"), results=("Demos",)),
    Instruction("batch", "PairData", settings=("size", "order", "seed"), results=("Pairs",)),
    Instruction(
        "generate",
        "EmbeddedEngine",
        ("Prompts",),
        settings=(*_SAMPLING, "top_p", "dtype", "routing"),
        optional=("stop", "renew"),
        keywords=("renew",),
        results=("Trajectories", "TokenField"),
    ),
    Instruction("offer", "Rollouts", ("Prompts",)),
    Instruction(
        "generate",
        "Rollouts",
        settings=(*_SAMPLING, "top_p", "dtype", "routing"),
        optional=("stop",),
        results=("Trajectories", "TokenField"),
    ),
    Instruction("put", "TrajectoryBuffer", ("Trajectories",), more="TokenField"),
    Instruction(
        "take",
        "TrajectoryBuffer",
        settings=("step",),
        keywords=("step",),
        results=("Trajectories", "TokenField"),
    ),
    Instruction("put", "Channel", more=ANY),
    Instruction("take", "Channel", settings=("step",), keywords=("step",), open=True),
    Instruction(
        "keep",
        "Collect",
        ("ResponseField", "Trajectories"),
        more=ANY,
        settings=("where",),
    ),
    Instruction("take", "Collect", settings=("step",), keywords=("step",)),
    Instruction("trajectories", "Collect", results=("Trajectories",)),
    Instruction("rewards", "Collect", results=("ResponseField",)),
    Instruction("token_field", "Collect", settings=("index",), results=("TokenField",)),
    Instruction("response_field", "Collect", settings=("index",), results=("ResponseField",)),
    Instruction("score", "Verifier", ("Trajectories",), results=("ResponseField",)),
    Instruction("score", "Judge", ("Trajectories",), results=("ResponseField",)),
    Instruction("score", "Trainer", ("Trajectories",), results=("ResponseField",)),
    Instruction("score", "FrozenModel", ("Trajectories",), results=("ResponseField",)),
    Instruction("token_scores", "FrozenModel", ("Trajectories",), results=("TokenField",)),
    Instruction("logprob", "Trainer", (_RESPONSES,), results=("TokenField",)),
    Instruction("logprob", "FrozenModel", (_RESPONSES,), results=("TokenField",)),
    Instruction("values", "Trainer", ("Trajectories",), results=("TokenField",)),
    Instruction("values", "FrozenModel", ("Trajectories",), results=("TokenField",)),
    Instruction("forward", "", (_RESPONSES,), more=ANY, each="TokenField", optional=("asked",)),
    Instruction(
        "weighted_sum", more="ResponseField", settings=("weights",), results=("ResponseField",)
    ),
    Instruction(
        "kl_penalty",
        "",
        ("Trajectories", ANY, "TokenField", "TokenField"),
        settings=("coef", "estimator"),
        keywords=("coef",),
        results=("TokenField",),
    ),
    Instruction("sum_tokens", "", ("Trajectories", "TokenField"), results=("ResponseField",)),
    Instruction("returns", "", ("Trajectories", ANY), settings=("gamma",), results=("TokenField",)),
    Instruction(
        "gae",
        "",
        ("Trajectories", "TokenField", "TokenField"),
        settings=("gamma", "lambda_"),
        results=("TokenField", "TokenField"),
    ),
    Instruction(
        "whiten",
        "",
        ("Trajectories", ANY),
        settings=("count",),
        keywords=("groups",),
        results=(ANY,),
    ),
    Instruction(
        "kl_controller",
        "Scalar",
        ("Trajectories", "TokenField", "TokenField"),
        settings=("target", "horizon"),
        keywords=("groups",),
    ),
    Instruction(
        "group_advantage",
        "",
        ("Trajectories", "ResponseField"),
        settings=("baseline", "scale"),
        results=("ResponseField",),
    ),
    Instruction(
        "remax_advantage",
        "",
        ("Trajectories", "ResponseField", "ResponseField"),
        results=("ResponseField",),
    ),
    Instruction(
        "importance",
        "",
        ("Run", "Trajectories", "TokenField", "TokenField"),
        settings=("floor", "cap", "mode", "level"),
        results=("TokenField",),
    ),
    Instruction(
        "ppo_clip",
        "",
        ("Trajectories", ANY, "TokenField"),
        settings=("clip_low", "clip_high", "ratio"),
        optional=("clip_dual",),
        keywords=("weight",),
        results=("Loss",),
    ),
    Instruction(
        "cispo",
        "",
        ("Trajectories", ANY, "TokenField"),
        settings=("clip_high",),
        keywords=("weight",),
        results=("Loss",),
    ),
    Instruction(
        "policy_gradient",
        "",
        ("Trajectories", ANY),
        keywords=("weight",),
        results=("Loss",),
    ),
    Instruction(
        "kl_loss",
        "",
        ("Trajectories", "TokenField"),
        settings=("coef", "estimator"),
        results=("Loss",),
    ),
    Instruction(
        "value_loss",
        "",
        ("Trajectories", "TokenField", "TokenField"),
        settings=("clip", "coef"),
        results=("Loss",),
    ),
    Instruction(
        "distill",
        "",
        ("Trajectories", "TokenField"),
        settings=("divergence", "coef"),
        results=("Loss",),
    ),
    Instruction("entropy_bonus", "", ("Trajectories",), settings=("coef",), results=("Loss",)),
    Instruction("cross_entropy", "", ("Demos",), settings=("coef",), results=("Loss",)),
    Instruction(
        "dpo",
        "",
        ("Pairs", "TokenField"),
        settings=("beta", "label_smoothing"),
        results=("Loss",),
    ),
    Instruction("reward_loss", "", ("Pairs",), settings=("margin",), results=("Loss",)),
    Instruction(
        "update",
        "Trainer",
        more="Loss",
        settings=("agg", "epochs", "minibatches", "shuffle", "routing", "seed"),
    ),
    # what is measured
    Instruction(
        "evaluate",
        "",
        ("EmbeddedEngine", "PromptData", "Verifier"),
        settings=("name", *_SAMPLING),
        optional=("limit",),
        results=("Metric",),
    ),
    Instruction(
        "evaluate_loss",
        "",
        ("Trainer", "DemoData"),
        settings=("name",),
        optional=("limit",),
        results=("Metric",),
    ),
    Instruction(
        "evaluate_pairs",
        "",
        ("Trainer | FrozenModel", "PairData"),
        settings=("name",),
        optional=("limit", "beta"),
        keywords=("reference",),
        results=("Metric",),
    ),
)

INSTRUCTIONS: Mapping[tuple[str, str], Instruction] = {row.key: row for row in _ROWS}
"""(receiver class, name) -> instruction."""

CONSTANTS: Mapping[str, str] = {"ON_POLICY": "TokenField"}
"""Names of the runtime that a program may use as values, with their classes."""

RECORDS: Mapping[str, tuple[str, ...]] = {
    "Layout": ("dp", "tp", "pp", "cp", "ep", "vpp", "sp", "zero", "recompute"),
    "MicroBatch": ("tokens", "seqs"),
    "AdamW": ("lr", "beta1", "beta2", "weight_decay", "grad_clip", "warmup", "schedule"),
}
"""Classes of the runtime that stand as the value of a setting, with their fields."""

TABLES: tuple[str, ...] = ("pools",)
"""Records that a program writes as a dictionary of pairs of numbers, under names of their own."""


def pools_of(table: Attribute) -> dict[str, tuple[int, int]]:
    """(first, past the last) of the processes of each pool of a table, where it gives them."""
    held = table.settings if isinstance(table, RecordAttr) else {}
    found = {name: python_value(value) for name, value in held.items()}
    pairs = {name: bounds for name, bounds in found.items() if isinstance(bounds, tuple)}
    return {
        name: (bounds[0], bounds[1])
        for name, bounds in pairs.items()
        if len(bounds) == 2 and isinstance(bounds[0], int) and isinstance(bounds[1], int)
    }
