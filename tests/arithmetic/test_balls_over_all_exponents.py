"""Balls of any size, from 2^-1074 to 2^1023, hold what fractions make of the numbers in them; NaN has no radius 0."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from unittest import mock

import numpy as np
import pytest
from flint import arb, ctx

from tests.planted import planted
from verify.arithmetic import balls as arithmetic_of_balls
from verify.arithmetic.any_order import RoundedArithmetic, absolute_product, times
from verify.arithmetic.balls import Ball, exponential, hull, joined, reciprocal_sqrt, relu, stacked
from verify.arithmetic.slack import LEAST

EDGES = [0.0, LEAST, -LEAST, 3 * LEAST, 2.0**-1022, -(2.0**-1022), 2.0**-537, 2.0**-512, 1.0, -1.0, 2.0**1023]


def drawn(rng, shape, narrow=None):
    """Numbers whose exponents are drawn from all there are, or around a few; long and short significands, and edges."""
    exponent = rng.integers(-1074, 1024, shape) if narrow is None else narrow + rng.integers(-40, 41, shape)
    significand = rng.choice([1.0, 1.5, 1 + 2.0**-52, 2 - 2.0**-52], shape)
    significand = np.where(rng.random(shape) < 0.5, 1 + rng.random(shape), significand) * rng.choice([-1.0, 1.0], shape)
    with np.errstate(over="ignore", under="ignore"):
        x = np.ldexp(significand, np.clip(exponent, -1100, 1023))
    x = np.where(np.isfinite(x), x, 0.0)
    return np.where(rng.random(shape) < 0.15, rng.choice(EDGES, shape), x)


def balls(rng, shape, narrow=None):
    """Midpoints with radii: none, about the size of a rounding error, of the midpoint, or of anything."""
    mid = drawn(rng, shape, narrow)
    kind = rng.integers(0, 4, shape)
    size = [np.zeros(shape), np.abs(mid) * 2.0**-50, np.abs(mid) * 0.75, np.abs(drawn(rng, shape, narrow))]
    return Ball(mid, np.choose(kind, size))


def points(rng, ball):
    """One number of each ball as a fraction: an end, the midpoint, or one between."""
    at = rng.choice([-1.0, 1.0, 0.0, 0.375, -0.9999], ball.mid.shape)
    rows = zip(ball.mid.ravel(), ball.rad.ravel(), at.ravel(), strict=True)
    exact = [Fraction(float(m)) + Fraction(float(r)) * Fraction(float(a)) for m, r, a in rows]
    return np.array(exact, dtype=object).reshape(ball.mid.shape)


def held(ball, exact):
    """How many of these numbers a ball speaks of, after the check that it holds every one of them."""
    spoken = 0
    bounds = ball.lower, ball.upper, ball.magnitude
    for m, r, low, high, size, x in zip(*(np.ravel(z) for z in (ball.mid, ball.rad, *bounds, exact)), strict=True):
        assert not (np.isnan(m) and r == 0) and not (np.isinf(m) and r < np.inf)
        if np.isfinite(m) and np.isfinite(r):
            spoken += 1
            assert abs(Fraction(float(m)) - x) <= Fraction(float(r)), (m, r)
            assert low == -np.inf or Fraction(float(low)) <= x
            assert high == np.inf or x <= Fraction(float(high))
            assert size == np.inf or abs(x) <= Fraction(float(size))
    return spoken


OPERATIONS = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y}


@pytest.mark.parametrize("narrow", [None, -530, -1000, 500])
def test_sums_products_and_quotients_hold_what_fractions_say(narrow):
    rng = np.random.default_rng([7, 0 if narrow is None else 2000 + narrow])
    shape = (1500,)
    x, y = balls(rng, shape, narrow), balls(rng, shape, None if narrow is None else narrow // 2 * 2)
    p, q = points(rng, x), points(rng, y)
    with np.errstate(all="ignore"):
        for name, operation in OPERATIONS.items():
            assert held(operation(x, y), operation(p, q)) > (0 if name == "*" and narrow == 500 else 700), name
        quotient = x / y
        holds_zero = np.array(
            [abs(Fraction(float(m))) <= Fraction(float(r)) for m, r in zip(y.mid, y.rad, strict=True)]
        )
        assert np.isinf(quotient.rad[holds_zero]).all()
        known = np.flatnonzero(~holds_zero)
        exact = np.array([a / b for a, b in zip(p[known], q[known], strict=True)], dtype=object)
        assert held(quotient[known], exact) > 300


def held_of_two(rng, shape=(60,)):
    """How many numbers are spoken of where balls are joined, stacked, covered, cut at 0, or of many bits."""
    x, y = balls(rng, shape), balls(rng, shape)
    p, q = points(rng, x), points(rng, y)
    zeros = np.zeros_like(p)
    spoken = held(joined(x, y), np.concatenate([p, q])) + held(stacked(x, y, axis=1), np.stack([p, q], 1))
    spoken += held(hull(x, y), p) + held(hull(x, y), q) + held(relu(x), np.where(p > 0, p, zeros))
    with ctx.workprec(200):
        thirds = [arb(float(m)) / 3 for m in x.mid]
    return spoken + held(Ball.around(thirds), np.array([Fraction(float(m)) / 3 for m in x.mid], dtype=object))


def test_what_is_made_of_several_balls_holds_what_they_hold():
    assert held_of_two(np.random.default_rng(9)) > 200
    for owner, name, right, wrong in (
        (Ball, "around", "float_above(abs(x - arb(m)))", "0.0"),
        (arithmetic_of_balls, "hull", "np.maximum.reduce(highs)", "highs[0]"),
        (arithmetic_of_balls, "relu", "is_on, x.rad", "is_on, 0.0"),
        (arithmetic_of_balls, "joined", "[x.rad for x in balls]", "[balls[0].rad] * len(balls)"),
        (arithmetic_of_balls, "stacked", "[x.rad for x in balls]", "[balls[0].rad] * len(balls)"),
    ):
        with planted(owner, name, right, wrong) as fault:
            own = {} if owner is Ball else {name: fault}
            with mock.patch.dict(globals(), own), pytest.raises(AssertionError):
                held_of_two(np.random.default_rng(9))


def test_an_exact_zero_stays_exact():
    zero, some = Ball(np.zeros(3), np.zeros(3)), Ball(np.array([LEAST, 1.0, -1e300]), np.array([0.0, 0.5, 1e280]))
    for found in (zero * some, some * zero, zero / some):
        assert not found.mid.any() and not found.rad.any()
    product = Ball(np.diag([1.0, 2.0]), np.zeros((2, 2))) @ Ball(np.array([[LEAST, 0.0], [0.0, 1.0]]), np.zeros((2, 2)))
    assert product.rad[0, 1] == product.rad[1, 0] == 0 and product.mid[1, 1] == 2


def test_a_bound_on_products_is_zero_only_where_there_is_no_term():
    x, W = np.array([[LEAST, 0.0], [0.0, 1.0]]), np.array([[0.25, 0.0], [0.0, 1.0]])
    bound = absolute_product(x, W)
    assert bound[0, 0] > 0 and bound[0, 1] == bound[1, 0] == 0 and 1 <= bound[1, 1] < 1.001


@pytest.mark.parametrize("narrow", [None, -537, -300, -1060])
def test_matrix_products_hold_what_fractions_say(narrow):
    rng, spoken = np.random.default_rng([8, 0 if narrow is None else 2000 + narrow]), 0
    for trial in range(60):
        n = int(rng.integers(1, 7))
        x, y = balls(rng, (3, n), narrow), balls(rng, (n, 2), narrow)
        if trial % 3:
            x, y = (Ball(z.mid, np.zeros_like(z.rad)) if rng.random() < 0.7 else z for z in (x, y))
        p, q = points(rng, x), points(rng, y)
        exact = np.array([[sum(p[i, k] * q[k, j] for k in range(n)) for j in range(2)] for i in range(3)], dtype=object)
        with np.errstate(all="ignore"):
            spoken += held(x @ y, exact)
            bound = absolute_product(x.magnitude, y.magnitude)
        finite = np.isfinite(bound)
        assert all(abs(e) <= Fraction(float(b)) for e, b in zip(exact[finite], bound[finite], strict=True))
    assert spoken > 150


def test_powers_of_two_and_bounds_on_products_hold_what_fractions_say():
    rng = np.random.default_rng(9)
    x = balls(rng, (400,))
    p = points(rng, x)
    for exponent in (-1074, -1022, -600, -53, -1, 0, 1, 52, 900, 1023):
        with np.errstate(all="ignore"):
            held(x.times_power_of_two(2.0**exponent), p * Fraction(2) ** exponent)
    a, b = np.abs(drawn(rng, (2000,))), np.abs(drawn(rng, (2000,)))
    with np.errstate(over="ignore", under="ignore"):
        bound = times(a, b) * (1 + 2.0**-50)
    for u, v, most in zip(a, b, bound, strict=True):
        assert most == np.inf or Fraction(float(u)) * Fraction(float(v)) <= Fraction(float(most))
        assert most > 0 or not u or not v


@pytest.mark.parametrize("d", [1, 2, 3, 4, 1000, 2**53 + 1, 3**200, 2**1000, 2**1001, 10**300 + 7])
def test_reciprocal_roots_of_any_size(d):
    ball, scale = reciprocal_sqrt(d), 10**400
    low, high = (Fraction(float(ball.mid)) + sign * Fraction(float(ball.rad)) for sign in (-1, 1))
    root = Fraction(isqrt(d * scale**2), scale)  # sqrt(d) lies between this and one unit more
    assert low <= 1 / root and 1 / (root + Fraction(1, scale)) <= high


def test_exponentials_with_radii_of_any_size():
    rng = np.random.default_rng(10)
    mid = np.concatenate([-np.abs(drawn(rng, (300,))), rng.uniform(-70, 1, 300), np.log(2.0**-60) + [0, 1e-14, -1e-14]])
    rad = np.abs(drawn(rng, mid.shape)) * (rng.random(mid.shape) < 0.7)
    with np.errstate(all="ignore"):
        found = exponential(Ball(mid, rad))
    for m, r, at, off in zip(mid, rad, found.mid, found.rad, strict=True):
        assert not (np.isnan(at) and off == 0)
        if np.isfinite(off):
            with ctx.workprec(4000):
                for x in (arb(float(m)) - arb(float(r)), arb(float(m)) + arb(float(r))):
                    assert not abs(x.exp() - arb(float(at))) > arb(float(off)), (m, r)


def test_products_in_real_arithmetic_that_underflow_are_not_taken_for_exact():
    """A single product with a power of two is exact in float64 only where it is a normal number."""
    at = RoundedArithmetic.real()
    for x, w in ((2.0**-600, 2.0**-600), (3 * LEAST, 0.5), (LEAST, 2.0**-1)):
        X, W = (Ball(np.array([[z]]), np.zeros((1, 1))) for z in (x, w))
        held(at.product(X, W), np.array([[Fraction(x) * Fraction(w)]], dtype=object))
