"""`rpeg`: train, check, compile, launch and look at pipelines."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import rpeg
from rpeg.ir.rules.violations import hint
from rpeg.tools.completion import add_completion
from rpeg.tools.console import Failure, tell
from rpeg.tools.messages import failed

COMMANDS = (
    *("run", "check", "compile", "launch", "verify", "fmt", "diff"),
    *("rollouts", "report", "generate", "eval", "export", "explain", "validate-model"),
    *("calibrate", "trace", "simulate"),
)
"""Each is a module of rpeg.tools.commands, with underscores for dashes."""

INTERRUPT = 130
"""Exit code of what Ctrl-C ended."""

EPILOG = """\
a first tour:
  rpeg check examples/sort_digits.rpeg
  rpeg run examples/sort_digits.rpeg:warmup
  rpeg run examples/sort_digits.rpeg:grpo
  rpeg rollouts runs/grpo --sort r
  rpeg report runs/grpo
rpeg-opt prints and rewrites the graph of a pipeline.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code: 0 done, 1 a problem with the input, 2 a wrong call, 130
    interrupted.
    """
    options: argparse.Namespace | None = None
    try:
        options = _parsed(arguments)  # which imports every command: it takes a moment
        code: int = _module(options.command).run(options)
        sys.stdout.flush()
        return code
    except Failure as failure:
        tell(failure)
        if getattr(options, "json", False) is True:
            print(failed(failure))
        return failure.code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return INTERRUPT


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"rpeg.tools.commands.{command.replace('-', '_')}")


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options. argparse reads `PROMPT ...` in one place only: those after options come here."""
    parser = _parser()
    words = sys.argv[1:] if arguments is None else arguments
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        near = hint(words[0], COMMANDS) or f"; commands: {', '.join(COMMANDS)}"
        parser.error(f"there is no command `{words[0]}`{near}")
    options, rest = parser.parse_known_args(arguments)
    if hasattr(options, "prompts") and not any(word[:1] == "-" and word != "-" for word in rest):
        options.prompts += rest
    elif rest:
        _unknown(parser, options.command, rest)
    return options


def _unknown(parser: argparse.ArgumentParser, command: str, rest: Sequence[str]) -> NoReturn:
    """Ends with the command's own usage, and what a misspelt option may have meant."""
    action = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    of_command: argparse.ArgumentParser = action.choices[command]
    known = [option for a in of_command._actions for option in a.option_strings]
    word = next((word for word in rest if word.startswith("-")), rest[0]).partition("=")[0]
    near = hint(word, known) if word.startswith("--") else ""
    of_command.error(f"unrecognized arguments: {' '.join(rest)}{near}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rpeg",
        description="Training pipelines of language models, as graphs that a compiler can see.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rpeg {rpeg.__version__}")
    add_completion(parser)
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    for name in COMMANDS:
        module = _module(name)
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
