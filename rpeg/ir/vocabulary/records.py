"""Words with settings of their own: optimizers, adapters, permissions, distributions, pools, ...

Each is one row; a new one never touches the grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from rpeg.ir.rules.staleness import BOUNDS, OVERFLOWS
from rpeg.ir.rules.staleness import OLD_SPANS as FATES
from rpeg.ir.types.attributes import plain
from rpeg.ir.vocabulary.patterns import operands
from rpeg.ir.vocabulary.settings import (
    BOOL,
    DURATION,
    FLOAT,
    INT,
    SIZE,
    Bounds,
    Kind,
    Range,
    Setting,
    any_of,
    list_of,
    word,
)
from rpeg.ir.vocabulary.signature import Signature, signature


def need(name: str, kind: Kind, usual: str = "", **bounds: Unpack[Bounds]) -> Setting:
    """A setting that every use gives; `usual` is what a message offers where it is missing."""
    return Setting(name, kind, None, True, Range(**bounds), usual)


def may(name: str, kind: Kind, **bounds: Unpack[Bounds]) -> Setting:
    """A setting that may be absent."""
    return Setting(name, kind, None, False, Range(**bounds))


def has(
    name: str, kind: Kind, default: bool | int | float | str, **bounds: Unpack[Bounds]
) -> Setting:
    """A setting with a default."""
    return Setting(name, kind, plain(default), False, Range(**bounds))


def _table(*rows: Signature) -> Mapping[str, Signature]:
    return {row.name: row for row in rows}


BOUND, OVERFLOW, OLD_SPANS = word(*BOUNDS), word(*OVERFLOWS), word(*FATES)

RECORDS = _table(
    signature(
        "adamw",
        "AdamW with a learning-rate schedule over the steps of the pipeline",
        (),
        need("lr", FLOAT, "1e-6", least=0),
        has("beta1", FLOAT, 0.9, least=0, below=1),
        has("beta2", FLOAT, 0.999, least=0, below=1),
        has("weight_decay", FLOAT, 0.0, least=0),
        has("grad_clip", FLOAT, 1.0, least=0),
        has("warmup", INT, 0, least=0),
        has("schedule", word("constant", "cosine", "linear"), "constant"),
    ),
    signature(
        "lora",
        "low-rank adapters; the base weights stay as they are",
        (),
        need("rank", INT, "16", least=1),
        need("alpha", INT, "32", least=1),
        has("targets", word("all_linear", "attention"), "all_linear"),
    ),
    signature(
        "constant",
        "divide by responses x tokens instead of the tokens there are (Dr.GRPO)",
        (),
        need("tokens", INT, "1024", least=1),
    ),
)
"""Groups of settings that stand as the value of a setting."""

ALLOW = _table(
    signature(
        "bounded_async",
        "generation may lag behind training by so many steps",
        (),
        need("staleness", INT, "1", least=0),
        has("bound", BOUND, "strict"),
        has("overflow", OVERFLOW, "wait"),
        may("old_spans", OLD_SPANS),
    ),
    signature(
        "actor_critic_sharing",
        "actor and critic may share layers",
        (),
        may("shared_layers", INT, least=1),
    ),
    signature(
        "logprob_approximation",
        "old log-probs may be taken from the engine or interpolated",
        (),
        need("kind", word("bypass", "loglinear")),
    ),
    signature("streaming_update", "an update may start before its batch is whole"),
    signature(
        "tail_batching",
        "a step may be made of the responses that end first",
        (),
        need("over", FLOAT, "1.2", least=1),
    ),
    signature(
        "low_precision_rollout",
        "generation may use another datatype",
        (),
        need("dtype", word("fp8")),
    ),
)
"""Structural passes that a user may permit: `allow NAME(...)`."""

EXPECT = _table(
    signature(
        "lognormal",
        "a log-normal distribution of lengths or times",
        (),
        need("mean", any_of(INT, FLOAT, DURATION), "500", above=0),
        need("cv", FLOAT, "0.5", least=0, most=100),
        may("cap", INT, least=1),
    ),
    signature("histogram", "lengths as a file lists them", operands("file: uri")),
    signature(
        "ratio",
        "the share of groups that a collect keeps, or that advantages are not all zero of",
        (),
        need("mean", FLOAT, "0.5", above=0, most=1),
    ),
)
"""Distributions, for planning only: `expect NAME = ...`."""

POOLS = _table(
    signature("nodes", "every GPU of these nodes", operands("which: range")),
    signature("gpus", "GPUs numbered through the cluster, node by node", operands("which: range")),
    signature(
        "cores",
        "CPU cores of these nodes",
        operands("nodes: range"),
        need("per_node", INT, "1", least=1),
    ),
)
"""Kinds of pools: `pool NAME = ...`."""

CLAUSES = _table(
    signature(
        "par",
        "the parallel layout; tp x pp x cp x dp is the pool's size",
        (),
        need("dp", INT, "1", least=1),
        has("tp", INT, 1, least=1),
        has("pp", INT, 1, least=1),
        has("cp", INT, 1, least=1),
        has("ep", INT, 1, least=1),
        has("vpp", INT, 1, least=1),
        has("sp", BOOL, False),
        has("zero", INT, 0, least=0),
        has("recompute", word("none", "selective", "full"), "none"),
        may("order", list_of(word("tp", "cp", "ep", "dp", "pp"))),
    ),
    signature(
        "mb",
        "the size of a micro-batch",
        (),
        may("tokens", INT, least=1),
        may("seqs", INT, least=1),
    ),
    signature(
        "engine",
        "what generates",
        (),
        need("name", word("vllm", "embedded")),
        may("memory", FLOAT, above=0, most=1),
        may("max_seqs", INT, least=1),
    ),
    signature(
        "resid",
        "where a model's memory is while it is not used",
        (),
        has("params", word("always", "lazy", "host"), "always"),
        has("opt", word("always", "host"), "always"),
        has("kv", word("stage", "always"), "stage"),
    ),
    signature(
        "stream",
        "start before the source is whole",
        operands("source: stage"),
        may("groups", INT, least=1),
        may("samples", INT, least=1),
    ),
    signature(
        "publish",
        "send the new weights to a pool",
        operands("to: pool"),
        need("mode", word("reshard", "bcast", "relay")),
        has("overlap", BOOL, False),
        may("bucket", SIZE, least=1),
    ),
    signature("fuse", "run inside another stage", operands("with: stage")),
)
"""What a plan's line says of its stage."""

RULES: Mapping[str, tuple[str, ...]] = {
    "verifier": ("answer_tag", "exact_match", "math", "overlong"),
    "tool": ("calculator",),
}
"""Names that `rule:` may be followed by, by kind of declaration."""

SCHEMES: Mapping[str, str] = {
    "hf": "a Hugging Face repository",
    "gym": "a reasoning-gym task",
    "rule": "a built-in verifier or tool",
    "python": "user code, needs --allow-python",
    "run": "what another run exported",
}
"""Schemes of sources; a path has none."""

SOURCES: Mapping[str, Mapping[str, str]] = {
    "model": {"": "a path", "hf": "hf:NAME", "run": "run:PIPELINE/MODEL"},
    "data": {"": "a path", "hf": "hf:NAME", "gym": "gym:TASK"},
    "verifier": {"rule": "rule:NAME", "gym": "gym:TASK", "python": "python:module:function"},
}
"""Which schemes the sources of a kind of declaration have, "" standing for a path, and how each is
written. Of tools each form has its own."""
