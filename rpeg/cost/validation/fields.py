"""What a record's fields may hold. One that makes no sense is named: a prediction without it would
be of something else.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rpeg.cost.validation.rows import Row, Unknown, as_number


@dataclass(frozen=True)
class Form:
    """Which values a field may have."""

    text: str
    """In words."""
    has: Callable[[Any], bool]


def _number(value: Any) -> float:
    """A number, or the one that a text begins with, as in "16/8 (rollout/train)"; else not one."""
    if isinstance(value, str):
        return 0.0 if value.strip() == "0" else as_number(value) or math.nan
    return math.nan if isinstance(value, bool) or not isinstance(value, int | float) else value


def _whole(value: Any, least: int) -> bool:
    number = _number(value)
    return least <= number < math.inf and (isinstance(value, str) or number == int(number))


COUNT = Form("a whole number of at least 1", lambda value: _whole(value, 1))
COUNT_OR_NONE = Form("a whole number of at least 0", lambda value: _whole(value, 0))
AMOUNT = Form("a number above 0", lambda value: 0 < _number(value) < math.inf)
FACTOR = Form("a number of at least 1", lambda value: 1 <= _number(value) < math.inf)
SHARE = Form("a number above 0 and at most 1", lambda value: 0 < _number(value) <= 1)
TEXT = Form("a text", lambda value: isinstance(value, str))
ANY = Form("anything", lambda value: True)

FORMS: Mapping[str, Mapping[str, Form]] = {
    "hardware": {
        **dict.fromkeys(("count", "nodes", "gpus_per_node", "generation_count"), COUNT),
        **dict.fromkeys(("gpu", "gpu_class", "machine"), TEXT),
        **dict.fromkeys(("interconnect", "system"), ANY),
    },
    "model": {
        **dict.fromkeys(
            ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab"), COUNT
        ),
        **dict.fromkeys(("experts", "topk", "moe_ffn", "shared_expert_ffn"), COUNT_OR_NONE),
        **dict.fromkeys(("name", "config"), TEXT),
        "extra": ANY,
    },
    "parallelism": {
        **dict.fromkeys(("tp", "pp", "vpp", "dp", "cp", "ep", "etp", "gen_tp", "gen_pp"), COUNT),
        "imbalance": FACTOR,
        **dict.fromkeys(("sp", "zero", "attention_dp", "note"), ANY),
    },
    "batch": {
        **dict.fromkeys(
            ("global", "micro", "global_tokens", "num_requests", "concurrency"), AMOUNT
        ),
        **dict.fromkeys(("grad_accum", "micro_num", "micro_batches", "ppo_mini_batch"), AMOUNT),
        **dict.fromkeys(("generation_samples", "samples_per_prompt"), AMOUNT),
    },
    "lengths": {
        **dict.fromkeys(("seq", "prompt", "response", "response_max", "max_response"), AMOUNT),
        "average_total": AMOUNT,
    },
    "recipe_values": {
        "vllm_gpu_memory_utilization": SHARE,
        "speculative_tokens": COUNT_OR_NONE,
        **dict.fromkeys(
            ("sequence_packing", "activation_checkpointing", "force_on_policy_ratio"), ANY
        ),
    },
}
"""By table, the fields that predictions read; 0 experts are those of a dense model."""

ALONE = {"message_bytes": AMOUNT, "staleness": COUNT_OR_NONE}
"""Fields that stand in no table."""

CLOSED = ("parallelism",)
"""Tables without remarks: a key that isn't known is a part of the layout that isn't modelled."""

ALIKE = 0.85
"""How alike a key is to a known one that it is a slip, not a remark (`difflib`'s ratio)."""

FORMATS = (
    *("bf16", "fp16", "float16", "16-bit", "half", "mixed"),
    *("fp8", "float8", "f8", "e4m3", "e5m2", "fp4"),
)
"""One of these words is in the name of a precision that is modelled."""


def check(row: Row) -> None:
    """Raises Unknown, with the field and its value, for the first that makes no sense."""
    for problem in _problems(row):
        raise Unknown(problem)


def _problems(row: Row) -> Iterator[str]:
    for table, forms in FORMS.items():
        if not isinstance(told := row.fields.get(table), dict) and told is not None:
            yield f"{table} {_shown(told)} is not an object"
        held = {key: value for key, value in row.mapping(table).items() if value is not None}
        for key, value in held.items():
            if key in forms and not forms[key].has(value):
                yield f"{table}.{key} {_shown(value)} is not {forms[key].text}"
            elif key not in forms and (known := _meant(table, key, forms)) is not None:
                yield f"unknown {table}.{key}{known}"
    for key, form in ALONE.items():
        value = row.fields.get(key)
        if value is not None and not form.has(value):
            yield f"{key} {_shown(value)} is not {form.text}"
    precision = row.fields.get("precision")
    if precision is not None and not _modelled(precision):
        yield f"precision {_shown(precision)} is not bf16, fp16, fp8 or fp4"


def _meant(table: str, key: str, forms: Mapping[str, Form]) -> str | None:
    """What to add about a key that isn't known; None for a remark."""
    close = difflib.get_close_matches(key, forms, n=1, cutoff=ALIKE)
    if close:
        return f": did you mean {close[0]}?"
    return "" if table in CLOSED else None


def _modelled(precision: object) -> bool:
    if not isinstance(precision, str):
        return False
    text = precision.lower()
    return not text or any(word in text for word in FORMATS)


def _shown(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)[:40]
