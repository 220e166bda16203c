"""Embeddings of low coherence: T unit vectors in R^d that overlap little, exact where a family is known."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor
from torch.nn.functional import pad

from constructions.equiangular import conference, simplex
from constructions.errors import BadInput, NotKnown
from constructions.finite_fields import is_paley_order
from constructions.line_systems import LineSystem
from constructions.packing_optimiser import Progress, coherence, optimised_lines


@dataclass(frozen=True)
class Frame:
    """T unit vectors in R^d, rounded to float64.

    `coherence` is the float64 estimate of max |<v_i, v_j>|; verify.coherence certifies the stored numbers.
    `coherence_squared` is the exact value before rounding where the family is exact.

    Shapes: vectors (T, d).
    """

    vectors: Tensor
    family: str
    coherence: float
    coherence_squared: Fraction | None = None


def low_coherence(
    T: int, d: int, *, seed: int = 0, progress: Progress | None = None, steps: int | None = None
) -> Frame:
    """The best T unit vectors in R^d that this project knows: an exact family, a part of one, or a numerical search.

    Claim: A-4.4: tokens of coherence M count as long as M stays below a bound in L. `steps` bounds the search,
    0 asks for exact families only.
    Shapes: vectors (T, d).
    Raises: BadInput when T < 1 or d < 1, or d = 1 < T; NotKnown when steps = 0 and no exact family fits.

    >>> low_coherence(6, 3).family
    'conference matrix, Paley q=5'
    """
    if T < 1 or d < 1:
        raise BadInput(f"T={T}, d={d}: both must be at least 1")
    if d == 1 < T:
        raise BadInput(f"d=1: all unit vectors of R^1 lie on one line, got T={T}. Use --d 2 or more.")
    exact = _exact(T, d)
    if exact is not None:
        return exact
    if steps == 0:
        raise NotKnown(f"T={T}, d={d}: no exact family of low coherence is known here. Allow a search with steps > 0.")
    found = optimised_lines(T, d, seed=seed, progress=progress, **({} if steps is None else {"steps": steps}))
    return Frame(found, "optimised", float(coherence(found)))


def _exact(T: int, d: int) -> Frame | None:
    if d >= T:
        return Frame(torch.eye(T, d, dtype=torch.float64), "orthonormal", 0.0, Fraction(0))
    if d == T - 1:
        return _part(simplex(T), T, d)
    orders = [q for q in range(T - 1, 2 * d) if q % 4 == 1 and is_paley_order(q)]
    return _part(conference(orders[-1]), T, d) if orders else None


def _part(lines: LineSystem, T: int, d: int) -> Frame:
    """The first T of the lines, in the first dimensions of R^d."""
    family = lines.family if lines.T == T else f"{T} of the {lines.T} lines of {lines.family}"
    vectors = pad(lines.vectors()[:T], (0, d - lines.d))
    return Frame(vectors, family, float(coherence(vectors)), lines.coherence_squared)
