"""Output that survives: any encoding, a full disk, a closed stream, a reader that goes away."""

from __future__ import annotations

from typing import TextIO

CLOSED = "it is closed"
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
