"""`rpeg`: train, check, compile, launch and look at pipelines."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from types import ModuleType

import rpeg
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
    options, rest = parser.parse_known_args(arguments)
    if hasattr(options, "prompts") and not any(word[:1] == "-" and word != "-" for word in rest):
        options.prompts += rest
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return options


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
