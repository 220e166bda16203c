"""What people read on the screen: lines that fit it, and which files were written."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80  # of a terminal that does not say
UNLIMITED = 1_000_000  # columns of a pipe or a file


def columns(stream: TextIO) -> int | None:
    """Returns how many columns fit: COLUMNS where it is a positive number, else the terminal's. None for a pipe or a
    file.
    """
    asked = os.environ.get("COLUMNS", "")
    if asked.isascii() and asked.isdigit() and int(asked) > 0:
        return int(asked)
    if not stream.isatty():
        return None
    try:
        return os.get_terminal_size(stream.fileno()).columns or WIDTH
    except (OSError, ValueError, AttributeError):
        return WIDTH


def screen(*, is_error: bool = False) -> Console:
    """Where people read: rich's console, which colours on a terminal; a pipe has no end of line."""
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    return Console(stderr=is_error, emoji=False, highlight=False, width=columns(stream) or UNLIMITED)


def folded(text: str, width: int) -> list[str]:
    """The text in lines of at most `width` columns, at least one; words that are longer are cut, and nothing is lost.

    >>> folded("one two three", 7), folded("", 7), folded("abcdef", 4)
    (['one two', 'three'], [''], ['abcd', 'ef'])
    """
    lines = []
    for line in text.split("\n"):
        lines += textwrap.wrap(line, max(width, 4), break_on_hyphens=False) or [""]
    return lines


def say(text: str) -> None:
    """Prints a text, in several lines where the screen is narrower."""
    print("\n".join(folded(text, columns(sys.stdout) or UNLIMITED)))


def say_written(*paths: object) -> None:
    """Says on stderr which files a command has written: stdout is for the result."""
    print(f"wrote {', '.join(map(str, paths))}", file=sys.stderr)
