"""`rpeg report`: a picture of a run, or a page of what a pipeline is predicted to take."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rpeg.tools import output
from rpeg.tools.console import OK, TEXTS, USAGE, Failure, language_only, read
from rpeg.tools.launching import need_torch
from rpeg.tools.predicting.arguments import files_read, target, target_arguments

HELP = "draw a run (PNG), or what a pipeline is predicted to take on a cluster (HTML)"
PICTURES = (".png", ".svg", ".pdf")
PAGES = (".html", ".htm")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "what",
        metavar="RUN|FILE[:PIPELINE]",
        help="a run's folder, such as runs/grpo; or .rpeg text, and which of its pipelines",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="default: RUN/report.png, or PIPELINE.html here",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    target_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the predicted figures as JSON")
    parser.epilog = "Options but for -o go with a FILE: what is predicted, not what was measured."


def run(options: argparse.Namespace) -> int:
    """Draws the one or the other: a run is a folder, a pipeline is in a file."""
    if Path(options.what).is_dir():
        return _measured(options)
    return _predicted(options)


def _measured(options: argparse.Namespace) -> int:
    given = (options.cluster, options.gpus, options.plan, options.arch, options.set, options.json)
    if any(given) or options.staleness is not None or options.correction is not None:
        text = "is the folder of a run, which was measured: only -o goes with it"
        raise Failure(f"{options.what} {text}", USAGE)
    folder = Path(options.what)
    out: Path = options.out or folder / "report.png"
    if out.suffix not in PICTURES:
        raise Failure(f"{out}: a picture's name ends in {', '.join(PICTURES)}", USAGE)
    output.refuse(out, [])
    need_torch()
    from rpeg.runtime.errors import RuntimeFailure
    from rpeg.runtime.logs.report import plot_run

    try:
        with output.replacing(out) as fresh:
            plot_run(folder, fresh)
    except RuntimeFailure as error:
        raise Failure(str(error)) from None
    print(out)
    return OK


def _predicted(options: argparse.Namespace) -> int:
    from rpeg.tools.checking.memory import lacking
    from rpeg.tools.predicting.estimates import predict
    from rpeg.tools.report.page import page

    what = Path(options.what)
    if not what.exists() and Path(options.what.partition(":")[0]).suffix not in TEXTS:
        text = "there is no such folder; give that of a run, such as runs/grpo, or a .rpeg file"
        raise Failure(f"{what}: {text}")
    source = read(options.what)
    language_only(source, "rpeg report")
    if options.out:
        output.refuse(options.out, files_read(options, source.path), PAGES)
    predicted = predict(source, target(options))
    figures, pipeline = predicted.estimate.to_json(), predicted.setting.pipeline
    out: Path = options.out or Path(f"{pipeline.title}.html")
    output.write(out, page(figures, pipeline))
    print(json.dumps(figures, indent=2) if options.json else out)
    if (least := lacking(predicted.estimate.memory)) is not None:
        print(f"note: {least}", file=sys.stderr)
    return OK
