"""The `verify` command: reads the command line, runs one subcommand, maps its outcome to an exit code."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from importlib import import_module
from typing import NoReturn

from constructions.errors import BadInput, ProvedImpossible
from verify.certificate import BAD_INPUT_EXIT_CODE

# Each names a module of verify.commands with HELP, add_arguments(parser) and run(args) -> exit code.
COMMANDS = (
    "histogram",
    "check",
    "figure",
    "precision",
    "frontier",
    "bounds",
    "count01",
    "contextual",
    "circuit",
    "language",
    "parity",
    "module",
    "claims",
)

BROKEN_PIPE_EXIT_CODE = 141
CRASH_EXIT_CODE = 70


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT_EXIT_CODE, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def one_line(message: object) -> str:
    """The message with its line ends written out: a path may hold some.

    >>> one_line("a" + chr(10) + "b")
    'a\\\\nb'
    """
    return str(message).replace("\r", "\\r").replace("\n", "\\n")


def is_json(args: argparse.Namespace) -> bool:
    """Whether the command was asked for JSON alone."""
    return bool(getattr(args, "json", False)) or getattr(args, "format", None) == "json"


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error is Python's or numpy's lack of memory, or torch's, which has no class of its own.

    >>> is_out_of_memory(RuntimeError("DefaultCPUAllocator: can't allocate memory: ...")), is_out_of_memory(TypeError())
    (True, False)
    """
    text = str(error)
    return isinstance(error, MemoryError) or "allocate memory" in text or "Storage size calculation" in text


def build_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands; building it imports neither torch nor numpy."""
    parser = OneLineParser(
        prog="verify",
        description="Builds hand-constructed transformer weights and proves them right on every input.",
        epilog="Exit codes: 0 PROVED, 1 REFUTED, 2 bad usage or input, 3 UNKNOWN.",
        allow_abbrev=False,
    )
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = import_module(f"verify.commands.{name}")
        subparser = subparsers.add_parser(name, help=module.HELP, description=module.HELP, allow_abbrev=False)
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code."""
    sys.set_int_max_str_digits(0)  # 2^100000 inputs are printed in full
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except ProvedImpossible as error:
        from verify.commands.request import print_impossible

        return print_impossible(error.claim, one_line(error), is_json=is_json(args))
    except BadInput as error:
        print(f"verify {args.command}: {one_line(error)}", file=sys.stderr)
        return BAD_INPUT_EXIT_CODE
    except KeyboardInterrupt as stop:  # a command that has written files by then says so
        done = str(stop) or "nothing was decided or written"
        print(f"verify {args.command}: interrupted, {one_line(done)}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_EXIT_CODE
    except Exception as error:
        if is_out_of_memory(error):
            print(f"verify {args.command}: not enough memory for these sizes. Choose smaller ones.", file=sys.stderr)
            return BAD_INPUT_EXIT_CODE
        traceback.print_exc()  # Python would exit with 1, which says REFUTED
        return CRASH_EXIT_CODE
    except SystemExit:  # rich ends so at a broken pipe, with 1, which would say REFUTED
        return BROKEN_PIPE_EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
