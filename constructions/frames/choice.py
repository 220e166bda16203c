"""Embeddings of low coherence: T unit vectors in R^d that overlap little, exact where a family is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from math import cos, pi

import numpy as np

from constructions.errors import BadInput, NotKnown
from constructions.frames import equiangular, orthogonal_bases
from constructions.frames.finite_fields import is_paley_order
from constructions.frames.line_systems import LineSystem, coherence
from constructions.model_arrays import Array
from constructions.progress import Progress


@dataclass(frozen=True)
class Frame:
    """T unit vectors in R^d, rounded to float64.

    `coherence` is the float64 estimate of max |<v_i, v_j>|; verify.tasks.histogram.coherence certifies the stored
    numbers.
    `coherence_squared` is the exact value before rounding where the family is exact and rational.

    Shapes: vectors (T, d).
    """

    vectors: Array
    family: str
    coherence: float
    coherence_squared: Fraction | None = None


def low_coherence(
    T: int, d: int, *, seed: int = 0, progress: Progress | None = None, steps: int | None = None
) -> Frame:
    """The best T unit vectors in R^d that this project knows: an exact family, a part of one, or a numerical search.

    Claim: A-4.4: tokens of coherence M count as long as M stays below a bound in L. Exact families that attain a
    bound are returned at once; otherwise the search competes with them. `steps` bounds the search (about half a
    minute at T = 32 by default), 0 asks for exact families only.
    Shapes: vectors (T, d).
    Raises: BadInput when T < 1 or d < 1, d = 1 < T, or steps < 0; NotKnown when steps = 0 and no exact family fits.

    >>> low_coherence(6, 3).family
    'conference matrix, Paley q=5'
    >>> low_coherence(32, 15, steps=0).family
    '32 of the 36 lines of graph of a Latin square'
    """
    if T < 1 or d < 1:
        raise BadInput(f"T={T}, d={d}: both must be at least 1")
    if d == 1 < T:
        raise BadInput(f"d=1: all unit vectors of R^1 lie on one line, got T={T}. Use --d 2 or more.")
    if steps is not None and steps < 0:
        raise BadInput(f"steps={steps}: must be at least 0 (0 asks for exact families only)")
    exact = exact_frame(T, d)
    if exact is not None and (steps == 0 or _is_known_optimal(exact, T, d)):
        return exact
    if steps == 0:
        raise NotKnown(f"T={T}, d={d}: no exact family of low coherence is known here. Allow a search with steps > 0.")
    from constructions.frames.optimiser import STEPS, optimised_lines

    vectors = optimised_lines(T, d, seed=seed, progress=progress, steps=STEPS if steps is None else steps)
    found = Frame(vectors, "optimised", coherence(vectors))
    # an exact family wins a tie: its numbers are nicer, and only rounding separates them
    return exact if exact is not None and exact.coherence <= found.coherence * (1 + 1e-9) else found


def exact_frame(T: int, d: int) -> Frame | None:
    """The exact family, or the part of one, with the lowest coherence for (T, d); None where this project has none.

    Claim: any T lines of a family in R^d' with d' <= d have at most the family's coherence.
    Shapes: vectors (T, d).

    >>> exact_frame(16, 6).coherence_squared
    Fraction(1, 9)
    >>> exact_frame(17, 6).family
    '17 of the 36 lines of roots of E6'
    """
    if d >= T:
        return Frame(np.eye(T, d), "orthonormal", 0.0, Fraction(0))
    if d == 2:
        angles = np.arange(T) * pi / T
        return Frame(np.stack([np.cos(angles), np.sin(angles)], axis=1), "regular polygon", cos(pi / T))
    fitting = [entry for entry in _catalogue(T, d) if entry.T >= T and entry.d <= d]
    if not fitting:
        return None
    return _part(min(fitting, key=lambda entry: (entry.coherence_squared, entry.T, entry.d)).build(), T, d)


@dataclass(frozen=True)
class _Entry:
    """What a family will be, before it is built."""

    T: int
    d: int
    coherence_squared: Fraction
    build: Callable[[], LineSystem]


def _catalogue(T: int, d: int) -> Iterator[_Entry]:
    """All families of this project that can hold T lines in R^d."""
    if d >= T - 1:
        yield _Entry(T, T - 1, Fraction(1, (T - 1) ** 2), partial(equiangular.simplex, T))
    for q in range(5, 2 * d, 4):
        if is_paley_order(q):
            yield _Entry(q + 1, (q + 1) // 2, Fraction(1, q), partial(equiangular.conference, q))
    for order in (4 * i for i in range(1, d // 4 + 1)):
        if order < 92:
            build = partial(orthogonal_bases.hadamard_pair, order)
            yield _Entry(2 * order, order, Fraction(1, order), build)
    yield from _sporadic()


@lru_cache(maxsize=1)
def _sporadic() -> tuple[_Entry, ...]:
    """Single families and complements, built once; the list is short and the matrices are small."""
    builders: list[Callable[[], LineSystem]] = [
        *(partial(equiangular.bent, m, is_large) for m in (2, 3, 4) for is_large in (False, True)),
        *(partial(equiangular.steiner_triples, m) for m in (3, 4)),
        *(partial(equiangular.steiner_pairs, v) for v in (12, 16)),
        *(partial(equiangular.latin_square, is_large) for is_large in (False, True)),
        lambda: equiangular.naimark_complement(equiangular.steiner_triples(3)),
        lambda: equiangular.naimark_complement(equiangular.steiner_triples(4)),
        equiangular.symplectic,
        *(partial(orthogonal_bases.kerdock_bases, m) for m in (2, 4)),
        *(partial(orthogonal_bases.root_lines, name) for name in ("D4", "E6", "E7", "E8")),
    ]
    systems = [build() for build in builders]
    return tuple(_Entry(lines.T, lines.d, lines.coherence_squared, partial(_itself, lines)) for lines in systems)


def _itself(lines: LineSystem) -> LineSystem:
    return lines


def _part(lines: LineSystem, T: int, d: int) -> Frame:
    """The first T of the lines, in the first dimensions of R^d."""
    family = lines.family if lines.T == T else f"{T} of the {lines.T} lines of {lines.family}"
    vectors = np.pad(lines.vectors()[:T], ((0, 0), (0, d - lines.d)))
    return Frame(vectors, family, coherence(vectors), lines.coherence_squared)


def _is_known_optimal(frame: Frame, T: int, d: int) -> bool:
    """Whether the exact coherence equals a lower bound: Welch, beyond d(d+1)/2 lines also Rankin and Levenshtein."""
    if frame.coherence_squared is None or frame.coherence_squared == 0:
        return True  # regular polygon, orthonormal
    bounds = [Fraction(T - d, d * (T - 1))]
    if d * (d + 1) < 2 * T:
        bounds += [Fraction(1, d), Fraction(3 * T - d * d - 2 * d, (d + 2) * (T - d))]
    return frame.coherence_squared == max(bounds)
