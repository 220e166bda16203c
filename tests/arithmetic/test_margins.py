"""Margins of logits between two ends, of any size, against fractions; nothing is known of what is no number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.arithmetic.test_balls_over_all_exponents import balls, points
from tests.planted import planted
from verify.arithmetic import margins
from verify.arithmetic.balls import Ball, ends
from verify.arithmetic.slack import LEAST

INF, NAN = np.inf, np.nan


def exact_margin(logits, right):
    return logits[right] - max(x for j, x in enumerate(logits) if j != right)


def outside(narrow=None):
    """How many exact margins are outside of what is said of their balls, and of how many something is said."""
    rng = np.random.default_rng([3, 0 if narrow is None else 2000 + narrow])
    x, right = balls(rng, (150, 3), narrow), rng.integers(3, size=150)
    with np.errstate(all="ignore"):
        low, high = margins.margins_between(*ends(x), right)
    found = [exact_margin(row, r) for row, r in zip(points(rng, x), right, strict=True)]
    below = sum(least > -INF and m < Fraction(least) for m, least in zip(found, low.tolist(), strict=True))
    above = sum(most < INF and m > Fraction(most) for m, most in zip(found, high.tolist(), strict=True))
    return below, above, int(np.isfinite(low).sum())


def rounded_up():
    """Bounds on margins that float64 rounds: 1 + 2^-60, and 2^53 + 1."""
    return [margins.margins_between(x, x, 0) for x in (np.array([1.0, -(2.0**-60)]), np.array([2.0**53, -1.0]))]


@pytest.mark.parametrize("narrow", [None, -1040, 0])
def test_margins_between_ends_hold_what_fractions_say(narrow):
    below, above, known = outside(narrow)
    assert (below, above) == (0, 0) and known > 100
    for low, high in rounded_up():
        assert low < high


def test_faults_in_margins_are_seen():
    for right, wrong in (
        ("own_low - rival_high", "own_low - rival_low"),
        ("own_high - rival_low", "own_high - rival_high"),
    ):
        with planted(margins, "margins_between", right, wrong):
            assert sum(outside(0)[:2]) > 0
    with planted(margins, "margins_between", "next_above(most, most == 0)", "most"):
        assert any(Fraction(2) ** 53 + 1 > Fraction(float(high)) for _, high in rounded_up()[1:])
    with planted(margins, "margins_between", "np.isnan(least), -math.inf", "np.isnan(least), math.inf"):
        assert margins.margins_between(np.array([NAN, 0.0]), np.array([NAN, 0.0]), 0)[0] == INF


def test_nothing_is_known_of_a_margin_of_no_number():
    for logits in ([NAN, 0.0, 1.0], [1.0, NAN, 0.0], [INF, 0.0, 1.0], [1.0, -INF, -INF], [INF, INF, 0.0]):
        low, _ = margins.margins_between(np.array(logits), np.array(logits), 0)
        assert low == -INF, logits
    for logits in ([NAN, 0.0, 1.0], [1.0, NAN, 0.0], [-INF, 0.0, 1.0], [1.0, INF, 0.0], [INF, INF, 0.0]):
        _, high = margins.margins_between(np.array(logits), np.array(logits), 0)
        assert high == INF, logits
    low, high = margins.margins_between(np.array([0.0, -INF]), np.array([0.0, INF]), 0)
    assert (low, high) == (-INF, INF)


def test_a_tie_is_a_tie_and_a_subnormal_lead_is_none():
    assert margins.margins_between(np.array([1.0, 1.0]), np.array([1.0, 1.0]), 0) == (0.0, 0.0)
    low, high = margins.margins_between(*ends(Ball(np.array([LEAST, 0.0]), np.zeros(2))), 0)
    assert low == 0.0 and high == 2 * LEAST
    assert margins.margins_between(np.array([3.0]), np.array([3.0]), 0) == (INF, INF)
