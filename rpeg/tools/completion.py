"""`--completion SHELL`: a script that teaches a shell to complete a command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "FILE[:PIPELINE]")
FOLDERS = ("DIR",)


def add_completion(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds the option."""
    text = "print a script of completions for a shell"
    parser.add_argument("--completion", action=_Print, choices=SHELLS, help=text)


class _Print(argparse.Action):
    """Prints the script and ends, like `--version`: no command or file is needed beside it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{**given, "dest": argparse.SUPPRESS, "default": argparse.SUPPRESS})

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        import shtab

        for action in _actions(parser):
            if action.metavar in FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's protocol
            elif action.metavar in FOLDERS:
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        print(shtab.complete(parser, str(values)))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
