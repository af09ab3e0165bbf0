"""`rpeg generate`: what a trained model answers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rpeg.tools.console import OK, USAGE, Failure, decoded, probability
from rpeg.tools.models import (
    data,
    data_arguments,
    host,
    model_arguments,
    opened,
    runtime_failures,
    sampling_arguments,
)

if TYPE_CHECKING:
    from rpeg.runtime.models.standalone import Standalone
    from rpeg.runtime.trajectories import Prompts

HELP = "sample from a trained model: a run, a checkpoint, an export"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    model_arguments(parser)
    parser.add_argument(
        "prompts", nargs="*", metavar="PROMPT", help="-: each line of standard input is one"
    )
    data_arguments(parser, required=False, what="prompts: a .jsonl file, gym:TASK or hf:NAME")
    sampling_arguments(parser, heat=1.0)
    parser.add_argument(
        "--top-p",
        type=probability,
        default=1.0,
        metavar="P",
        help="draw among the tokens that make up this much probability (default: 1)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a completion: prompt, sample, completion, tokens, logprobs, finished",
    )


def run(options: argparse.Namespace) -> int:
    """Prints completions as they come."""
    if bool(options.prompts) == bool(options.data):
        raise Failure("give either prompts, or - to read them line by line, or --data", USAGE)
    with runtime_failures():
        for completion in _completions(options):
            text = (
                json.dumps(completion, ensure_ascii=False) if options.json else _block(completion)
            )
            print(text, flush=True)
    return OK


def _completions(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from rpeg.runtime.evaluate import in_parts
    from rpeg.runtime.models.standalone import engine_of

    here = host(options)
    prompts = _prompts(options, here)
    parts = in_parts(
        engine_of(here, opened(options)),
        prompts,
        n=options.n,
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        dtype=options.dtype,
    )
    for y, logprobs in parts:
        for k, length in enumerate(y.sampled_lengths.tolist()):
            yield {
                "prompt": y.rows[k].prompt,
                "sample": int(y.samples[k]),
                "completion": y.texts[k],
                "tokens": y.tokens[k, :length].tolist(),
                "logprobs": logprobs[k, :length].tolist(),
                "finished": bool(y.finished[k]),
            }


def _prompts(options: argparse.Namespace, here: Standalone) -> Prompts:
    import torch

    from rpeg.runtime.trajectories import Prompts, Row

    if options.data:
        return data(here, options).all(None)[0]
    texts = list(_texts(options.prompts))[: options.limit]
    return Prompts(tuple(map(Row, texts)), torch.arange(len(texts)))


def _texts(arguments: list[str]) -> Iterator[str]:
    for argument in arguments:
        if argument == "-":
            text = decoded(sys.stdin.buffer.read(), "<stdin>")
            yield from filter(None, text.splitlines())
        else:
            yield argument


def _block(completion: dict[str, Any]) -> str:
    """The prompt behind `>`, the completion, and how it ended if not by itself."""
    asked = "\n".join(f"> {line}" for line in completion["prompt"].splitlines())
    cut = "" if completion["finished"] else f"\n[cut after {len(completion['tokens'])} tokens]"
    return f"{asked}\n{completion['completion']}{cut}\n"
