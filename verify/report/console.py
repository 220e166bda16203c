"""Output that survives: any encoding, any width, a full disk, a closed stream, a reader that goes away."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 80  # of a terminal that does not say
CLOSED = "it is closed"
UNLIMITED = 1_000_000  # columns of a pipe or a file
PLAIN = str.maketrans({"█": "#", "…": "...", "–": "-", "—": "-", "×": "x", "≤": "<=", "≥": ">=", "→": "->"})


class ReaderGone(BaseException):
    """The reader of our output went away, as `| head` does; no `except Exception` and no library stops it."""


class Guarded:
    """A text stream that never fails: it writes what it can, and remembers why it could not write the rest.

    What the encoding lacks is written as ASCII. `failure` is None, or the reason in words; `has_text` says whether
    anything was to be written.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.failure: str | None = None
        self.has_text = False

    def write(self, text: str) -> int:
        self.has_text |= bool(text)
        self._attempt("write", text)
        return len(text)

    def flush(self) -> None:
        self._attempt("flush")

    def isatty(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def __getattr__(self, name: str) -> object:
        return getattr(self.stream, name)

    def _attempt(self, what: str, *text: str) -> None:
        if self.failure is not None:
            return
        if self.stream is None:
            self.failure = CLOSED if text else None
            return
        try:
            try:
                getattr(self.stream, what)(*text)
            except UnicodeEncodeError:
                self.stream.write(encodable(text[0], self.stream.encoding))
        except BrokenPipeError:
            raise ReaderGone from None
        except OSError as error:
            self.failure = error.strerror or str(error)
        except ValueError:
            self.failure = CLOSED


def encodable(text: str, encoding: str) -> str:
    r"""The text with what an encoding lacks in ASCII: as it is read, or as an escape.

    >>> encodable("█ 2 ≤ π é", "latin-1")
    '# 2 <= \\u03c0 é'
    """
    return text.translate(PLAIN).encode(encoding, "backslashreplace").decode(encoding)


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
