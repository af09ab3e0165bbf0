"""The options that let generation run ahead of training: of every command that reads a pipeline."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rpeg.passes.rpeg_bounded_async import CORRECTIONS, UNWEIGHTED
from rpeg.tools.console import USAGE, Failure, natural


@dataclass(frozen=True)
class Ahead:
    """How far generation is to run ahead of training, and what its losses do about it."""

    staleness: int
    correction: str


def ahead_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that `ahead_of` reads."""
    parser.add_argument(
        "--staleness",
        type=natural,
        metavar="K",
        help="let generation run K steps ahead, as the file's `allow bounded_async` permits",
    )
    parser.add_argument(
        "--correction",
        choices=(*CORRECTIONS, UNWEIGHTED),
        metavar="WORD",
        help="with --staleness: decoupled (default), truncated, icepop, sequence_mask or "
        "none-if-covered",
    )


def ahead_of(options: argparse.Namespace) -> Ahead | None:
    """What the options say of running ahead. Raises Failure."""
    if options.staleness is None:
        if options.correction is not None:
            raise Failure("--correction is for what --staleness changes: give both", USAGE)
        return None
    return Ahead(options.staleness, options.correction or next(iter(CORRECTIONS)))
