"""A softmax's weights against exponentials in 200 bits, up to the one factor of a row that cancels."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, arb_mat, ctx, fmpq
from planted import planted

from verify.arithmetic import arb_matrices, softmax
from verify.arithmetic.balls import Ball

SCALES = (1e-12, 1.0, 30.0, 900.0)


def wrong_shares(scores, is_there):
    """How many shares, of scores at either end of their balls, the weights do not hold."""
    found = softmax.weights(scores, is_there)
    wrong = int((found.mid[~is_there] != 0).sum() + (found.rad[~is_there] != 0).sum())
    low, high = (
        [[Fraction(x) for x in row] for row in end.tolist()] for end in (found.mid - found.rad, found.mid + found.rad)
    )
    for side in (-1, 1):
        exact = scores.mid + side * scores.rad * np.where(np.arange(scores.mid.shape[1]) % 2, 1, -1)
        for i, row in enumerate(exact):
            there = np.flatnonzero(is_there[i])
            reference = scores.mid[i, there].max()
            for j in there:
                with ctx.workprec(200):
                    value = (arb(float(row[j])) - arb(float(reference))).exp()
                    slack = arb("1e-30")  # the ends of a ball are floats, and its middle less its radius is rounded
                    too_low = value < arb(_q(low[i][j])) - slack
                    too_high = value > arb(_q(high[i][j])) + slack
                    wrong += bool(too_low) + bool(too_high)
    return wrong


def _q(x):
    return fmpq(x.numerator, x.denominator)


def cases():
    rng = np.random.default_rng(32)
    for scale in SCALES:
        mid = rng.normal(size=(6, 5)) * scale
        mid[0] = mid[0, 0]
        is_there = rng.random((6, 5)) < 0.7
        is_there[:, 2] = True
        yield Ball(mid, rng.random((6, 5)) * 0.5 * (rng.random((6, 5)) < 0.5)), is_there


def test_weights_hold_the_exponentials_of_all_scores():
    assert sum(wrong_shares(*case) for case in cases()) == 0


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("np.where(there, apart.rad, 0.0)", "0.0 * apart.rad"),
        ("np.where(there, found.mid, 0.0)", "found.mid"),
        ("-np.inf).max(-1, keepdims=True)", "-np.inf).max(keepdims=True)"),
    ],
)
def test_a_planted_fault_is_seen(right, wrong):
    with planted(softmax, "weights", right, wrong):
        assert sum(wrong_shares(*case) for case in cases()) > 0


def test_in_many_bits_the_shares_of_what_is_seen_sum_to_1():
    rng = np.random.default_rng(3)
    with ctx.workprec(200):
        q, k = (arb_matrices.stored(rng.normal(size=(4, 2))) for _ in range(2))
        ones = arb_matrices.stored(np.ones((4, 1)))
        for is_causal in (False, True):
            assert all(
                abs(total - 1) < 1e-50 for total in arb_matrices.attended(q, k, ones, is_causal=is_causal).entries()
            )
        first = arb_matrices.attended(q, k, k, is_causal=True)
        assert all(abs(first[0, j] - k[0, j]) < 1e-50 for j in range(2))
        ramp = arb_matrices.relu(arb_mat([[arb(-1), arb(2), arb(0, 1)]]))
        assert ramp[0, 0] == 0 and ramp[0, 1] == 2 and ramp[0, 2].contains(arb(1)) and ramp[0, 2].contains(arb(0))
