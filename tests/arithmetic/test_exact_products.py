"""A matrix product that float64 computes without rounding has no radius, and no other product has none."""

from fractions import Fraction

import numpy as np

from verify.arithmetic.balls import Ball, _is_exact_product


def exactly(x, y):
    rows, columns = ([[Fraction(float(a)) for a in row] for row in z] for z in (x, y.T))
    return [[sum((a * b for a, b in zip(row, column, strict=True)), Fraction(0)) for column in columns] for row in rows]


def test_products_without_radius_are_exact():
    rng, seen = np.random.default_rng(0), set()
    for trial in range(300):
        n, bits = int(rng.integers(1, 7)), int(rng.integers(1, 40))
        scale = 2.0 ** int(rng.integers(-30, 30))
        x, y = (np.rint(rng.standard_normal((n, n)) * 2.0**bits) * s for s in (scale, 2.0 ** -int(rng.integers(0, 20))))
        if trial % 3 == 0:
            x = np.diag(np.diag(x))
        if trial % 7 == 0:
            y[0, -1] = [2.0**-49, 1e-300, np.float64(0.1)][trial % 2 + trial % 4 // 3]
        product = Ball.exact(x) @ Ball.exact(y)
        is_exact = [[Fraction(a) for a in row] for row in product.mid.tolist()] == exactly(x, y)
        assert is_exact or product.rad.any()
        assert not _is_exact_product(x, y) or is_exact
        seen.add((is_exact, bool(product.rad.any())))
    assert {(True, False), (False, True)} <= seen


def test_numbers_that_are_none_are_not_exact():
    for value in (np.nan, np.inf, -np.inf, 2.0**200):
        x = np.eye(100)
        x[99, 99] = value
        assert not _is_exact_product(x, np.eye(100)) and not _is_exact_product(np.eye(100), x)


def test_a_product_with_what_is_not_finite_is_not_called_exact():
    assert not _is_exact_product(np.zeros((2, 2)), np.array([[np.inf, 1.0], [1.0, 1.0]]))
    assert not _is_exact_product(np.array([[np.nan, 1.0]]), np.ones((2, 1)))


def test_a_product_of_one_unit_more_than_float64_holds_is_not_exact():
    x, y = np.array([[3.0]]), np.array([[3002399751580331.0]])  # 2^53 + 1 is rounded to 2^53, and so is the test's own
    product = Ball.exact(x) @ Ball.exact(y)
    assert abs(Fraction(product.mid[0, 0]) - (2**53 + 1)) <= Fraction(product.rad[0, 0])
    below = Ball.exact(x) @ Ball.exact(y - 1)
    assert below.mid[0, 0] == 2**53 - 2 and below.rad[0, 0] == 0
