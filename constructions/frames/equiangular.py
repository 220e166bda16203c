"""Exact equiangular lines: simplices, conference matrices, Steiner systems, difference sets, graphs, complements."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

import numpy as np

from constructions.errors import BadInput
from constructions.frames.finite_fields import conference_matrix, hadamard_matrix
from constructions.frames.line_systems import Integers, LineSystem


def simplex(T: int) -> LineSystem:
    """The T = d + 1 corners of a regular simplex, with all inner products -1 / d.

    Claim: A-4.4: attains the Welch bound at d = T - 1; the Gram matrix is I - (J - I) / (T - 1).
    Shapes: (T, T - 1).
    Raises: BadInput when T < 2.

    >>> simplex(4).coherence_squared, simplex(4).d
    (Fraction(1, 9), 3)
    """
    if T < 2:
        raise BadInput(f"T={T}: a simplex needs T >= 2 corners")
    seidel = np.eye(T, dtype=np.int64) - 1
    return LineSystem("simplex", T - 1, Fraction(1, (T - 1) ** 2), seidel=seidel)


def conference(q: int) -> LineSystem:
    """q + 1 equiangular lines in R^((q+1)/2), an equiangular tight frame.

    Claim: van Lint & Seidel, Indag. Math. 28 (1966): a symmetric conference matrix of order T gives T lines in
    R^(T/2) with coherence 1 / sqrt(T - 1).
    Shapes: (q + 1, (q + 1) / 2).
    Raises: BadInput unless q = 1 mod 4 is a prime or the square of a prime (the fields this project builds).

    >>> conference(5).T, conference(5).d, conference(5).coherence_squared  # diagonals of the icosahedron
    (6, 3, Fraction(1, 5))
    """
    return LineSystem(f"conference matrix, Paley q={q}", (q + 1) // 2, Fraction(1, q), seidel=conference_matrix(q))


def steiner(blocks: list[tuple[int, ...]], name: str) -> LineSystem:
    """The equiangular tight frame of a Steiner system: per point, a Hadamard matrix on the blocks through it.

    Claim: Fickus, Mixon, Tremain, Linear Algebra Appl. 436 (2012): v (r + 1) lines in R^b, coherence 1 / r, for
    b blocks, r of them through each point, any two points in exactly one, and a Hadamard matrix of order r + 1.
    Shapes: (v (r + 1), b), entries 0 and +-1.
    Raises: BadInput when two points do not lie in exactly one block; NotKnown without a Hadamard matrix.

    >>> steiner(list(combinations(range(4), 2)), "pairs").d
    6
    """
    v, b = 1 + max(max(block) for block in blocks), len(blocks)
    incidence = np.zeros((v, b), dtype=np.int64)
    for number, block in enumerate(blocks):
        incidence[list(block), number] = 1
    meets = incidence @ incidence.T
    r = int(meets[0, 0])
    if not (meets == np.ones((v, v), dtype=np.int64) + (r - 1) * np.eye(v, dtype=np.int64)).all():
        raise BadInput(f"blocks: not a Steiner system, some pair of the {v} points does not lie in exactly one block")
    H = hadamard_matrix(r + 1)
    rows = np.zeros((v, r + 1, b), dtype=np.int64)
    for point in range(v):
        rows[point][:, incidence[point] == 1] = (H * H[:, :1])[:, 1:]
    return LineSystem(f"Steiner system, {name}", b, Fraction(1, r * r), rows=rows.reshape(-1, b))


def steiner_pairs(v: int) -> LineSystem:
    """The Steiner frame of all pairs of v points: v^2 lines in R^(v(v-1)/2) with coherence 1 / (v - 1).

    Claim: Fickus, Mixon, Tremain 2012, needs a Hadamard matrix of order v.
    Shapes: (v^2, v (v - 1) / 2).
    Raises: NotKnown without a Hadamard matrix of order v, BadInput where there is none.

    >>> steiner_pairs(4).T, steiner_pairs(4).d, steiner_pairs(4).is_tight
    (16, 6, True)
    """
    return steiner(list(combinations(range(v), 2)), f"pairs of {v} points")


def steiner_triples(m: int) -> LineSystem:
    """The Steiner frame of the lines of the projective space over F_2 with 2^m - 1 points.

    Claim: Fickus, Mixon, Tremain 2012; m = 3 is the Fano plane with 28 lines in R^7, m = 4 gives 120 in R^35.
    Shapes: ((2^m - 1) 2^(m-1), (2^m - 1)(2^(m-1) - 1) / 3).
    Raises: BadInput when m < 3.

    >>> steiner_triples(3).T, steiner_triples(3).d, steiner_triples(3).coherence_squared
    (28, 7, Fraction(1, 9))
    """
    if m < 3:
        raise BadInput(f"m={m}: a triple system of a projective space over F_2 needs m >= 3")
    pairs = combinations(range(1, 2**m), 2)
    return steiner([(a - 1, b - 1, (a ^ b) - 1) for a, b in pairs if a ^ b > b], f"triples of PG({m - 1}, 2)")


def bent(m: int, is_large: bool = False) -> LineSystem:
    """The characters of (Z_2)^(2m) on the difference set of a quadratic form: 4^m lines, entries +-1.

    Claim: Xia, Zhou, Giannakis, IEEE Trans. Inf. Theory 51 (2005): difference sets give tight equiangular frames;
    d = 2^(m-1) (2^m - 1), or (2^m + 1) where the form is 0, coherence 1 / (2^m - 1) or 1 / (2^m + 1).
    Shapes: (4^m, d).
    Raises: BadInput when m < 2.

    >>> bent(2).d, bent(2, is_large=True).d, bent(3).T, bent(3).d
    (6, 10, 64, 28)
    """
    if m < 2:
        raise BadInput(f"m={m}: the quadratic form needs m >= 2")
    points = np.array(list(product((0, 1), repeat=2 * m)), dtype=np.int64)
    form = (points[:, :m] * points[:, m:]).sum(axis=1) % 2
    chosen = points[form == (0 if is_large else 1)]
    rows = 1 - 2 * (points @ chosen.T % 2)
    ratio = Fraction(1, 2**m + 1 if is_large else 2**m - 1)
    return LineSystem(f"difference set in (Z_2)^{2 * m}", len(chosen), ratio**2, rows=rows)


def latin_square(is_large: bool = False) -> LineSystem:
    """36 equiangular lines from the graph of a 6 x 6 Latin square: in R^15 with coherence 1/5, or R^21 with 1/7.

    Claim: van Lint & Seidel 1966; the graph is strongly regular (36, 15, 6, 6), Seidel eigenvalues 5 and -7.
    Shapes: (36, 15) or (36, 21).

    >>> latin_square().is_tight, latin_square(is_large=True).is_tight
    (True, True)
    """
    cells = [(row, column, (row + column) % 6) for row in range(6) for column in range(6)]
    seidel = np.array(
        [[_seidel_entry(x, y, any(a == b for a, b in zip(x, y, strict=True))) for y in cells] for x in cells]
    )
    if is_large:
        return LineSystem("graph of a Latin square", 21, Fraction(1, 49), seidel=seidel)
    return LineSystem("graph of a Latin square", 15, Fraction(1, 25), seidel=-seidel)


def symplectic() -> LineSystem:
    """40 equiangular lines in R^16 with coherence 1/5, not a tight frame.

    Claim: Lemmens & Seidel, J. Algebra 24 (1973); the points of PG(3, 3), adjacent where a symplectic form vanishes,
    are the strongly regular graph (40, 12, 2, 4); its Seidel matrix has eigenvalues 15, 7, -5, the last 24 times.
    Shapes: (40, 16).

    >>> symplectic().T, symplectic().is_tight
    (40, False)
    """
    points = [x for x in product(range(3), repeat=4) if any(x) and next(c for c in x if c) == 1]
    form = [[(x[0] * y[1] - x[1] * y[0] + x[2] * y[3] - x[3] * y[2]) % 3 for y in points] for x in points]
    seidel = np.array(
        [[_seidel_entry(x, y, form[i][j] == 0) for j, y in enumerate(points)] for i, x in enumerate(points)]
    )
    return LineSystem("symplectic graph Sp(4, 3)", 16, Fraction(1, 25), seidel=seidel)


def naimark_complement(lines: LineSystem) -> LineSystem:
    """T equiangular lines in R^(T-d) from a tight frame of T in R^d: the projection onto the orthogonal complement.

    Claim: Sustik, Tropp, Dhillon, Heath, Linear Algebra Appl. 426 (2007): Gram matrix proportional to I - P.
    Shapes: (T, d) -> (T, T - d).
    Raises: BadInput when the lines are not an equiangular tight frame with T > d.

    >>> naimark_complement(steiner_triples(3)).d, naimark_complement(steiner_triples(3)).coherence_squared
    (21, Fraction(1, 81))
    """
    T, d = lines.T, lines.d
    if not lines.is_tight or d >= T:
        raise BadInput(f"{lines.family}: only an equiangular tight frame with T > d has an equiangular complement")
    return LineSystem(
        f"complement of {lines.family}", T - d, Fraction(d, (T - d) * (T - 1)), seidel=-seidel_matrix(lines)
    )


def seidel_matrix(lines: LineSystem) -> Integers:
    """The signs of the inner products, zero on the diagonal.

    Shapes: (T, T).

    >>> seidel_matrix(simplex(3)).tolist()
    [[0, -1, -1], [-1, 0, -1], [-1, -1, 0]]
    """
    if lines.seidel is not None:
        return lines.seidel
    assert lines.rows is not None
    signs = np.sign(lines.rows @ lines.rows.T)
    np.fill_diagonal(signs, 0)
    result: Integers = signs
    return result


def _seidel_entry(x: object, y: object, is_adjacent: bool) -> int:
    return 0 if x == y else -1 if is_adjacent else 1
