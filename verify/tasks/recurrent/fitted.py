"""Polynomials that many turns of an orbit follow, found by Newton's method: nothing here is trusted.

`tubes` bounds how far the true states are from them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import acb, acb_mat, arb, arb_mat, arb_poly, arb_series

from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import Digits, Vector
from verify.tasks.recurrent.tubes import (
    Eigenvectors,
    Lost,
    Polynomials,
    Series,
    Signs,
    derivatives,
    padded,
    stepped,
    terms,
)

DEGREE = 32
TAIL = 2.0**-90  # of a polynomial's last coefficients, at most
SETTLED = 2.0**-130  # of Newton's corrections, at most
ITERATIONS = 60
DIVERGED = 1e12
MOST_STALLED = 3
MOST_FOLDS = 8  # of a segment's slow coordinates: they change by e^8 at most
MOST_CONDITION = 1e12


@dataclass(frozen=True)
class Segment:
    """States P[r](x) after r steps of turn j = 0..turns, with x = -1 + 2 j / turns."""

    P: list[Polynomials]
    turns: int

    @property
    def step(self) -> arb:
        return arb(2) / self.turns


def points(net: Network, token: int, k: int, x: Vector) -> tuple[list[Vector], list[Vector]]:
    """The state before each step of a turn and after it, and by how much each step was rounded."""
    states, off, on = list[Vector]([x]), list[Vector](), Digits(net)
    for _ in range(k):
        after = stepped(net, states[-1], token, on)
        states.append([y.mid() for y in after])
        off.append([y.rad() for y in after])
    return states, off


def identity(n: int) -> arb_mat:
    return arb_mat([[arb(int(i == j)) for j in range(n)] for i in range(n)])


@dataclass(frozen=True)
class Local:
    """A turn near a state: which ReLUs are on in each step, eigenvectors of its derivatives, and eigenvalues."""

    signs: list[Signs]
    X: Array
    rates: Array

    @classmethod
    def of(cls, net: Network, token: int, states: Sequence[Vector]) -> Local:
        """Raises: Lost where a ReLU is neither on nor off, or a derivative is no number."""
        J, signs = identity(net.size), list[Signs]()
        for state in states:
            matrix, own = derivatives(net, state, token)
            J, signs = (matrix * J).mid(), [*signs, own]
        floats = np.array([[float(y) for y in row] for row in J.tolist()])
        if not np.isfinite(floats).all():
            raise Lost
        rates, X = np.linalg.eig(floats)
        if not np.linalg.cond(X) < MOST_CONDITION:
            rates, X = np.diag(floats), np.eye(net.size)
        return cls(signs, X, rates)


def fit(
    net: Network, token: int, x: Vector, local: Local, basis: Eigenvectors, turns: int, until: Deadline
) -> Segment | None:
    """Polynomials of so many turns from x, by Newton's method; None where it does not settle in time.

    In the coordinate of an eigenvector with the eigenvalue r, what is off at q is made up for by a y with
    y(q + 1) - r y(q) = off(q). Where r is so near 1 that degree DEGREE follows r^q, y(0) = 0; else y is the one
    polynomial that solves it, which has nothing of what dies out.
    """
    h, n = arb(2) / turns, DEGREE + 1
    solve = [_solver(complex(rate), h, turns) for rate in local.rates]
    P, last, stalled = [[y] + [arb(0)] * DEGREE for y in x], float("inf"), 0
    for _ in range(ITERATIONS):
        states = [P]
        for signs in local.signs:
            if until.is_up():
                return None
            states.append(_image(net, token, states[-1], signs))
        moved = [arb_poly(p)(arb_poly([h, 1])) for p in P]
        off = [[a - p[j] for j, a in enumerate(after)] for after, p in zip(states[-1], moved, strict=True)]
        in_basis = (basis.inverse * acb_mat(arb_mat(off))).mid().tolist()
        corrections = [
            (matrix * acb_mat(n, 1, [*row[:-1], acb(0)] if is_slow else row)).entries()
            for row, (matrix, is_slow) in zip(in_basis, solve, strict=True)
        ]
        change = (basis.X * acb_mat(corrections)).mid().tolist()
        P = [[(a + c.real).mid() for a, c in zip(p, row, strict=True)] for p, row in zip(P, change, strict=True)]
        size = max(float(abs(c)) for row in change for c in row)
        if not size < DIVERGED or stalled > MOST_STALLED:
            return None
        stalled = stalled + 1 if size > last / 2 else 0
        if size < SETTLED or (stalled and size < TAIL):
            is_fine = max(float(abs(c)) for p in P for c in p[-2:]) < TAIL
            return Segment([[arb_poly(p) for p in state] for state in states[:-1]], turns) if is_fine else None
        last = size
    return None


def _image(net: Network, token: int, P: list[list[arb]], signs: Signs) -> list[list[arb]]:
    n = DEGREE + 1
    with terms(n):
        after = stepped(net, [arb_series(p) for p in P], token, Series(net, signs))
        return [[y.mid() for y in padded(s, n)] for s in after]


def _solver(rate: complex, h: arb, turns: int) -> tuple[acb_mat, bool]:
    """From the coefficients of what is off to those of the correction, and whether the first of these is free."""
    n, p, M = DEGREE + 1, arb_poly([1]), [[acb(0)] * (DEGREE + 1) for _ in range(DEGREE + 1)]
    for j in range(n):
        for i in range(j + 1):
            M[i][j] = acb(p[i])  # of (x + h)^j
        M[j][j] -= acb(rate.real, rate.imag)
        p *= arb_poly([h, 1])
    is_slow = abs(rate - 1) * turns < MOST_FOLDS
    if is_slow:
        M[-1] = [acb((-1) ** j) for j in range(n)]  # of the value at x = -1
    return acb_mat(M).inv().mid(), is_slow
