"""Margins of arrays, tensors and exact numbers, against fractions; nothing is known of what is no number."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

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


def rows_of_every_kind():
    """Rows with ties, zeros of both signs, infinities and NaN, and their right classes."""
    rng = np.random.default_rng(5)
    rows = rng.choice([0.0, -0.0, 1.0, 1.5, -2.0, LEAST, 2.0**53, INF, -INF, NAN], size=(2, 200, 4))
    return np.concatenate([rows, rng.integers(-2, 3, (2, 200, 4)).astype(float)]), rng.integers(4, size=(4, 200))


def own_and_rival_by_hand(row, right):
    others = [x for j, x in enumerate(row) if j != right]
    return row[right], NAN if any(x != x for x in others) else max(others)


def pairs_apart():
    """By how many rows an array, a tensor, and a tensor under vmap, also where one of two is shared, are wrong."""
    x, right = rows_of_every_kind()
    hand = np.array(
        [own_and_rival_by_hand(*given) for given in zip(x.reshape(-1, 4).tolist(), right.ravel(), strict=True)]
    )
    hand = hand.reshape(*right.shape, 2)
    t, r = torch.tensor(x), torch.tensor(right)
    each, every = torch.func.vmap(margins.own_and_rival), np.arange(4)
    shared = np.array([[own_and_rival_by_hand(row, c) for row in x[0].tolist()] for c in every])
    found = [
        (margins.own_and_rival(x, right), hand),
        (margins.own_and_rival(t, r), hand),
        (each(t, r), hand),
        (torch.func.vmap(each)(t, r), hand),
        (margins.own_and_rival(x.copy(), right, overwrites=True), hand),
        (margins.own_and_rival(t.clone(), r, overwrites=True), hand),
        (torch.func.vmap(margins.own_and_rival, (None, 0))(t[0], torch.tensor(every)[:, None].expand(4, 200)), shared),
    ]
    assert np.array_equal(x, rows_of_every_kind()[0], equal_nan=True) and torch.equal(
        t.isnan(), torch.tensor(x).isnan()
    )
    return sum(not np.array_equal(np.stack([*map(np.asarray, pair)], -1), y, equal_nan=True) for pair, y in found)


def test_arrays_and_tensors_have_one_right_logit_and_one_rival():
    assert pairs_apart() == 0
    for right, wrong in (
        ("others.max(-1)", "np.nanmax(others, -1)"),
        ("put(-1, index, -math.inf)", "put(-1, index, 0.0)"),
        ("np.put_along_axis(others, place, -math.inf, -1)", "np.put_along_axis(others, place, 0.0, -1)"),
        ("gather(-1, index).squeeze(-1)", "amax(-1)"),
    ):
        with planted(margins, "own_and_rival", right, wrong):
            assert pairs_apart() > 0, wrong


def test_exact_numbers_have_the_same_margin():
    x, right = rows_of_every_kind()
    for row, r in zip(x[2].tolist(), right[2].tolist(), strict=True):
        own, rival = margins.own_and_rival([*map(Fraction, row)], r)
        assert (
            own - rival
            == margins.margins_of(np.array(row), r)
            == margins.margins_of(torch.tensor(row), torch.tensor(r))
        )


@pytest.mark.parametrize("logits", [[1.0, 1.0], [0.0, -0.0], [INF, INF], [-INF, -INF], [NAN, 0.0], [0.0, NAN]])
def test_a_tie_and_no_number_are_not_won(logits):
    for right in (0, 1):
        with np.errstate(invalid="ignore"):
            assert not margins.margins_of(np.array(logits), right) > 0
        assert not margins.margins_of(torch.tensor(logits), torch.tensor(right)) > 0


def test_one_class_is_right_unless_it_is_no_number():
    for own, margin in ((0.0, INF), (-INF, INF), (NAN, NAN)):
        for found in (margins.margins_of(np.array([own]), 0), margins.margins_of(torch.tensor([own]), torch.tensor(0))):
            assert np.array_equal(np.asarray(found), margin, equal_nan=True)


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
