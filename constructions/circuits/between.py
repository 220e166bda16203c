"""What is called between pieces of long work, and may end it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Between = Callable[[], None]  # called between pieces of a long run; what it raises ends the run
AT_ONCE = 1024  # gates or positions of one piece
Item = TypeVar("Item")


def goes_on() -> None:
    """Does nothing between pieces: the run goes on.

    >>> goes_on()
    """


def watched(items: Iterable[Item], between: Between, at_once: int = AT_ONCE) -> Iterator[Item]:
    """The items, with `between` called before each piece of so many.

    >>> looks = []
    >>> list(watched("abc", lambda: looks.append(len(looks)), at_once=2)), looks
    (['a', 'b', 'c'], [0, 1])
    """
    for i, item in enumerate(items):
        if not i % at_once:
            between()
        yield item
