"""Tubes round orbits that creep: polynomials in the number of turns, and how far the true states may be from them.

A turn is k steps. P_0, .., P_(k-1) are polynomials of the turn q, and P_k(q) = P_0(q + 1). The state after q turns is
P_0(q) + X y with |y| <= e_q, entry by entry, for an invertible matrix X.

Lemma. Let |f(P_r(q)) - P_(r+1)(q)| <= delta_r, and let J_r hold the derivatives of the step over a box that has P_r(q)
and the state r steps later in it. Then, with Phi_r = J_(r-1) .. J_0 X, eps_0 = 0 and eps_(r+1) = |J_r| eps_r + delta_r,

    the state after r more steps is within |Phi_r| e_q + eps_r of P_r(q), and e_(q+1) = B e_q + |X^-1| eps_k

with B = |X^-1 Phi_k|. Proof: by the mean value theorem, row by row, f(s) - f(P_r) = J (s - P_r) with J within J_r; so
s_(r+1) - P_(r+1) = J (s_r - P_r) + d with |d| <= delta_r, and all terms that a delta brought in are within eps.

Where X holds eigenvectors B is nearly diagonal, so that e hardly grows in millions of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
from flint import acb, acb_mat, arb, arb_mat, arb_poly, arb_series, ctx

from verify.arithmetic.exact_reals import float_below
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.network import BallVector, CellNumbers, Network, step
from verify.tasks.recurrent.precise import Digits, Entrywise, Vector

MOST_BISECTIONS = 100_000
HALVES_AT_A_TIME = 64
RADIUS = 4  # of the disc on which a series is bounded, the piece itself being [-1, 1]

Polynomials = list[arb_poly]  # one for each number of the state
T = TypeVar("T")
S = TypeVar("S", arb_series, acb)
Signs = list[bool]  # which ReLUs are on, in the order in which a step meets them


class Lost(Exception):
    """A piece is too wide: a ReLU may be on or off in it, or a function may have a pole near it."""


@dataclass(frozen=True)
class Sloped:
    """Balls, and the rows of their derivatives; None where they depend on nothing."""

    value: Vector
    rows: list[list[arb]] | None

    @property
    def slopes(self) -> list[list[arb]]:
        assert self.rows is not None
        return self.rows


class Slopes:
    """Vectors of balls with derivatives, which hold at every point of the box that the state is."""

    def __init__(self, net: Network) -> None:
        self._on, self.signs = Digits(net), Signs()

    def linear(self, W: Array, x: Sloped | Array, b: Array, terms: Array) -> Sloped:
        if isinstance(x, np.ndarray):
            return Sloped(self._on.linear(W, x, b), None)
        return Sloped(self._on.linear(W, x.value, b), (self._on.exactly[id(W), id(b)][0] * arb_mat(x.slopes)).tolist())

    def known(self, x: BallVector) -> Sloped:
        return Sloped(self._on.known(x), None)

    def whole(self, x: Sloped, y: Sloped) -> Sloped:
        return self.add(x, y)

    def add(self, x: Sloped, y: Sloped) -> Sloped:
        value = self._on.add(x.value, y.value)
        if x.rows is None or y.rows is None:
            return Sloped(value, x.rows or y.rows)
        return Sloped(value, [self._on.add(*rows) for rows in zip(x.rows, y.rows, strict=True)])

    def multiply(self, x: Sloped, y: Sloped) -> Sloped:
        value = self._on.multiply(x.value, y.value)
        return self.add(Sloped(value, _times(y.value, x.rows)), Sloped([arb(0)] * len(value), _times(x.value, y.rows)))

    def blend(self, z: Sloped, n: Sloped, h: Sloped) -> Sloped:
        rest = Sloped([1 - a for a in z.value], _times([arb(-1)] * len(z.value), z.rows))
        return self.add(self.multiply(rest, n), self.multiply(z, h))

    def tanh(self, x: Sloped) -> Sloped:
        y = [increasing(arb.tanh, a) for a in x.value]
        return Sloped(y, _times([1 - a * a for a in y], x.rows))

    def sigmoid(self, x: Sloped) -> Sloped:
        y = [increasing(lambda a: 1 / (1 + (-a).exp()), a) for a in x.value]
        return Sloped(y, _times([a * (1 - a) for a in y], x.rows))

    def relu(self, x: Sloped) -> Sloped:
        if not all(a > 0 or a <= 0 for a in x.value):
            raise Lost
        signs = [bool(a > 0) for a in x.value]
        self.signs += signs
        on = [arb(int(is_on)) for is_on in signs]
        return Sloped(self._on.multiply(on, x.value), _times(on, x.rows))

    def cut(self, x: Sloped, start: int, stop: int) -> Sloped:
        return Sloped(x.value[start:stop], None if x.rows is None else x.rows[start:stop])


def _times(factors: Vector, rows: list[list[arb]] | None) -> list[list[arb]] | None:
    return None if rows is None else [[a * y for y in row] for a, row in zip(factors, rows, strict=True)]


def increasing(f: Callable[[arb], arb], x: arb) -> arb:
    """An increasing function on a ball: between its values at the ends."""
    return f(x.lower()).union(f(x.upper()))


class Analytic(Entrywise[S]):
    """What power series and complex balls have in common; `signs` says which ReLUs are on."""

    def __init__(self, net: Network, signs: Signs, product: Callable[[arb_mat, Sequence[S]], list[S]]) -> None:
        self._on, self._signs = Digits(net), iter(signs)
        self._product: Callable[[arb_mat, Sequence[S]], list[S]] = product

    def linear(self, W: Array, x: Sequence[S | arb] | Array, b: Array, terms: Array | None = None) -> Sequence[S | arb]:
        if isinstance(x, np.ndarray):
            return self._on.linear(W, x, b)
        matrix, constant = self._on.exactly[id(W), id(b)]
        return self.add(self._product(matrix, cast(Sequence[S], x)), constant)

    def known(self, x: BallVector) -> list[arb]:
        return self._on.known(x)

    def relu(self, x: Sequence[S | arb]) -> list[S | arb]:
        return [a if next(self._signs) else a * 0 for a in x]


class Series(Analytic[arb_series]):
    """Vectors of power series, with as many terms as the context has."""

    def __init__(self, net: Network, signs: Signs) -> None:
        super().__init__(net, signs, _of_series)

    def tanh(self, x: Sequence[arb_series | arb]) -> list[arb_series | arb]:
        return [1 - 2 / (1 + (2 * a).exp()) for a in x]

    def sigmoid(self, x: Sequence[arb_series | arb]) -> list[arb_series | arb]:
        return [1 / (1 + (-a).exp()) for a in x]


class Discs(Analytic[acb]):
    """Vectors of complex balls."""

    def __init__(self, net: Network, signs: Signs) -> None:
        super().__init__(net, signs, _of_discs)

    def tanh(self, x: Sequence[acb | arb]) -> list[acb | arb]:
        return [2 * logistic(2 * a) - 1 for a in x]

    def sigmoid(self, x: Sequence[acb | arb]) -> list[acb | arb]:
        return [logistic(a) for a in x]


def logistic(a: acb | arb) -> acb | arb:
    """1 / (1 + e^-a); where Re a >= s > 1, it is within e / (1 - e) of 1, e = e^-s, and of 0 on the other side.

    |e^-a| <= e, and w / (1 + w) is at most |w| / (1 - |w|). So a ball that is wide and far out is no pole.
    """
    found = 1 / (1 + (-a).exp())
    if found.is_finite() or abs(a.real) <= 1 or a.real.overlaps(arb(0)):
        return found
    e = (-abs(a.real).lower()).exp()
    around = arb(0, (e / (1 - e)).upper())
    return acb(int(a.real > 0) + around, around) if e < 1 else found


def _of_series(matrix: arb_mat, x: Sequence[arb_series]) -> list[arb_series]:
    return [arb_series(row) for row in (matrix * arb_mat([[s[j] for j in range(ctx.cap)] for s in x])).tolist()]


def _of_discs(matrix: arb_mat, x: Sequence[acb]) -> list[acb]:
    return (acb_mat(matrix) * acb_mat(len(x), 1, list(x))).entries()


@contextmanager
def terms(n: int) -> Iterator[None]:
    """Power series have n terms."""
    before, ctx.cap = ctx.cap, n
    try:
        yield
    finally:
        ctx.cap = before


def parted(net: Network, state: Sequence[T]) -> list[Sequence[T]]:
    """The vectors that the numbers of a state are."""
    return [state[i : i + net.hidden] for i in range(0, net.size, net.hidden)]


def stepped(net: Network, state: Sequence[T], token: int, on: CellNumbers[Sequence[T]]) -> list[T]:
    """One step of plain numbers, balls, series or discs."""
    return [x for part in step(net, parted(net, state), token, on) for x in part]


def derivatives(net: Network, box: Vector, token: int) -> tuple[arb_mat, Signs]:
    """All derivatives of a step over a box, and which ReLUs are on in it.

    Raises: Lost where a ReLU may be either.
    """
    on, rows = Slopes(net), [[arb(int(i == j)) for j in range(net.size)] for i in range(net.size)]
    parts = zip(parted(net, box), parted(net, rows), strict=True)
    after = step(net, [Sloped(value, list(slope)) for value, slope in parts], token, on)
    return arb_mat([row for part in after for row in part.slopes]), on.signs


def off_step(net: Network, P: Polynomials, after: Polynomials, token: int, signs: Signs, n: int) -> list[arb]:
    """Bounds on |f(P(u)) - after(u)| over |u| <= 1, for each number of the state.

    f(P) is a power series; n terms are computed, and by Cauchy those beyond are at most M / (R^n (R - 1)) R together,
    where |f(P)| <= M for complex |u| <= R. It is analytic there if the balls that hold its values are finite.
    Raises: Lost where they are not.
    """
    with terms(n):
        image = stepped(net, [arb_series(p.coeffs()) for p in P], token, Series(net, signs))
        known = [
            sum((abs(y - p[j]) for j, y in enumerate(padded(s, n))), arb(0)) for s, p in zip(image, after, strict=True)
        ]
    discs = [_disc(p) for p in P]
    largest = [abs(y) for y in stepped(net, discs, token, Discs(net, signs))]
    rest = [m * RADIUS / (arb(RADIUS) ** n * (RADIUS - 1)) for m in largest]
    found = [(d + r).upper() for d, r in zip(known, rest, strict=True)]
    if not all(x.is_finite() for x in found):
        raise Lost
    return found


def padded(s: arb_series | arb, n: int) -> list[arb]:
    """The first n coefficients of a series, or of a constant.

    Raises: Lost where fewer are known.
    """
    if not isinstance(s, arb_series):
        return [s] + [arb(0)] * (n - 1)
    if s.prec < n:
        raise Lost
    return [s[j] for j in range(n)]


def _disc(p: arb_poly) -> acb:
    """A complex ball round all values of p on |u| <= R."""
    reach = sum((abs(c) * RADIUS**j for j, c in enumerate(p.coeffs()) if j), arb(0)).upper()
    around = arb(0, reach)
    return acb(p[0] + around, around)


def over(p: arb_poly) -> arb:
    """A ball round all values of p on [-1, 1]."""
    return p[0] + arb(0, sum((abs(c) for c in p.coeffs()[1:]), arb(0)).upper())


def shifted(p: arb_poly, at: arb, scale: arb) -> arb_poly:
    """p(at + scale u) as a polynomial of u."""
    return p(arb_poly([at, scale]))


def largest(matrix: arb_mat | acb_mat) -> arb_mat:
    """Upper bounds on the absolute values of all entries."""
    return arb_mat([[abs(x).upper() for x in row] for row in matrix.tolist()])


@dataclass(frozen=True)
class Eigenvectors:
    """X and its inverse, of which both are balls; the coordinates of s are X^-1 s."""

    X: acb_mat
    inverse: acb_mat

    @classmethod
    def of(cls, X: Array) -> Eigenvectors:
        """Raises: Lost where X has no inverse."""
        matrix = acb_mat([[acb(float(x.real), float(x.imag)) for x in row] for row in X.astype(complex)])
        try:
            return cls(matrix, matrix.inv())
        except ZeroDivisionError as error:
            raise Lost from error

    def coordinates(self, off: Vector) -> list[arb]:
        """Bounds on the coordinates of all vectors with these entries."""
        return [abs(y).upper() for y in (self.inverse * acb_mat(len(off), 1, list(off))).entries()]


@dataclass(frozen=True)
class Turn:
    """What the lemma says of one turn: B and |X^-1| eps_k, and |Phi_r| and eps_r for r = 0..k-1."""

    B: arb_mat
    added: list[arb]
    reach: list[arb_mat]
    eps: list[list[arb]]

    @classmethod
    def of(cls, basis: Eigenvectors, J: Sequence[arb_mat], delta: Sequence[Vector]) -> Turn:
        n = len(delta[0])
        Phi, eps, reach, all_eps = basis.X, [arb(0)] * n, [], []
        for matrix, off in zip(J, delta, strict=True):
            reach.append(largest(Phi))
            all_eps.append(eps)
            Phi = acb_mat(matrix) * Phi
            eps = [(a + b).upper() for a, b in zip(applied(largest(matrix), eps), off, strict=True)]
        added = applied(largest(basis.inverse), eps)
        return cls(largest(basis.inverse * Phi), added, reach, all_eps)

    def within(self, r: int, e: Vector) -> list[arb]:
        """How far the state r steps later may be from its polynomial."""
        return [(a + b).upper() for a, b in zip(applied(self.reach[r], e), self.eps[r], strict=True)]

    def after(self, e: Vector) -> list[arb]:
        return [(a + b).upper() for a, b in zip(applied(self.B, e), self.added, strict=True)]

    def power(self, e: Vector, n: int) -> tuple[list[arb], list[arb]]:
        """e after n turns, and a bound on it after any number from 0 to n.

        2^i turns map e to at most M e + a; `most` bounds e after less than 2^i turns, and so M most + a after less than
        2^(i+1).
        """
        M, a, now, most = self.B, list(self.added), list(e), list(e)
        while n:
            if n & 1:
                now = _affine(M, now, a)
            most = [x.max(y).upper() for x, y in zip(most, _affine(M, most, a), strict=True)]
            a, M, n = _affine(M, a, a), largest(M * M), n >> 1
        return now, most


def _affine(M: arb_mat, x: Vector, a: Vector) -> list[arb]:
    return [(y + z).upper() for y, z in zip(applied(M, x), a, strict=True)]


def applied(matrix: arb_mat, x: Vector) -> list[arb]:
    return (matrix * arb_mat(len(x), 1, list(x))).entries()


@dataclass(frozen=True)
class Gap:
    """The difference of two logits along a piece."""

    p: arb_poly
    error: arb

    def __call__(self, x: arb) -> arb:
        return self.p(x) + self.error


@dataclass
class Bisection:
    """The first (turn, step) at which a difference is not shown to be above 0, and the least bound before.

    Raises: Lost where that takes too many halves, or time is up.
    """

    step: arb
    until: Deadline
    first: tuple[int, int] | None = None
    least: float = float("inf")
    tightest: tuple[int, int] = (0, 0)
    left: int = MOST_BISECTIONS

    def search(self, gap: Gap, r: int, first: int, last: int) -> None:
        """Over turns `first` to `last`, as far as nothing earlier is known to be wrong."""
        todo = [(first, last)]
        while todo:
            low, high = todo.pop()
            if self.first is not None and (low, r) >= self.first:
                return
            self.left -= 1
            middle = arb(-1) + self.step * arb(low + high) / 2
            bound = float_below(gap(middle + arb(0, (self.step * (high - low) / 2).upper())))
            if bound > 0:
                if bound < self.least:
                    self.least, self.tightest = bound, (low, r)
            elif self.left <= 0 or (self.left % HALVES_AT_A_TIME == 0 and self.until.is_up()):
                raise Lost
            elif low == high:
                self.first = (low, r)
                return
            else:
                todo += [((low + high) // 2 + 1, high), (low, (low + high) // 2)]
