"""The `verify` command: reads the command line, runs one subcommand, maps its outcome to an exit code."""

from __future__ import annotations

import argparse
import gc
import sys
import traceback
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from typing import TextIO, cast

from constructions.errors import BadInput, ProvedImpossible
from verify import __version__
from verify.commands.guarded import Guarded, ReaderGone
from verify.commands.interruption import INTERRUPTED_EXIT_CODE
from verify.commands.options import check_verdict_is_asked
from verify.commands.outcome import CRASH_EXIT_CODE, Outcome
from verify.commands.parsing import OneLineParser, Stopped, one_line, parsed
from verify.commands.process import (
    Interrupts,
    abandon_unwritten,
    interrupts,
    keep_freed_memory,
    one_thread_of_numpy,
    open_missing_streams,
)
from verify.commands.vocabulary import Translated, translated
from verify.frame import registry
from verify.frame.certificate import BAD_INPUT_EXIT_CODE, ExitCode

BROKEN_PIPE_EXIT_CODE = 141
WORDS = "T: tokens in the alphabet; L: length; d: embedding size; p: hidden neurons; all words: docs/glossary.md."


def is_json(args: argparse.Namespace) -> bool:
    """Whether the command was asked for JSON alone."""
    return bool(getattr(args, "json", False)) or getattr(args, "format", None) == "json"


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Shows what a certificate does not speak of in one line on stderr, other warnings as Python does."""
    shown_by_python = warnings.showwarning

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        if issubclass(category, UserWarning) and category.__module__.startswith(("verify.", "constructions.")):
            print(f"warning: {one_line(message)}", file=sys.stderr)
        else:
            shown_by_python(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def build_parser(named: Collection[str] | None = None) -> argparse.ArgumentParser:
    """The parser that knows the arguments of these commands, or of all; building it imports neither torch nor numpy.

    Where none of the names is a command's, it lists all commands and knows the arguments of none.
    """
    parser = OneLineParser(
        prog="verify",
        description="Builds hand-constructed transformer weights and proves them right on every input.",
        epilog="Exit codes: 0 PROVED, 1 REFUTED, 2 bad usage or input, 3 UNKNOWN; 70 a bug of ours, 130 interrupted, "
        f"141 output closed. {WORDS}",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"weightproof {__version__}")
    add_debug(parser)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands = registry.commands()
    asked = commands if named is None else {name: commands[name] for name in named if name in commands}
    for name, command in (asked or commands).items():
        does = command.summary
        subparser = subparsers.add_parser(name, help=does, description=does, allow_abbrev=False)
        if name not in asked:
            continue
        module = command.module()
        module.add_arguments(subparser)
        subparser.epilog = f"{subparser.epilog} {WORDS}" if subparser.epilog else WORDS
        for each in (subparser, *kinds_of(subparser)):
            add_debug(each)
        subparser.set_defaults(run=module.run)
    return parser


def commands_in(argv: Sequence[str]) -> list[str]:
    """The subcommand that a command line names, none where it names none that there is.

    >>> commands_in(["--debug", "parity", "--T", "3"]), commands_in(["--help"])
    (['parity'], [])
    """
    return [word for word in argv if not word.startswith("-")][:1]


def in_new_words(argv: Sequence[str]) -> Translated:
    """The command line in this release's words, and which of its words were those of the release before."""
    commands = registry.commands()
    modules = [commands[name].module() for name in commands_in(argv) if name in commands]
    return translated(argv, getattr(modules[0], "RENAMED", {}) if modules else {})


def kinds_of(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of a command's own subcommands, such as `verify figure KIND`."""
    if parser._subparsers is not None:
        for action in parser._subparsers._group_actions:
            yield from cast(dict[str, argparse.ArgumentParser], action.choices).values()


def add_debug(parser: argparse.ArgumentParser) -> None:
    help = "show the traceback of a bug of ours"
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=help)


def main(argv: list[str] | None = None) -> int:
    """Runs the command and returns its exit code; without `argv` it is this process's own command.

    Output that cannot be written is said on stderr, with the verdict, whose exit code stands; without one it is 2.
    """
    out, err = Guarded(sys.stdout), Guarded(sys.stderr)
    if argv is None:
        open_missing_streams()
        keep_freed_memory()
        one_thread_of_numpy()
    try:
        with redirect_stdout(cast(TextIO, out)), redirect_stderr(cast(TextIO, err)):
            name, code = _run(argv, out)
            out.flush()
            if out.failure is not None:
                answer = f"{code.answer}, but " if isinstance(code, ExitCode) else ""
                print(f"{name}: {answer}standard output could not be written ({out.failure})", file=sys.stderr)
                code = code if answer or code else BAD_INPUT_EXIT_CODE
            err.flush()
    except ReaderGone:
        code = BROKEN_PIPE_EXIT_CODE
    if argv is None:
        abandon_unwritten()
        gc.freeze()
    return code


def _run(argv: list[str] | None, out: Guarded) -> tuple[str, int]:
    """The command's name as it is typed, and its exit code."""
    name, is_debug, seen, is_own = "verify", False, Interrupts(), argv is None
    try:
        line = in_new_words(sys.argv[1:] if argv is None else argv)
        name = " ".join(["verify", *(word for word in commands_in(line.argv) if word in registry.commands())])
        args = parsed(build_parser(commands_in(line.argv)), line.argv)
        is_debug = getattr(args, "debug", False)
        with interrupts() if is_own else nullcontext(seen) as seen, one_line_warnings():
            check_verdict_is_asked(args)
            code: int = args.run(args)
            sys.stdout.flush()
        for said in line.told:
            print(f"{name}: {said}; the old spelling goes with the next release", file=sys.stderr)
        return name, code
    except Stopped as stop:
        return name, stop.code if isinstance(stop.code, int) else BAD_INPUT_EXIT_CODE
    except ProvedImpossible as error:
        from verify.commands.request import print_impossible

        return name, print_impossible(error.claim, one_line(error), is_json=is_json(args))
    except BadInput as error:
        return _said(name, *Outcome.of(error, name))
    except KeyboardInterrupt as stop:  # a command that has written files by then says so
        return _said(name, f"interrupted, {str(stop) or done_by(out)}", INTERRUPTED_EXIT_CODE)
    except ReaderGone:
        raise
    except BaseException as error:  # also an exit of foreign code, whose 0 would say PROVED, and 1 REFUTED
        if seen.happened:  # a library made another error of it
            return _said(name, f"interrupted, {done_by(out)}", INTERRUPTED_EXIT_CODE)
        outcome = Outcome.of(error, name.removeprefix("verify").strip())
        if is_debug and outcome.code == CRASH_EXIT_CODE:
            traceback.print_exc()
        return _said(name, *outcome)


def done_by(out: Guarded) -> str:
    """Says for people what an interrupted command has done already."""
    return "its output is not complete" if out.has_text else "nothing was decided or written"


def _said(name: str, message: object, code: int) -> tuple[str, int]:
    """Says one line on stderr."""
    print(f"{name}: {one_line(message)}", file=sys.stderr)
    return name, code


if __name__ == "__main__":
    sys.exit(main())
