"""Imports and traces without the garbage collector: what they allocate stays, and looking through it takes a third."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Turns the cyclic garbage collector off for a while, where it was on.

    >>> with uncollected():
    ...     gc.isenabled()
    False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
