"""`rpeg explain`: how long a step takes, why, and what would shorten it."""

from __future__ import annotations

import argparse
import json
import sys

from rpeg.tools.console import OK, language_only, read
from rpeg.tools.predicting.arguments import target, target_arguments

HELP = "tell how long a step takes on a cluster, what it waits for, and what would shorten it"


def arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "file", metavar="FILE[:PIPELINE]", help=".rpeg text, and which of its pipelines"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another value for a param"
    )
    target_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.epilog = "docs/explain.md tells what the figures mean."


def run(options: argparse.Namespace) -> int:
    """Predicts and prints."""
    from rpeg.tools.predicting.estimates import predict
    from rpeg.tools.views.explanation import explanation

    source = read(options.file)
    language_only(source, "rpeg explain")
    found = explanation(predict(source, target(options)))
    text = json.dumps(found.to_json(), indent=1) + "\n" if options.json else found.text()
    sys.stdout.write(text)
    return OK
