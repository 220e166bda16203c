"""Lengths that one head with RoPE and BOS cannot count: no coefficients that are tried do better than the bound."""

import numpy as np
import pytest
from planted import planted
from scipy.optimize import linprog

from bounds import rope_share
from bounds.rope_share import is_impossible, pairs, slack
from constructions.errors import NotKnown
from constructions.inductive_waves import build


def reached(d, N, W, m, pair):
    """The least slack of coefficients that another program finds, each condition judged by hand."""
    n = np.arange(1, N + 1)
    angles = n[:, None] * 10_000.0 ** (-np.arange(0, d, 2) / d)
    x, answers = np.concatenate([np.cos(angles), np.sin(angles)], axis=1), (n - 1) % m
    rows, ends = [], []
    for i in range(N):
        for threshold, sign in ((0, 1 if answers[i] == pair[0] else -1), (1, -1 if answers[i] == pair[1] else 1)):
            rows.append([*(-sign * x[i]), *(sign * (threshold == t) for t in (0, 1)), 1.0])
            ends.append(-sign * np.log(n[i]))
    found = linprog([*[0.0] * (d + 2), -1.0], A_ub=rows, b_ub=ends, bounds=[(-W, W)] * d + [(None, None)] * 3)
    value = x @ np.clip(found.x[:d], -W, W) - np.log(n)
    first, second = found.x[d : d + 2]
    top = [v - first if a == pair[0] else first - v for v, a in zip(value, answers, strict=True)]
    bottom = [second - v if a == pair[1] else v - second for v, a in zip(value, answers, strict=True)]
    return min(*top, *bottom)


SIZES = [(4, 6, 1.0, 3), (16, 14, 2.0, 5), (16, 24, 10.0, 10)]


def violations():
    """How often coefficients have more slack than the bound says there is."""
    return sum(
        reached(*sizes, pair) > rope_share.slack(*sizes, pair) + 1e-9
        for sizes in SIZES
        for pair in list(pairs(*sizes[1::2]))[:2]
    )


def test_no_coefficients_have_more_slack_and_faults_are_caught():
    assert violations() == 0
    for right, wrong in (("W * sum", "0 * sum"), ("- drift", "+ drift"), ("sign[n] > 0", "sign[n] < 0")):
        with planted(rope_share, "slack", right, wrong):
            assert violations() > 0


def test_what_is_built_is_not_impossible_and_a_little_beyond_it_is():
    build(14, d_head=16, largest=10.0)
    assert not is_impossible(16, 14, 10.0) and is_impossible(16, 26, 10.0)
    with pytest.raises(NotKnown):
        build(26, d_head=16, largest=10.0)


def test_larger_coefficients_reach_further():
    pair = (3, 8)
    assert slack(8, 18, 1.0, 10, pair) < slack(8, 18, 10.0, 10, pair)
    assert slack(8, 18, 1.0, 10, pair) < 0


@pytest.mark.deep
@pytest.mark.parametrize("d, W, N", [(32, 1.0, 38), (32, 10.0, 43), (32, 100.0, 46), (64, 1.0, 58), (64, 10.0, 64),
                                     (64, 100.0, 71), (128, 10.0, 115)])  # fmt: skip
def test_the_lengths_of_the_page(d, W, N):
    assert is_impossible(d, N, W)
    assert not is_impossible(d, N - 1, W)


@pytest.mark.parametrize(
    "sizes", [(3, 4, 1.0, 3), (4, 1, 1.0, 3), (4, 4, 0.0, 3), (4, 4, float("nan"), 3), (4, 4, 1.0, 1)]
)
def test_sizes_without_a_meaning_are_refused(sizes):
    with pytest.raises(ValueError, match="must be"):
        slack(*sizes, (0, 1))
