"""A softmax's weights against exponentials in 200 bits, up to the one factor of a row that cancels."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from flint import arb, arb_mat, ctx, fmpq
from models.selection import every
from oracles.any_order import UNIT, Adversary, whole
from oracles.every_sum import every_sum
from planted import planted

from verify.arithmetic import arb_matrices, operations, softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import rounded
from verify.arithmetic.softmax import Arguments
from verify.tasks.histogram.stored import StoredModel

SCALES = (1e-12, 1.0, 30.0, 900.0)


def wrong_shares(scores, is_there, column=None):
    """How many shares, of scores at either end of their balls, the weights do not hold: over a column, if given."""
    found = softmax.weights(scores, is_there, None if column is None else scores.mid[:, [column]])
    wrong = int((found.mid[~is_there] != 0).sum() + (found.rad[~is_there] != 0).sum())
    low, high = (
        [[Fraction(x) for x in row] for row in end.tolist()] for end in (found.mid - found.rad, found.mid + found.rad)
    )
    for side in (-1, 1):
        exact = scores.mid + side * scores.rad * np.where(np.arange(scores.mid.shape[1]) % 2, 1, -1)
        for i, row in enumerate(exact):
            there = np.flatnonzero(is_there[i])
            reference = scores.mid[i, there].max() if column is None else scores.mid[i, column]
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
    assert sum(wrong_shares(*case, 2) for case, scale in zip(cases(), SCALES, strict=True) if scale < 20) == 0
    with planted(softmax, "weights", "if reference is None", "if True"):
        assert sum(wrong_shares(*case, 2) for case, scale in zip(cases(), SCALES, strict=True) if scale < 20) > 0
    far = softmax.weights(Ball.exact(np.array([[0.0, 70.0]])), None, np.zeros((1, 1)))
    assert np.isnan(far.mid[0, 1]) and far.rad[0, 1] != 0


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


def arguments_beyond(trials=300):
    """Computed arguments of scores drawn in their balls, and of keys drawn, that are not where they are said to be."""
    rng, beyond = np.random.default_rng(3), 0
    for trial in range(trials):
        fmt, wide = format_named(f"p{3 + trial % 4}"), FORMATS["float32"] if trial % 5 == 0 else None
        mid = rounded(np.rint(rng.normal(size=5) * 4) + rng.random(5) * (trial % 2), fmt)
        rad = np.where(rng.random(5) < 0.6, 0.0, rng.random(5) * (trial % 3))
        there, always = rng.random(5) < 0.8, np.arange(5) == 0
        there[0] = True
        found = Arguments.of(Ball(mid[None], rad[None]), RoundedArithmetic.of(fmt, wide), there, always)
        for _ in range(8):
            part = there & (always | (rng.random(5) < 0.5))
            s = np.clip(rounded(mid + rad * rng.uniform(-1, 1, 5), fmt), mid - rad, mid + rad)
            m = s[part].max()
            for apart in (s - m, rounded(s - m, fmt), rounded(rounded(s - m, wide or fmt), fmt)):
                is_wrong = (np.abs(apart - (mid - m)) > found.off[0]) | (-apart > found.distance[0] * (1 + 2 * fmt.u))
                is_wrong |= found.is_top[0] & (apart != 0)
                beyond += int((is_wrong & part).sum())
    return beyond


def test_computed_arguments_are_where_they_are_said_to_be():
    assert not arguments_beyond()


@pytest.mark.parametrize(
    ("right", "wrong"),
    every(
        3,
        [
            ("(scores.rad + rounding)", "rounding"),
            ("at.once * power_at_or_below(distance * (1 + at.inner.u))", "0.5 * at.once * power_at_or_below(distance)"),
            ("is_known & at.is_representable(distance, unit)", "is_known"),
            ("(~may_be_top | (scores.rad == 0)).all(-1, keepdims=True) & (scores.rad == 0)", "scores.rad == 0"),
            ("there & (high >= np.where(there & is_always, low,", "there & (low > np.where(there & is_always, low,"),
            ("(scores.mid == top)", "(scores.mid == scores.mid.max(-1, keepdims=True))"),
        ],
    ),
)
def test_a_planted_fault_of_arguments_is_seen(right, wrong):
    with planted(Arguments, "of", right, wrong):
        assert arguments_beyond()


def totals_beyond():
    """Sums of up to five exponentials of which some are 1, over all trees, that are further off than is said."""
    rng, beyond = np.random.default_rng(4), 0
    at, fmt = RoundedArithmetic.of(format_named("p4")), format_named("p4")
    for trial in range(36):
        ones, small = 1 + trial % 2, rounded(rng.random(1 + trial % 3) * 2.0 ** -(trial % 9), fmt)
        terms = (1.0,) * ones + tuple(small.tolist())
        exact, sums = sum(terms), np.array(list(every_sum(terms, fmt)))
        for error in (softmax.total_error(at, len(terms)), softmax.total_error(at, len(terms), 2, small.sum(), True)):
            beyond += int((np.abs(sums - exact) > float(error) * exact).sum())
    return beyond


def test_totals_are_off_by_no_more_than_is_said():
    assert not totals_beyond()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.ldexp(others,", "0.25 * np.ldexp(0 * others + others / 8,"),
        ("np.maximum(n - 1, 0)", "np.maximum(n - 3, 0)"),
    ],
)
def test_a_planted_fault_of_totals_is_seen(right, wrong):
    with planted(softmax, "total_error", right, wrong):
        assert totals_beyond()


def worst_exponentials(x, fmt):
    """What exp may be of an argument: within two units of its value, below normal numbers also 0 or twice it."""
    value = math.exp(x)
    unit = 2.0 ** (max(math.frexp(value)[1] - 1, fmt.smallest_exponent) - fmt.p + 1)
    ends = value - 2 * unit, value + 2 * unit
    found = [1.0] if x == 0 else [*ends, math.ceil(ends[0] / unit) * unit, math.floor(ends[1] / unit) * unit]
    found += [2 * value] if 2 * value < fmt.tiny else []
    return [max(y, 0.0) for y in found] + [0.0] * (min(found) < fmt.tiny)


def weights_beyond(trials=80):
    """Computed exponentials of scores and keys drawn, in one unit, that are not between their ends."""
    rng, beyond = np.random.default_rng(5), 0
    for trial in range(trials):
        fmt = FORMATS["e4m3"] if trial % 5 else format_named("p4")
        at, scale = RoundedArithmetic.of(fmt), (1, 4, 0.25)[trial % 3]
        mid = rounded(np.rint(rng.normal(size=4) * 4) * scale, fmt)
        rad = np.where(rng.random(4) < 0.6, 0.0, rng.random(4) * scale)
        reference = mid[:1]
        always = np.arange(4) == 0
        low, high = softmax.computed_between(Ball(mid[None], rad[None]), reference[None], at, always)
        for _ in range(4):
            s = np.clip(rounded(mid + rad * rng.choice([-1, 1], 4), fmt), mid - rad, mid + rad)
            part = always | (rng.random(4) < 0.7)
            m = s[part].max()
            for j in np.flatnonzero(part):
                unit = math.exp(m - reference[0])
                found = [
                    y * unit for x in (s[j] - m, float(rounded(s[j] - m, fmt))) for y in worst_exponentials(x, fmt)
                ]
                beyond += (min(found) < low[0, j]) + (max(found) > high[0, j])
    return beyond


def test_computed_exponentials_are_between_their_ends():
    assert not weights_beyond()
    for score in (np.inf, np.nan):
        low, high = softmax.computed_between(
            Ball(np.array([[0.0, score]]), np.zeros((1, 2))), np.zeros((1, 1)), RoundedArithmetic.of(FORMATS["float32"])
        )
        assert low[0, 1] == 0 and high[0, 1] == np.inf


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("computed_ends", "(1 - ULPS * fmt.u) - lost", "(1 - ULPS * fmt.u)"),
        ("computed_ends", "+ gained", ""),
        ("computed_ends", "1 - ULPS * fmt.u", "1 - 2 * fmt.u"),
        ("computed_ends", "1 + ULPS * fmt.u", "1 + 2 * fmt.u"),
        ("computed_between", "+ found.off", ""),
        ("computed_between", "is_always=is_always", "is_always=True"),
        ("computed_between", "np.exp(most)", "1"),
        ("computed_between", "np.minimum(high, tiny)", "0 * high"),
        ("computed_between", "np.maximum(ULPS * at.stored.u * tiny, ", "np.maximum(0.0, "),
    ],
)
def test_a_planted_fault_of_computed_exponentials_is_seen(name, right, wrong):
    with planted(softmax, name, right, wrong):
        assert weights_beyond()


def errors_by_units_beyond(trials=240):
    """Exponentials at either end of what exp may be, of keys drawn, further from the exact ones than is said.

    Exact ones lie near powers of two, on either side, and cross them where a row's maximum is not its largest midpoint.
    """
    rng, beyond, fmt = np.random.default_rng(7), 0, format_named("p5")
    at = RoundedArithmetic.of(fmt)
    for trial in range(trials):
        mid = -rng.integers(1, 4, 4) * math.log(2) + rng.choice([-0.2, -0.03, 0.03, 0.4], 4)
        mid[0] = 0.0 if trial % 4 else -0.35
        rad = np.where(rng.random(4) < 0.5, 0.0, rng.choice([0.06, 0.2], 4))
        if trial % 3 == 0:
            mid[3], rad[3] = -0.1, rng.choice([0.0, 0.2])
        scores, always = Ball(mid[None], rad[None]), np.arange(4) == 0
        found = Arguments.of(scores, at, is_always=always)
        error = softmax.errors_by_units(found, scores, softmax.weights(Ball.exact(mid[None])), np.array([0]), fmt)[0]
        for _ in range(4):
            s = mid + rad * rng.choice([-1, 1], 4)
            part = always | (rng.random(4) < 0.7)
            m = s[part].max()
            for j in np.flatnonzero(part):
                values = [
                    y / math.exp(mid[j] - m) - 1
                    for x in (s[j] - m, float(rounded(s[j] - m, fmt)))
                    for y in worst_exponentials(x, fmt)
                ]
                beyond += max(map(abs, values)) > error[j] + 1e-12
    return beyond


def test_errors_by_units_hold_what_exp_may_be():
    assert not errors_by_units_beyond()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("ULPS * fmt.u", "3 * fmt.u"),
        ("found.off + (", "("),
        (" + (scores.upper.max(1, keepdims=True) - largest)", ""),
        ("(own_score == largest) & ", ""),
        ("* unit + found.off", "* unit"),
    ],
)
def test_a_planted_fault_of_errors_by_units_is_seen(right, wrong):
    with planted(softmax, "errors_by_units", right, wrong):
        assert errors_by_units_beyond()


def means_beside_one_beyond(trials=120):
    """Computed means over keys of which one has nearly all weight, that are further from its value than is said."""
    rng, beyond, fmt = np.random.default_rng(8), 0, format_named("p8")
    at = operations.Operations(fmt)
    for trial in range(trials):
        n, v = 2 + trial % 4, (0.0, 1.0, -1.0)[trial % 3]
        powers = rng.random(n - 1) * 2.0 ** -(6 + trial % 4) / n
        noise, largest = rng.choice([0.0, 0.25]), rng.choice([0.0, 1.0])
        values = rounded(rng.choice([-largest, largest]) * rng.random(n - 1), fmt)
        bound = softmax.error_beside_one(powers.sum(), n, at, abs(v) + noise, noise, largest)
        for _ in range(6):
            order = rng.permutation(n)
            weights = np.append(1.0, rounded(powers * (1 + rng.choice([-8, 8]) * fmt.u), fmt))[order]
            held = np.append(v + rng.choice([-1, 1]) * noise, values)[order]
            S = in_order(weights, fmt)
            for shares in (rounded(weights / S, fmt), rounded(weights * rounded(1 / S, fmt), fmt)):
                beyond += abs(in_order(rounded(shares * held, fmt), fmt) - v) > bound
    return beyond


def in_order(terms, fmt):
    return reduce(lambda a, b: rounded(np.array(a + b), fmt), terms)


def test_means_beside_one_value_are_as_near_as_is_said():
    assert not means_beside_one_beyond()
    far = softmax.error_beside_one(np.array([0.1]), 3, operations.Operations(), 1.0, 0.0, 1.0)
    assert np.isinf(far).all()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("10 * tail", "0.25 * tail"),
        ("+ noise", ""),
        ("8 * tail", "0.25 * tail"),
        ("total * growth", "0.05 * total"),
    ],
)
def test_a_planted_fault_of_means_beside_one_is_seen(right, wrong):
    with planted(softmax, "error_beside_one", right, wrong):
        assert means_beside_one_beyond()


def shares_beyond(trials=24):
    """Weights that an adversary computes, each as small or large as it can, beyond those that are said to be."""
    rng, beyond = np.random.default_rng(6), 0
    rows = [
        ("e4m3", np.repeat([0.0, -1.375], 4)),
        ("float16", np.repeat([0.0, -9.0], (6, 1))),
    ]  # many roundings, flushed
    scores = rng.choice([0.0, 0.0, 0.0, -0.25, -3.0, -5.0, -12.0, -14.0], (trials, 5))
    rows += [(("e4m3", "float16", "bfloat16")[i % 3], row[: 2 + i % 4]) for i, row in enumerate(scores)]
    for name, row in rows:
        found = softmax.shares(Ball.exact(row[None]), RoundedArithmetic.of(FORMATS[name]))
        adversary, exact = Adversary(one_row(row), FORMATS[name]), [whole(x) for x in row]
        for j in (0, len(row) - 1):
            low, high = Fraction(float(found.lower[0, j])), Fraction(float(found.upper[0, j]))
            for sign in (-1, 1):
                by_weight = np.where(np.arange(len(row)) == j, sign, -sign)
                weight = adversary.softmax(exact, by_weight, -sign, by_weight)[j]
                beyond += not low <= Fraction(weight, 1 << UNIT) <= high
    return beyond


def one_row(scores):
    """A histogram model whose first position has these scores."""
    N, none = len(scores), np.zeros((1, 1))
    A = np.tile(scores, (N, 1))
    return StoredModel("lin+sftm", 1, N, 1, 1, N, 1, none, None, A, None, None, none, none[0], none, none[0])


def test_computed_shares_hold_what_an_adversary_computes():
    assert not shares_beyond()
    uniform = softmax.shares(Ball.exact(np.zeros((1, 6))), RoundedArithmetic.of(FORMATS["e4m3"]))
    assert (abs(uniform.mid - 1 / 6) + uniform.rad < 0.02).all()
    far = softmax.shares(Ball(np.zeros((1, 2)), np.array([[np.inf, 0.0]])), RoundedArithmetic.of(FORMATS["e4m3"]))
    assert np.isinf(far.rad).all()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("computed_ends", "+ gained", ""),
        ("shares", "(total.rad + times(off, total.magnitude))", "total.rad"),
        ("shares", "return at.result(", "return ("),
    ],
)
def test_a_planted_fault_of_computed_shares_is_seen(name, right, wrong):
    with planted(softmax, name, right, wrong):
        assert shares_beyond()
