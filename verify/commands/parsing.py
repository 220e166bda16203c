"""How options are read: numbers of any length get one clear line, and no option is given twice."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from constructions.errors import BadInput
from verify.commands.vocabulary import MODEL, group, option
from verify.frame.certificate import BAD_INPUT_EXIT_CODE

MOST_DIGITS = 1000  # of an integer on the command line; Python itself stops at 4300
MOST_CHARACTERS = 200  # of one word in a message
LARGEST_SEED = 2**63 - 1  # as constructions.seeds says, which imports torch
REST = "rest"  # where a command keeps the options that it passes on; one that has none refuses them
GIVEN = "_given"  # where a namespace keeps which options it has seen, until `parsed`


def integer(text: str) -> int:
    """Reads an integer.

    >>> integer(" -12"), integer("1_0")
    (-12, 10)
    """
    if len(text) > MOST_DIGITS:
        raise argparse.ArgumentTypeError(f"a number of {len(text)} characters is longer than {MOST_DIGITS}")
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None


class Once(argparse.Action):
    """Stores an option, and refuses to do so twice: argparse would silently keep the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[object] | None,
        option_string: str | None = None,
    ) -> None:
        if option_string is not None:
            given: set[str] = vars(namespace).setdefault(GIVEN, set())
            if self.dest in given:
                raise argparse.ArgumentError(self, "is given twice; keep one")
            given.add(self.dest)
        setattr(namespace, self.dest, self.const if self.nargs == 0 else values)


class ConstantOnce(Once):
    """An option without a value that stores a constant."""

    def __init__(self, option_strings: Sequence[str], dest: str, const: object = None, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, const=const, **options)


class FlagOnce(Once):
    """An option without a value that stores True."""

    def __init__(self, option_strings: Sequence[str], dest: str, default: object = False, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, const=True, default=default, **options)


def register(parser: argparse.ArgumentParser) -> None:
    """Makes all options of a parser be read so, whoever adds them."""
    parser.register("type", int, integer)
    for name, action in ((None, Once), ("store", Once), ("store_true", FlagOnce), ("store_const", ConstantOnce)):
        parser.register("action", name, action)


class Stopped(SystemExit):
    """A parser has said all there is to say: help, or what is wrong with the options. No other exit is one of ours."""


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and whose options are given once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        register(self)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            self._print_message(message, sys.stderr)
        raise Stopped(status)

    def error(self, message: str) -> NoReturn:
        option = re.match(r"argument (--[\w-]+).*: expected one argument$", message)
        if option:
            message += f"; a value that begins with - is written {option[1]}=-1"
        self.exit(BAD_INPUT_EXIT_CODE, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def innermost(parser: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of the command that a line names, and of its own kind, as in `verify figure margin`."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            name = next((word for word in argv if word in action.choices), None)
            return parser if name is None else innermost(action.choices[name], argv)
    return parser


def unrecognized(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """What is said of words that a command has no meaning for, with the option of its own that comes nearest.

    >>> parser = argparse.ArgumentParser()
    >>> _ = parser.add_argument("--precision")
    >>> unrecognized(parser, ["--presicion", "bfloat16"])
    'unrecognized arguments: --presicion bfloat16; is --precision meant?'
    """
    typed = words[0].partition("=")[0]
    near = get_close_matches(typed, [word for action in parser._actions for word in action.option_strings], 1)
    return f"unrecognized arguments: {' '.join(words)}" + (f"; is {near[0]} meant?" if near else "")


def add_weights(parser: argparse.ArgumentParser, help: str | None = None) -> None:
    """--weights FILE, and --map for a file that has other names for our tensors."""
    option(parser, "weights", **({} if help is None else {"help": help}))
    add_map(parser)


def add_map(parser: argparse.ArgumentParser, of: str = "weights") -> None:
    """--map mine=theirs, with which the file in the option `of` is read."""
    parser.set_defaults(map_of=of)
    group(parser, MODEL).add_argument(
        "--map",
        action="append",
        metavar="MINE=THEIRS",
        help="the file's name of a tensor (.T after it transposes; =PREFIX. takes what lies under it); may be repeated",
    )


def with_names(args: argparse.Namespace) -> None:
    """Joins --map to the file that it is about.

    Raises: BadInput where there is none, or the pairs are not of that form.
    """
    from constructions.names import WeightsFile

    pairs, of = vars(args).pop("map", None), vars(args).pop("map_of", None)
    if pairs is None:
        return
    path = getattr(args, of)
    if path is None:
        raise BadInput(f"--map {pairs[0]}: says how a file of weights is read. Name the file, as in --weights FILE.")
    setattr(args, of, WeightsFile.of(path, pairs))


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of a command line, without what was noted on the way; REST of a command that passes some on."""
    args, rest = parser.parse_known_args(argv)
    parser = innermost(parser, sys.argv[1:] if argv is None else argv)
    if hasattr(args, REST):
        setattr(args, REST, rest)
    elif rest:
        parser.error(unrecognized(parser, rest))
    vars(args).pop(GIVEN, None)
    with_names(args)
    seed = getattr(args, "seed", None)
    if seed is not None and not 0 <= seed <= LARGEST_SEED:
        parser.error(f"argument --seed: {seed} is not from 0 to 2^63 - 1")
    return args


def one_line(message: object) -> str:
    """The message with its line ends written out, as a path may hold some, and long words cut.

    >>> one_line("a" + chr(10) + "b")
    'a\\\\nb'
    """
    return shortened(str(message).replace("\r", "\\r").replace("\n", "\\n"))


def shortened(message: str) -> str:
    """The message with every word of more than 200 characters cut.

    >>> len(shortened("T=" + "9" * 5000 + " is too large"))
    174
    """
    return " ".join(_cut(word) for word in message.split(" "))


def _cut(word: str) -> str:
    if len(word) <= MOST_CHARACTERS:
        return word
    return f"{word[: MOST_CHARACTERS // 2]}...{word[-MOST_CHARACTERS // 5 :]} ({len(word)} characters)"
