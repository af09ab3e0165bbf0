"""What the commands on trained models share: naming one, sampling from it, messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rpeg.tools.console import Failure, natural, positive, temperature
from rpeg.tools.launching import need_torch

if TYPE_CHECKING:
    from rpeg.runtime.data import PromptData
    from rpeg.runtime.models.saved import SavedModel
    from rpeg.runtime.models.standalone import Standalone


def model_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that name a saved model."""
    parser.add_argument(
        "where",
        metavar="WHERE",
        help="a run's folder, one of its checkpoints, a Hugging Face folder, hf:NAME, "
        "or run:PIPELINE/MODEL",
    )
    parser.add_argument(
        "--step", type=natural, metavar="N", help="of a run: which checkpoint (default: the newest)"
    )
    parser.add_argument(
        "--model", metavar="NAME", help="of a checkpoint: which model, where it holds several"
    )


def data_arguments(parser: argparse.ArgumentParser, *, required: bool, what: str) -> None:
    """Options that name rows: those of `prompts(...)` in a pipeline."""
    parser.add_argument("--data", required=required, metavar="SOURCE", help=what)
    parser.add_argument(
        "--split", metavar="NAME", help="of a folder of .jsonl files, or of hf:NAME"
    )
    parser.add_argument(
        "--data-seed", type=natural, default=0, metavar="N", help="of gym: rows (default: 0)"
    )
    parser.add_argument(
        "--limit", type=positive, metavar="K", help="only the first K rows (default: all)"
    )


def sampling_arguments(parser: argparse.ArgumentParser, *, heat: float) -> None:
    """Options that say how completions are drawn; `heat` is the default temperature."""
    parser.add_argument(
        "-n", type=positive, default=1, metavar="N", help="completions a prompt (default: 1)"
    )
    parser.add_argument(
        "--max-tokens", type=positive, default=128, metavar="N", help="default: 128"
    )
    parser.add_argument(
        "--temperature",
        type=temperature,
        default=heat,
        metavar="T",
        help=f"0: the most probable token (default: {heat:g})",
    )
    parser.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="of the draws (default: 0)"
    )
    parser.add_argument(
        "--dtype",
        choices=("fp32", "bf16"),
        default="fp32",
        help="of the arithmetic (default: fp32)",
    )


@contextmanager
def runtime_failures() -> Iterator[None]:
    """Turns what the runtime refuses into a Failure, and says what to install without torch."""
    need_torch()
    from rpeg.runtime.errors import RuntimeFailure

    try:
        yield
    except RuntimeFailure as error:
        raise Failure(str(error)) from None


def opened(options: argparse.Namespace) -> SavedModel:
    """The model that the options name; prints notes about it. Raises RuntimeFailure."""
    from rpeg.runtime.models.saved import open_saved

    model = open_saved(options.where, step=options.step, model=options.model)
    for note in model.notes:
        print(f"note: {note}", file=sys.stderr)
    return model


def host(options: argparse.Namespace) -> Standalone:
    """This process, with the seed of the options; paths are relative to the working folder."""
    from rpeg.runtime.models.standalone import Standalone

    return Standalone(Path.cwd(), options.seed)


def data(host: Standalone, options: argparse.Namespace) -> PromptData:
    """The prompts of `--data`. Raises RuntimeFailure."""
    from rpeg.runtime.data import PromptData

    return PromptData(
        host,
        "data",
        source=options.data,
        split=options.split,
        seed=options.data_seed,
        limit=options.limit,
    )
