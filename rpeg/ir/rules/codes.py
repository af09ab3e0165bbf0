"""Every rule of the verifier, by the code that its violations carry.

`pages/CODE.md` says what the rule is for, how to mend what breaks it, and shows both. mypy holds
the codes of violations to this list, and a test holds the list to the pages.
"""

from __future__ import annotations

from typing import Literal

EveryLevel = Literal[
    "malformed-operation",
    "misplaced-operation",
    "used-before-definition",
    "zero-distance-cycle",
    "operand-kind",
    "result-type",
    "unknown-setting",
    "missing-setting",
    "setting-kind",
    "setting-range",
    "unknown-word",
    "illegal-at-level",
]
"""What operations of every level keep to: their form, their signature, their order."""

Algorithm = Literal[
    "one-step",
    "undeclared",
    "unused-declaration",
    "bad-source",
    "rounded-copy",
    "optimizer-without-update",
    "update-without-optimizer",
    "state-kind",
    "missing-terminator",
    "not-yielded",
    "yielded-twice",
    "yielded-as-another",
    "yield-count",
    "used-after-yield",
    "stale-read",
    "old-from-lagged-weights",
    "empty-window",
    "bound-without-window",
    "old-spans",
    "uncorrected-lag",
    "corrected-twice",
    "lag-beyond-correction",
    "lag-beyond-allow",
    "window-beyond-allow",
    "mixed-trajectories",
    "kept-without-trajectories",
    "collect-without-keep",
    "foreign-logprobs",
    "foreign-loss",
    "repeated-stage",
    "repeated-loss",
    "repeated-export",
    "own-teacher",
    "cut-distribution",
    "crossed-clip-bounds",
    "unanchored-loss",
    "pair-aggregation",
    "eval-operands",
    "uneven-minibatches",
    "weights-count",
    "group-of-one",
    "whiten-count",
    "remax-baseline",
    "importance-operands",
    "importance-band",
    "unlike-trunks",
    "unlike-tokenizers",
]
"""L0: what a step computes."""

Plan = Literal[
    "unknown-cluster",
    "outside-cluster",
    "overlapping-pools",
    "unknown-pool",
    "unknown-stage",
    "open-stages",
    "placed-twice",
    "repeated-clause",
    "clause-choice",
    "layout-size",
    "layout-contradiction",
    "idle-optimizer",
    "unlike-residency",
    "batch-scope-of-stream",
    "publish-elsewhere",
    "unpublished-weights",
]
"""L0's plans and L1: where stages run."""

Placed = Literal[
    "no-process-group",
    "unknown-process-group",
    "empty-process-group",
    "not-fusible",
    "buffer-rows",
    "buffer-too-small",
    "lost-version",
    "no-destination",
    "chunk-form",
    "chunk-scope",
]
"""L1: stages on process groups, movement, fused passes, buffers, streams."""

Schedule = Literal[
    "unknown-task",
    "repeated-task",
    "missing-task",
    "broken-dependence",
    "edge-distance",
]
"""L2: the order of tasks."""

Program = Literal[
    "plain-names",
    "not-a-literal",
    "unknown-instruction",
    "call-operands",
    "call-results",
    "loop-form",
    "one-loop",
    "start-first",
    "restore-once",
    "finish-last",
    "process-count",
    "channel-ends",
    "uneven-shares",
    "swap-without-reset",
]
"""L3: calls of the runtime."""

Code = EveryLevel | Algorithm | Plan | Placed | Schedule | Program
