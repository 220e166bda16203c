"""Several arguments for one thing, of which one is enough."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from verify.checker.reading import NOT_CHECKABLE, Refusal

T = TypeVar("T")


def first_shown(arguments: Iterable[Callable[[], T]]) -> T:
    """What the first of these arguments shows that shows anything.

    Raises: Refusal where one says that something does not hold; why the first one shows nothing, where none does.
    """
    why = None
    for argument in arguments:
        try:
            return argument()
        except Refusal as refusal:
            if refusal.exit_code != NOT_CHECKABLE:
                raise
            why = why or refusal
    raise why or Refusal("", NOT_CHECKABLE)
