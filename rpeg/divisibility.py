"""Which layouts split a model evenly. The compiler asks where it finds the folder of a model, the
runtime wherever it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

EXPERTS = ("num_experts", "n_routed_experts", "num_local_experts")
"""What configurations call the number of experts: Qwen's, DeepSeek's and Mixtral's."""


@dataclass(frozen=True)
class Counts:
    """What of a decoder-only transformer is split: `layers` over pipeline chunks, `experts` over
    expert-parallel ranks, the others over tensor-parallel ranks.
    """

    layers: int
    heads: int
    kv_heads: int
    ffn: int
    """Columns of the MLP."""
    experts: int = 0
    """Experts that a token is routed among; 0 in a dense model."""

    @staticmethod
    def of_config(config: Mapping[str, Any]) -> Counts:
        """The counts of a Hugging Face `config.json`.

        Raises KeyError for one of another kind, TypeError where a count is none.
        """
        heads = config["num_attention_heads"]
        held = Counts(
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            ffn=config["intermediate_size"],
            experts=next((config[name] for name in EXPERTS if config.get(name)), 0),
        )
        least = {name: 0 if name == "experts" else 1 for name in vars(held)}
        for name, count in vars(held).items():
            if type(count) is not int or count < least[name]:
                raise TypeError(f"{name} must be a whole number of at least {least[name]}")
        return held


def misfits(counts: Counts, *, tp: int, pp: int, vpp: int, ep: int = 1) -> Iterator[str]:
    """Why the layout can't split the model evenly: one line for each count that does not divide."""
    for count, what, width, axis in (
        (counts.heads, "attention heads", tp, f"tp={tp}"),
        (counts.kv_heads, "key-value heads", tp, f"tp={tp}"),
        (counts.ffn, "columns of the MLP", tp, f"tp={tp}"),
        (counts.layers, "layers", pp * vpp, f"pp={pp}" if vpp == 1 else f"pp={pp} x vpp={vpp}"),
    ):
        if count % width:
            yield f"{count} {what} can't be split {width} ways ({axis}): write a divisor"
    if ep > 1 and not counts.experts:
        yield f"ep={ep} spreads experts, and this model is dense: write ep=1, or leave it out"
    elif counts.experts % ep:
        yield f"{counts.experts} experts can't be split {ep} ways (ep={ep}): write a divisor"


def engine_misfits(counts: Counts, *, tp: int, pp: int) -> Iterator[str]:
    """The same for a separate engine, which copies key-value heads where ranks outnumber them."""
    copied = tp if tp % counts.kv_heads == 0 else counts.kv_heads
    yield from misfits(replace(counts, kv_heads=copied), tp=tp, pp=pp, vpp=1)
