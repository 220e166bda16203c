"""Large arrays a part at a time, so that what is computed on the way does not hold them several times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

PART = 1 << 20  # numbers
Kind = TypeVar("Kind", bound=np.generic)


def in_parts(x: NDArray[Kind]) -> Iterator[NDArray[Kind]]:
    """The numbers of an array in order, some at a time: views, where they lie in order in memory.

    >>> [part.tolist() for part in in_parts(np.arange(4.0).reshape(2, 2))]
    [[0.0, 1.0, 2.0, 3.0]]
    """
    flat = x.reshape(-1)
    for start in range(0, flat.size, PART):
        yield flat[start : start + PART]
