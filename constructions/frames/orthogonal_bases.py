"""Exact line systems that are not equiangular: polygons, unions of orthogonal bases, root systems."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np

from constructions.errors import BadInput
from constructions.frames.finite_fields import hadamard_matrix
from constructions.frames.line_systems import Integers, LineSystem


def hadamard_pair(d: int) -> LineSystem:
    """The standard basis and a Hadamard matrix: two mutually unbiased bases, 2d lines with coherence 1 / sqrt(d).

    Claim: any entry of a Hadamard matrix with unit rows is +-1 / sqrt(d).
    Shapes: (2d, d).
    Raises: BadInput or NotKnown as hadamard_matrix.

    >>> hadamard_pair(4).T, hadamard_pair(4).coherence_squared
    (8, Fraction(1, 4))
    """
    rows = np.vstack([np.eye(d, dtype=np.int64), hadamard_matrix(d)])
    return LineSystem(f"two unbiased bases, Hadamard order {d}", d, Fraction(1, d), rows=rows)


def kerdock_bases(m: int) -> LineSystem:
    """d/2 + 1 mutually unbiased bases of R^d, d = 2^m for m = 2 or 4: d (d + 2) / 2 lines with coherence 1 / sqrt(d).

    Claim: Calderbank, Cameron, Kantor, Seidel, Proc. London Math. Soc. 75 (1997): sign vectors of quadratic forms whose
    alternating forms differ by invertible ones (a Kerdock set), and the standard basis.
    Shapes: (d (d + 2) / 2, d).
    Raises: BadInput unless m is 2 or 4 (the Kerdock sets this project finds).

    >>> kerdock_bases(2).T, kerdock_bases(4).T
    (12, 144)
    """
    if m not in (2, 4):
        raise BadInput(f"m={m}: must be 2 or 4 (the Kerdock sets this project finds)")
    points = np.array(list(product((0, 1), repeat=m)), dtype=np.int64)
    linear = points @ points.T
    bases = [np.eye(2**m, dtype=np.int64)]
    for form in _kerdock_set(m):
        quadratic = ((points @ np.triu(form)) * points).sum(axis=1)
        bases.append(1 - 2 * ((linear + quadratic[None, :]) % 2))
    return LineSystem(f"{len(bases)} unbiased bases, Kerdock set", 2**m, Fraction(1, 2**m), rows=np.vstack(bases))


def _kerdock_set(m: int) -> list[Integers]:
    """2^(m-1) alternating m x m matrices over F_2, all differences invertible: found by depth first search."""
    places = list(combinations(range(m), 2))
    forms = []
    for bits in product((0, 1), repeat=len(places)):
        form = np.zeros((m, m), dtype=np.int64)
        for bit, (i, j) in zip(bits, places, strict=True):
            form[i, j] = form[j, i] = bit
        forms.append(form)

    def extend(chosen: list[Integers], start: int) -> list[Integers] | None:
        if len(chosen) == 2 ** (m - 1):
            return chosen
        for number in range(start, len(forms)):
            if all(_is_invertible(forms[number] ^ other) for other in chosen):
                found = extend([*chosen, forms[number]], number + 1)
                if found is not None:
                    return found
        return None

    found = extend([forms[0]], 1)
    assert found is not None
    return found


def _is_invertible(form: Integers) -> bool:
    """Over F_2: the determinant, an integer below 2^20 here, is odd."""
    return round(float(np.linalg.det(form))) % 2 == 1


def root_lines(name: str) -> LineSystem:
    """The lines of the roots of D4, E6, E7 or E8, with coherence 1/2.

    Claim: 12 lines in R^4, 36 in R^6, 63 in R^7, 120 in R^8; each attains the Levenshtein bound
    (Delsarte, Goethals, Seidel, Geom. Dedicata 6 (1977)).
    Shapes: (lines, d).
    Raises: BadInput for another name.

    >>> [(root_lines(name).T, root_lines(name).d) for name in ("D4", "E6", "E7", "E8")]
    [(12, 4), (36, 6), (63, 7), (120, 8)]
    """
    if name == "D4":
        return LineSystem("roots of D4", 4, Fraction(1, 4), rows=_integer_roots(4))
    if name not in ("E6", "E7", "E8"):
        raise BadInput(f"name={name!r}: must be one of D4, E6, E7, E8")
    halves = np.array([x for x in product((1, -1), repeat=8) if x[0] == 1 and np.prod(x) == 1], dtype=np.int64)
    rows = np.vstack([2 * _integer_roots(8), halves])
    orthogonal_to = {"E8": 0, "E7": 1, "E6": 2}[name]
    for x in ([0, 0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 1, 1, 0])[:orthogonal_to]:
        rows = rows[rows @ np.array(x) == 0]
    return LineSystem(f"roots of {name}", 8 - orthogonal_to, Fraction(1, 4), rows=rows)


def _integer_roots(d: int) -> Integers:
    """One of each pair +-(e_i +- e_j)."""
    rows = np.zeros((d * (d - 1), d), dtype=np.int64)
    for number, (i, j) in enumerate(combinations(range(d), 2)):
        rows[2 * number, [i, j]] = 1, 1
        rows[2 * number + 1, [i, j]] = 1, -1
    return rows
