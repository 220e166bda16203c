"""How many threads torch computes in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Meanwhile torch computes in one thread: small products lose by being split, most of all on busy cores.

    Sums are then added up in one order, whatever the number of cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
