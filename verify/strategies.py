"""Hypothesis strategies for the tasks' inputs, for this project's tests and for other projects."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from constructions.errors import BadInput


def histogram_sequences(T: int, L: int) -> SearchStrategy[list[int]]:
    """Sequences of L tokens 0..T-1 by recursive partitions, so that all counts are about equally frequent.

    Claim: A-D (App. D; step 4 prints K = k where K = k - 1 is meant).
    Raises: BadInput when T or L is less than 1.

    >>> from hypothesis import find
    >>> find(histogram_sequences(T=3, L=4), lambda x: x.count(x[0]) == 2 and len(set(x)) == 3)
    [0, 0, 1, 2]
    """
    if T < 1 or L < 1:
        raise BadInput(f"T={T}, L={L}: a sequence needs at least one token of at least one kind")
    return _partition_sequences(T, L)


@st.composite
def _partition_sequences(draw: DrawFn, T: int, L: int) -> list[int]:
    unused = list(range(T))
    tokens: list[int] = []
    K = L
    while K:
        k = draw(st.integers(1, K)) if len(unused) > 1 else 1
        token = unused.pop(draw(st.integers(0, len(unused) - 1)))
        tokens += [token] * (K - k + 1)
        K = k - 1
    return list(draw(st.permutations(tokens)))
