"""Options that do not go together, and numbers out of range: one line each, alike in all commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from constructions.errors import BadInput

AddKind = Callable[[str, str], argparse.ArgumentParser]  # of a figure: its name, and what it shows


def flag(name: str) -> str:
    """How an option is typed.

    >>> flag("on_regions")
    '--on-regions'
    """
    return f"--{name.replace('_', '-')}"


def is_given(args: argparse.Namespace, name: str, defaults: Mapping[str, object]) -> bool:
    """Whether an option differs from its default, None where `defaults` has no other."""
    return bool(getattr(args, name) != defaults.get(name))


def check_alone(args: argparse.Namespace, alone: Mapping[str, Sequence[str]], defaults: Mapping[str, object]) -> None:
    """Raises BadInput for an option that another one, which does another job, would ignore."""
    for mode, ignored in alone.items():
        for name in ignored:
            if is_given(args, mode, defaults) and is_given(args, name, defaults):
                raise BadInput(f"{flag(name)}: has no effect with {flag(mode)}; drop one of the two")


def length_or_all(text: str | None, longest: int) -> int | None:
    """The number that --length names, None for all lengths.

    Raises: BadInput for anything else.

    >>> length_or_all("200", 999), length_or_all("all", 999)
    (200, None)
    """
    if text is None or text == "all":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(longest)) and 1 <= int(text) <= longest):
        raise BadInput(f"--length {text[:40]}: must be a whole number from 1 to {longest}, or all")
    return int(text)


OTHER_JOBS = ("impossible", "input", "table", "best", "figure5")  # options in whose place nothing is decided
ON_VERDICTS = ("report", "quiet", "verbose")
OFF = {"quiet": False, "verbose": False, "table": False, "figure5": False}


def check_verdict_is_asked(args: argparse.Namespace) -> None:
    """Raises BadInput for an option on how a verdict is shown where another one asks for another job."""
    if all(hasattr(args, name) for name in ON_VERDICTS):
        check_alone(args, dict.fromkeys((name for name in OTHER_JOBS if hasattr(args, name)), ON_VERDICTS), OFF)


def check_least(args: argparse.Namespace, least: int, *names: str) -> None:
    """Raises BadInput for an option below the least number that makes sense."""
    for name in names:
        value = getattr(args, name)
        if value is not None and value < least:
            raise BadInput(f"{flag(name)} {value}: must be at least {least}")


def stored_dtype(args: argparse.Namespace, dtypes: Sequence[str]) -> str:
    """The dtype of the stored weights: --dtype, else that of --precision where it is one, else float64."""
    named = args.dtype or (args.precision if args.precision in dtypes else "float64")
    return str(named)


def parsed_heads(option: str, text: str) -> tuple[int, ...]:
    """The head numbers in "2,4".

    Raises: BadInput for anything else.

    >>> parsed_heads("--subset", "2, 4")
    (2, 4)
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and len(part) < 6 for part in parts):
        raise BadInput(f"{option} {text!r}: must be head numbers with commas between, such as 2,4")
    return tuple(int(part) for part in parts)


def fractions(option: str, text: str, count: int) -> list[Fraction]:
    """Parses `count` fractions with commas between.

    Raises: BadInput for anything else, or exponents of more than two digits.

    >>> fractions("--values", "1/2,-1,0.25", 3)
    [Fraction(1, 2), Fraction(-1, 1), Fraction(1, 4)]
    """
    parts = [part.strip() for part in text.split(",")]
    try:
        found = [Fraction(part) for part in parts if len(part) <= 60 and not re.search(r"[eE][+-]?\d{3}", part)]
    except (ValueError, ZeroDivisionError):
        found = []
    if len(found) != count or len(parts) != count:
        raise BadInput(f"{option} {text[:60]!r}: must be {count} numbers with commas between, such as 1/2 or 0.5")
    return found


def whole_numbers(name: str, text: str, count: int | None = None) -> list[int]:
    """Reads 1,0,2: tokens, or `count` numbers.

    >>> whole_numbers("sequence", "1,0,2")
    [1, 0, 2]
    """
    parts = text.split(",")
    are_numbers = all(part.strip().isascii() and part.strip().isdigit() and len(part) < 10 for part in parts)
    if not are_numbers or count not in (None, len(parts)):
        many = "tokens" if count is None else f"{count} numbers"
        raise BadInput(f"{name}={text[:60]!r}: must be {many} with commas between them, such as 1,0")
    return [int(part) for part in parts]
