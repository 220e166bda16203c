"""What a trained modular adder does with its numbers: the frequencies of its embedding, and margins by a - b.

Nanda et al. find a few frequencies w in the embeddings of a and b; a clock's margin does not depend on a - b, a
pizza's is |cos(w (a - b)/2)| of its largest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_OF_IT = 0.9  # of an embedding's energy: the frequencies that have it are its frequencies


@dataclass(frozen=True)
class Spectrum:
    """Which share of an embedding's variance over the numbers each frequency 1..P//2 has."""

    shares: tuple[float, ...]

    @property
    def found(self) -> tuple[int, ...]:
        """The fewest frequencies that together have nine tenths of the variance, the largest share first."""
        order = sorted(range(len(self.shares)), key=lambda k: -self.shares[k])
        total, chosen = 0.0, list[int]()
        for k in order:
            if total >= MOST_OF_IT or self.shares[k] <= 0:
                break
            chosen.append(k + 1)
            total += self.shares[k]
        return tuple(chosen)


def spectrum(embedding: Array) -> Spectrum:
    """The discrete Fourier transform of the rows (P, d) of the numbers 0..P-1, without its mean.

    >>> circle = 2 * np.pi * 3 * np.arange(7) / 7
    >>> spectrum(np.stack([np.cos(circle), np.sin(circle)], axis=1)).found
    (3,)
    """
    P = len(embedding)
    rows = embedding - embedding[0]  # whose size is that of the waves, and whose squares are in range
    rows = np.ldexp(rows, -np.frexp(np.abs(rows).max())[1])
    energy = (np.abs(np.fft.rfft(rows, axis=0)) ** 2).sum(axis=1)[1:]
    energy *= np.where(2 * np.arange(1, P // 2 + 1) == P, 1.0, 2.0)  # the last one of an even P has no partner
    total = energy.sum()
    return Spectrum(tuple(float(x) for x in (energy / total if total > 0 else energy)))


def by_difference(P: int, pairs: Sequence[tuple[int, int]], margins: Array) -> Array:
    """The least margin of the pairs with each a - b mod P: a number for every difference, infinite where none is.

    >>> by_difference(2, [(0, 0), (0, 1), (1, 1)], np.array([3.0, 1.0, 2.0]))
    array([2., 1.])
    """
    least = np.full(P, np.inf)
    np.minimum.at(least, [(a - b) % P for a, b in pairs], margins)
    return least
