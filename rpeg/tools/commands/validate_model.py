"""`rpeg validate-model`: the cost model against published measurements."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rpeg.tools import output
from rpeg.tools.console import OK, Failure, natural

HELP = "compare the cost model with published measurements"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="DIR",
        help="folder of *.jsonl records; without it, the records that RPEG ships",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every prediction there")
    parser.add_argument(
        "--write-eras",
        type=Path,
        metavar="FILE",
        help="write the constants of every era, fitted to the records, as TOML",
    )
    parser.add_argument("--worst", type=natural, default=0, metavar="N", help="list the N worst")
    parser.epilog = "docs/cost-model.md tells what is predicted and how records are written."


def run(options: argparse.Namespace) -> int:
    """Predicts, prints, writes."""
    from rpeg.cost.validation.eras import as_toml
    from rpeg.cost.validation.rows import RowError
    from rpeg.cost.validation.validate import validate
    from rpeg.tools.views.validation import text

    folder: Path | None = options.folder
    if folder is not None and not folder.is_dir():
        raise Failure(f"{folder}: not a folder")
    records = [] if folder is None else list(folder.glob("*.jsonl"))
    for file in filter(None, (options.json, options.write_eras)):
        output.refuse(file, records)
    try:
        found = validate(folder)
    except RowError as error:
        raise Failure(str(error)) from None
    sys.stdout.write(text(found, options.worst))
    if options.json:
        output.write(
            options.json, json.dumps([o.as_dict() for o in found.outcomes], indent=1) + "\n"
        )
    if options.write_eras:
        output.write(options.write_eras, as_toml(found.fitted))
    return OK
