"""The exact law of even readings in lin: whether a space U of vectors is one on which counting is possible (R4a, W-18).

With neurons that keep their sides on counts 1 and 2, lin and lin+sftm count at (T, L, d) iff some U of dimension
T - 1 - d, all of whose vectors sum to 0, has (2L-2) max|u| < sum|u| for all u != 0 in it. For a given U this is one
linear program per token, decided here in rationals; over all U it is decided where a U is known, or where the sums
over a projection exclude every U (bounds.even_readings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import fmpq_mat

from bounds.even_readings import is_excluded, most_diagonal, quartic
from constructions.codes.kept import smallest_kept
from constructions.errors import BadInput
from constructions.fewer_dimensions import code
from constructions.histogram import HistogramTransformer, check_sizes
from verify.arithmetic.exact_reals import rational
from verify.arithmetic.linear_programs import Farkas, decide_system
from verify.arithmetic.outward import above
from verify.arithmetic.stored import fractions, matrix

Matrix = Sequence[Sequence[Fraction | int]]


@dataclass(frozen=True)
class Even:
    """Numbers N_ts, 0 for s = t, with N u = -u on U and all |N_ts| < 1/(2L-3): the dual certificate of an even U."""

    N: tuple[tuple[Fraction, ...], ...]

    @property
    def largest(self) -> Fraction:
        return max(abs(x) for row in self.N for x in row)


@dataclass(frozen=True)
class Uneven:
    """A vector u of U with (2L-3) |u_t| >= sum over s != t of |u_s|: counts 1 and 2 of token t cannot be apart."""

    t: int
    u: tuple[Fraction, ...]


def decide_kernel(basis: Matrix, L: int) -> Even | Uneven:
    """Whether (2L-2) max|u| < sum|u| for all u != 0 of the form basis w, with the numbers that show it.

    Shapes: basis (T, m), of full rank.
    Raises: BadInput for L < 2; linear_programs.Undecided where rounding hides the answer.

    >>> decide_kernel([[1], [-1], [1], [-1]], 2).largest
    Fraction(1, 3)
    >>> decide_kernel([[1], [-1], [1], [-1]], 3).t
    0
    """
    if L < 2:
        raise BadInput(f"L={L}: counts 1 and 2 need two positions. Use L >= 2.")
    if any(sum(column) for column in zip(*basis, strict=True)):
        raise BadInput("basis: its columns must sum to 0, as all vectors of U do. Subtract their means.")
    rows = []
    for t in range(len(basis)):
        found = _row(basis, L, t)
        if isinstance(found, Uneven):
            return found
        rows.append(found)
    return Even(tuple(rows))


def _row(basis: Matrix, L: int, t: int) -> tuple[Fraction, ...] | Uneven:
    """Row t of N, or a u with u_t = 1 and sum over s != t of |u_s| <= 2L - 3.

    The unknowns are w and a_s >= |u_s|. Farkas' multipliers of a_s - u_s >= 0 and a_s + u_s >= 0 give N_ts: those of
    a_s sum to that of the bound on the sum of all a_s, and those of w say that sum N_ts f_s = -f_t.
    """
    T, m = len(basis), len(basis[0])
    if not any(basis[t]):
        return (Fraction(0),) * T  # u_t = 0 throughout
    others = [s for s in range(T) if s != t]
    rows: list[list[Fraction | int]] = []
    for sign in (-1, 1):
        for i, s in enumerate(others):
            rows.append([*(sign * x for x in basis[s]), *(int(j == i) for j in range(T - 1))])
    rows.append([*[Fraction(0)] * m, *[Fraction(-1)] * (T - 1)])
    rows += [[*(sign * x for x in basis[t]), *[Fraction(0)] * (T - 1)] for sign in (1, -1)]
    found = decide_system(rows, [0] * (2 * T - 2) + [-(2 * L - 3), 1, -1])
    if not isinstance(found, Farkas):
        w = found.x[:m]
        return Uneven(t, tuple(sum((f * x for f, x in zip(row, w, strict=True)), Fraction(0)) for row in basis))
    y, scale = found.y, found.y[2 * T - 1] - found.y[2 * T]
    out = [Fraction(0)] * T
    for i, s in enumerate(others):
        out[s] = (y[T - 1 + i] - y[i]) / scale
    return tuple(out)


def is_certificate(basis: Matrix, L: int, found: Even | Uneven) -> bool:
    """Whether the numbers show what they say, in exact rationals; it looks at nothing but them.

    >>> is_certificate([[1], [-1]], 2, Uneven(0, (Fraction(1), Fraction(-1))))
    True
    """
    if isinstance(found, Uneven):
        rest = sum((abs(x) for s, x in enumerate(found.u) if s != found.t), Fraction(0))
        is_of_the_space = rank_of(basis) == rank_of([[*row, x] for row, x in zip(basis, found.u, strict=True)])
        return is_of_the_space and found.u[found.t] != 0 and (2 * L - 3) * abs(found.u[found.t]) >= rest
    T, m = len(basis), len(basis[0])
    is_small = all(row[t] == 0 and all(abs(x) * (2 * L - 3) < 1 for x in row) for t, row in enumerate(found.N))
    images = [[sum((found.N[t][s] * basis[s][j] for s in range(T)), Fraction(0)) for j in range(m)] for t in range(T)]
    return is_small and all(images[t][j] == -basis[t][j] for t in range(T) for j in range(m))


def rank_of(rows: Matrix) -> int:
    """The exact rank of a matrix."""
    return int(fmpq_mat(len(rows), len(rows[0]), [rational(x) for row in rows for x in row]).rank())


@dataclass(frozen=True)
class Regime:
    """The state of knowledge on even readings in lin at one d: "exists", "impossible" or "open", and what shows it."""

    T: int
    L: int
    d: int
    verdict: str
    shown_by: str


def decide_regime(T: int, L: int, d: int) -> Regime:
    """Whether lin and lin+sftm with even readings count at (T, L, d), with an exact certificate either way.

    Claim: W-18 and its converse; blocks of W-15 and kept codes are the spaces that are tried.
    Raises: BadInput for sizes that make no sense.

    >>> [decide_regime(32, 10, d).verdict for d in (28, 29)], decide_regime(9, 2, 4).verdict
    (['impossible', 'exists'], 'open')
    """
    check_sizes("lin", T=T, L=L, d=d, p=T)
    if L < 2:
        raise BadInput(f"L={L}: with one position every count is 1. Use L >= 2.")
    m = T - 1 - d
    if m <= 0:
        return Regime(T, L, d, "exists", "U = 0: a simplex of tokens")
    if is_excluded(T, L, m):
        return Regime(T, L, d, "impossible", _exclusion(T, L, m))
    if T // (m + 1) >= L:
        found, basis = block_certificate(T, m), block_space(T, m)
        return _shown(T, L, d, f"{m + 1} blocks of {T // (m + 1)} tokens", basis, found)
    if smallest_kept("lin", T, L) == d:
        kernel = free_vectors(code("lin", T=T, L=L, d=d))
        decided = decide_kernel(kernel, L)
        if isinstance(decided, Even):
            return _shown(T, L, d, f"the kept code of d = {d}", kernel, decided)
    return Regime(T, L, d, "open", "no space known, and none excluded")


def _shown(T: int, L: int, d: int, name: str, basis: Matrix, found: Even) -> Regime:
    """The cell of a space whose dual certificate checks."""
    if not is_certificate(basis, L, found):
        raise AssertionError(f"T={T}, L={L}, d={d}, {name}: the certificate does not check")
    largest = found.largest
    most = str(largest) if largest.denominator < 1000 else above(float(largest), digits=4)
    return Regime(T, L, d, "exists", f"{name}, |N_ts| <= {most} < 1/{2 * L - 3}")


def _exclusion(T: int, L: int, m: int) -> str:
    """Why no U of dimension m is even: the reasons of bounds.even_readings.is_excluded, in its order."""
    if m >= T * most_diagonal(T, L):
        return f"the trace: {m} >= T (T-1)/(T-1 + (2L-3)^2) = {above(float(T * most_diagonal(T, L)), digits=5)}"
    if L - 1 >= T // 2:
        return f"the balance of one vector: L - 1 >= floor(T/2) = {T // 2}"
    most = above(float(quartic(T, L, m).largest_sum(T, m)), digits=6)
    return f"sum|R_ts| of a projection is at most {most}, and {(2 * L - 2) * m} is needed"


def block_space(T: int, m: int) -> list[list[int]]:
    """m vectors on m + 1 equal blocks of tokens, each 1 on one block and -1 on the last.

    >>> block_space(5, 1)
    [[1], [1], [-1], [-1], [0]]
    """
    q = T // (m + 1)
    blocks = [min(t // q, m + 1) for t in range(T)]
    return [[int(b == i) - int(b == m) for i in range(m)] for b in blocks]


def block_certificate(T: int, m: int) -> Even:
    """N of m + 1 equal blocks of q tokens: -1/(2q-1) inside a block, 1/(2q-1) between blocks, 0 elsewhere.

    >>> is_certificate(block_space(7, 2), 2, block_certificate(7, 2))
    True
    """
    q = T // (m + 1)
    blocks = [t // q if t < q * (m + 1) else None for t in range(T)]
    step = Fraction(1, 2 * q - 1)

    def entry(t: int, s: int) -> Fraction:
        if t == s or blocks[t] is None or blocks[s] is None:
            return Fraction(0)
        return -step if blocks[t] == blocks[s] else step

    return Even(tuple(tuple(entry(t, s) for s in range(T)) for t in range(T)))


def free_vectors(module: HistogramTransformer) -> list[list[Fraction]]:
    """A basis (T, m) of the u with sum u_s = 0 and sum u_s e_s = 0 (lin), or sum u_s e_s e_s^T = 0: exact rationals.

    It has T rows also where m = 0, as the quadratic forms of many pairs leave none.
    """
    E, T = fractions(module.E), module.T
    rows = [[Fraction(1)] * T, *E.T]
    if not module.is_linear:
        pairs = [(i, j) for i in range(module.d) for j in range(i + 1)]
        rows = [rows[0], *([e[i] * e[j] for e in E] for i, j in pairs)]
    reduced, rank = matrix(np.array(rows)).rref()
    pivots = [next(s for s in range(T) if reduced[i, s] != 0) for i in range(rank)]
    basis = []
    for free in (s for s in range(T) if s not in pivots):
        u = [Fraction(int(s == free)) for s in range(T)]
        for i, pivot in enumerate(pivots):
            u[pivot] = -Fraction(int(reduced[i, free].p), int(reduced[i, free].q))
        basis.append(u)
    return [[u[t] for u in basis] for t in range(T)]


def cells(T: int, L: int) -> list[Regime]:
    """Every d from the first that is not plainly too small to T - 1; smaller ones are impossible as well.

    >>> [cell.d for cell in cells(12, 4)]
    [7, 8, 9, 10, 11]
    """
    found = []
    for d in range(T - 1, 0, -1):
        found.append(decide_regime(T, L, d))
        if found[-1].verdict == "impossible":
            break
    return found[::-1]
