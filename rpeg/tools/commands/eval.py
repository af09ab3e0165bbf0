"""`rpeg eval`: how well a trained model does on held-out problems."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rpeg.tools.console import OK
from rpeg.tools.models import (
    data,
    data_arguments,
    host,
    model_arguments,
    opened,
    runtime_failures,
    sampling_arguments,
)

HELP = "measure a trained model on held-out problems"

_VERIFIER = "verifier"
"""What messages call it."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    model_arguments(parser)
    what = "problems: a .jsonl file with `prompt` and `answer`, gym:TASK or hf:NAME"
    data_arguments(parser, required=True, what=what)
    parser.add_argument(
        "--verifier",
        required=True,
        metavar="SOURCE",
        help="rule:NAME such as rule:exact_match, gym:TASK, or python:module:function",
    )
    sampling_arguments(parser, heat=0.0)
    parser.add_argument(
        "--allow-python",
        action="store_true",
        help="permit a python: verifier, which runs code of yours",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints the figures."""
    if options.allow_python:
        os.environ["RPEG_ALLOW_PYTHON"] = "1"
    with runtime_failures():
        record = _measure(options)
    print(json.dumps(record, ensure_ascii=False) if options.json else "\n".join(_lines(record)))
    return OK


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    """What `--json` prints; `failed` counts calls of the verifier that gave no reward."""
    import torch

    from rpeg.runtime.evaluate import in_parts
    from rpeg.runtime.models.standalone import engine_of
    from rpeg.runtime.passrates import pass_rates
    from rpeg.runtime.verifiers import Verifier

    here, model = host(options), opened(options)
    prompts, _ = data(here, options).all(None)
    verifier = Verifier(here, _VERIFIER, source=options.verifier)
    parts = in_parts(
        engine_of(here, model),
        prompts,
        n=options.n,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        dtype=options.dtype,
    )
    scored = [(verifier.score(y).cpu(), y.finished, y.sampled_lengths) for y, _ in parts]
    rewards, finished, lengths = (torch.cat(column) for column in zip(*scored, strict=True))
    return {
        "model": model.title,
        "data": options.data,
        "verifier": options.verifier,
        **asdict(pass_rates(rewards.view(-1, options.n))),
        "finished": float(finished.double().mean()),
        "tokens": float(lengths.double().mean()),
        "failed": int(here.logged[f"verifier/{_VERIFIER}/failed"]),
    }


def _lines(record: dict[str, Any]) -> Iterator[str]:
    """What people read."""
    error = record["standard_error"]
    spread = "" if error is None else f" (standard error {error:.4f})"
    yield f"model        {record['model']}"
    each = "1 completion" if record["n"] == 1 else f"{record['n']} completions"
    yield f"problems     {record['prompts']} of {record['data']}, {each} each"
    yield f"mean reward  {record['mean']:.4f}{spread}, by {record['verifier']}"
    for k, share in record["pass_at"].items() if record["n"] > 1 else ():
        yield f"{f'pass@{k}':<13}{share:.4f}"
    yield f"finished     {record['finished']:.1%}, {record['tokens']:.1f} tokens on average"
    if record["failed"]:
        yield f"failed       {record['failed']} calls of the verifier: they count as 0"
