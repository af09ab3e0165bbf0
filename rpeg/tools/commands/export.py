"""`rpeg export`: a trained model as a Hugging Face folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rpeg.tools.console import OK, Failure, folder
from rpeg.tools.models import model_arguments, opened, runtime_failures
from rpeg.tools.output import refuse_folder

if TYPE_CHECKING:
    from rpeg.runtime.models.saved import SavedModel

HELP = "write a trained model as a Hugging Face folder"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    model_arguments(parser)
    parser.add_argument(
        "-o", "--out", required=True, type=folder, metavar="DIR", help="folder to write"
    )
    parser.add_argument("--force", action="store_true", help="replace a model that is there")


def run(options: argparse.Namespace) -> int:
    """Exports the model, whole or not at all."""
    out: Path = options.out
    if not options.force and out.is_dir() and any(out.iterdir()):
        raise Failure(f"{out} isn't empty: choose another folder, or --force to replace a model")
    refuse_folder(out, [Path(options.where)])
    with runtime_failures():
        _check(out)
        model = opened(options)
        _write(model, out)
    print(f"{out}: {model.title}, {model.shape.parameters:,} parameters")
    return OK


def _check(out: Path) -> None:
    from rpeg.runtime.models.export import check_target

    check_target(out)


def _write(model: SavedModel, out: Path) -> None:
    from rpeg.runtime.models.export import export_model

    try:
        export_model(model, out.resolve())
    except OSError as error:
        raise Failure(f"{out} can't be written: {error.strerror}") from None
