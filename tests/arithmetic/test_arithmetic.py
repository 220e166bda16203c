"""Balls contain the exact result, exact reals have the right sign, and bad numbers never prove anything."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st
from models.random_models import random_model
from models.selection import every
from oracles.histogram import _logits60, weights_of

from constructions import inventory_counting, relation_counting
from constructions.errors import BadInput
from constructions.histogram import HistogramTransformer
from tests.clocks import ENDLESS
from verify.arithmetic.balls import HUGE, TINY, Ball, exponential, reciprocal_sqrt
from verify.arithmetic.exact_reals import ONE, SQRT, Basis, Combination, Undecided, exponentials, first_nonpositive
from verify.frame.certificate import Verdict
from verify.tasks.histogram.exact_forward import DyadicMatrix, ExactForward
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.stored import StoredModel

numbers = st.one_of(
    st.floats(-4, 4),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, TINY, TINY / 2, -TINY, HUGE, 2 * HUGE, 5e-324, 1e308]),
)


def contains(ball, exact):
    mid, rad = float(ball.mid), float(ball.rad)
    if not np.isfinite(mid) or not np.isfinite(rad):
        return True
    return abs(Fraction(mid) - exact) <= Fraction(rad)


@given(st.floats(-4, 4), st.floats(-4, 4), st.floats(0, 0.5), st.floats(0, 0.5), st.floats(-1, 1), st.floats(-1, 1))
def test_quotients_of_balls(x, y, rx, ry, at_x, at_y):
    quotient = Ball(np.array(x), np.array(rx)) / Ball(np.array(y), np.array(ry))
    divisor = Fraction(y) + Fraction(ry) * Fraction(at_y)
    if abs(y) <= ry:
        assert np.isinf(quotient.rad)
    else:
        assert contains(quotient, (Fraction(x) + Fraction(rx) * Fraction(at_x)) / divisor)


@given(numbers, numbers)
def test_sums_and_products_of_balls(x, y):
    with np.errstate(all="ignore"):
        a, b = Ball.exact(x), Ball.exact(y)
        assert contains(a + b, Fraction(x) + Fraction(y))
        assert contains(a - b, Fraction(x) - Fraction(y))
        assert contains(a * b, Fraction(x) * Fraction(y))
        assert contains((a + b) * (a - b), (Fraction(x) + Fraction(y)) * (Fraction(x) - Fraction(y)))


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=6), numbers)
def test_products_of_ball_matrices(pairs, factor):
    x, y = np.array(pairs).T
    with np.errstate(all="ignore"):
        scaled = Ball.exact(x[None]) * Ball.exact(factor)
        product = (scaled @ Ball.exact(y[:, None]))[0, 0]
    exact = Fraction(factor) * sum(Fraction(a) * Fraction(b) for a, b in pairs)
    assert contains(product, exact)


@given(st.floats(-100, 0.5), st.floats(0, 1.5))
def test_exponentials_of_balls(m, r):
    with np.errstate(invalid="ignore"):
        ball = exponential(Ball(np.array([m]), np.array([r])))
    with mpmath.workdps(50):
        for x in (mpmath.mpf(m) - mpmath.mpf(r), mpmath.mpf(m), mpmath.mpf(m) + mpmath.mpf(r)):
            y = mpmath.exp(x)
            assert not np.isfinite(ball.rad[0]) or abs(y - mpmath.mpf(float(ball.mid[0]))) <= mpmath.mpf(
                float(ball.rad[0])
            )


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9, 16, 32, 1000])
def test_reciprocal_square_root(d):
    ball = reciprocal_sqrt(d)
    low, high = (
        Fraction(float(ball.mid)) - Fraction(float(ball.rad)),
        Fraction(float(ball.mid)) + Fraction(float(ball.rad)),
    )
    assert low * low <= Fraction(1, d) <= high * high


@given(st.fractions(-50, 50, max_denominator=99), st.fractions(-50, 50, max_denominator=99), st.integers(2, 50))
def test_signs_of_square_root_combinations(a, b, d):
    if int(d**0.5 + 0.5) ** 2 == d:
        d += 1
    number = Combination(
        Basis(d, False), {ONE: fmpq(a.numerator, a.denominator), SQRT: fmpq(b.numerator, b.denominator)}
    )
    with mpmath.workdps(60):
        exact = mpmath.mpf(a.numerator) / a.denominator + mpmath.mpf(b.numerator) / b.denominator * mpmath.sqrt(d)
        assert number.sign() == mpmath.sign(exact)


def test_a_near_tie_of_exponentials_needs_digits_and_gets_them():
    basis = Basis(1, False)
    tiny = fmpq(1, 2**400)
    x = Combination(basis, {fmpq(1): fmpq(1), fmpq(0): fmpq(-3)})
    nearly = (x + Combination(basis, {fmpq(2): tiny})) - x
    assert nearly.sign() == 1 and (nearly - nearly).sign() == 0


@given(st.floats(-1e6, 1e6), st.integers(-40, 0), st.sampled_from([2, 3, 7]))
def test_a_number_lies_between_the_two_floats_next_to_it(b, exponent, d):
    """Also where both terms almost cancel."""
    near, b = round(b * d**0.5) + 2.0**exponent, round(b * 2.0**20) * 2.0**-20
    number = Combination(Basis(d, False), {ONE: fmpq(*near.as_integer_ratio()), SQRT: -fmpq(*b.as_integer_ratio())})
    low, high = number.enclosure()
    assert high == np.nextafter(low, np.inf) or low == high == near
    for end, sign in ((low, 1), (high, -1)):
        apart = number - Combination(number.basis, {ONE: fmpq(*end.as_integer_ratio())})
        assert apart.sign() in (0, sign)


@pytest.mark.deep
def test_products_and_quotients_end_in_an_error_where_they_must():
    root = Combination(Basis(2, False), {SQRT: fmpq(1)})
    with pytest.raises(TypeError, match="exponentials"):
        root * root
    with pytest.raises(Undecided, match="bits"):
        first_nonpositive(exponentials({10**9: 1}), exponentials({0: -1}))


@pytest.mark.parametrize("seed", every(3, range(60)))
def test_exact_forward_agrees_with_sixty_digits(seed):
    module = random_model(seed)
    g = torch.Generator().manual_seed(seed)
    exact = ExactForward(StoredModel.of(module))
    tokens = torch.randint(0, module.T, (module.L,), generator=g).tolist()
    for position in range(module.L):
        logits = exact.logits(tokens, position)
        with mpmath.workdps(60):
            reference = _logits60(module, weights_of(module), tuple(tokens), position)
            differences = [logit - logits[0] for logit in logits]
            for difference, value in zip(differences, reference, strict=True):
                sign = mpmath.sign(value - reference[0]) if abs(value - reference[0]) > mpmath.mpf(10) ** -40 else 0
                assert difference.sign() == sign


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_dyadic_matrices_are_exact(values):
    matrix = DyadicMatrix.of(np.array([values]))
    for i, value in enumerate(values):
        n, q = value.as_integer_ratio()
        assert matrix.entry(0, i) == fmpq(n, q)


@pytest.mark.parametrize("name", ["E", "W_Q", "W_1", "b_1", "W_2", "b_2"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(name, value):
    module = relation_counting.dot(T=4, L=3)
    with torch.no_grad():
        getattr(module, name).view(-1)[0] = value
    with pytest.raises(BadInput, match=name):
        certify(module)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30, 1e150, 1e300])
@pytest.mark.parametrize("build", [relation_counting.bos, inventory_counting.dot_sftm])
def test_extreme_scales_are_decided_by_exact_arithmetic(build, scale):
    """All logits scaled: the argmax is the same, but float64 overflows or underflows on the way."""
    module = build(T=3, L=3, dtype=torch.float64)
    with torch.no_grad():
        module.W_2 *= scale
        module.b_2 *= scale
    certificate = certify(module, budget=ENDLESS)
    assert certificate.verdict is Verdict.PROVED
    with torch.no_grad():
        module.b_2[1] -= 3 * scale
    assert certify(module, budget=ENDLESS).verdict is Verdict.REFUTED


def test_scores_that_overflow_exp():
    """Scores of 10^5 without the maximum subtracted overflow every format; the proof divides by the largest."""
    module = inventory_counting.dot_sftm(T=3, L=3, dtype=torch.float64, as_printed=True)
    with torch.no_grad():
        module.W_Q *= 1e5
    certificate = certify(module, budget=ENDLESS)  # gamma saturates at 1 for every count: wrong
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.error_share[0] == certificate.error_share[1]


def one_position(p, b_1, W_2, classes=2):
    """lin at L = 1: the logits are ReLU(b_1) W_2."""
    module = HistogramTransformer("lin", T=2, L=1, d=1, p=p, classes=classes, dtype=torch.float64)
    with torch.no_grad():
        module.E.fill_(1.0)
        module.b_1.copy_(torch.tensor(b_1, dtype=torch.float64))
        for (i, c), value in W_2.items():
            module.W_2[i, c] = value
    return module


BIG, LEAST = 2.0**1023, 2.0**-1074
READOUTS = {
    # 4 x against 3 * 1.9 x: wrong; each product alone overflows
    "overflow, wrong": (
        one_position(4, [4.0, 1.9, 1.9, 1.9], {(0, 0): BIG, (1, 1): BIG, (2, 1): BIG, (3, 1): BIG}),
        False,
    ),
    "overflow, right": (
        one_position(4, [2.1, 0.9, 1.9, 0.9], {(0, 1): BIG, (1, 0): BIG, (2, 0): BIG, (3, 0): BIG}),
        True,
    ),
    # 0.6 + 0.6 against 1.4 units: each product rounds to one unit, the sum to a tie or the wrong side
    "underflow, wrong": (one_position(3, [0.6, 0.6, 1.4], {(0, 0): LEAST, (1, 0): LEAST, (2, 1): LEAST}), False),
    "underflow, right": (one_position(3, [0.6, 0.6, 1.4], {(0, 1): LEAST, (1, 1): LEAST, (2, 0): LEAST}), True),
}


@pytest.mark.parametrize("name", READOUTS)
def test_readouts_at_the_ends_of_float64(name):
    """The readout overflows or underflows in float64, and only exact arithmetic knows the winner."""
    module, is_right = READOUTS[name]
    certificate = certify(module, budget=20)
    assert certificate.verdict is (Verdict.PROVED if is_right else Verdict.REFUTED)
    assert certificate.margin >= 0 if is_right else certificate.margin <= 0
    if not is_right:
        assert certificate.error_share == (1, 1)


def test_margins_have_the_sign_of_the_verdict():
    """Scores of 10^300 cancel beyond any fixed precision."""
    for shift, verdict in ((1.0, Verdict.PROVED), (-1.0, Verdict.REFUTED)):
        module = HistogramTransformer("dot+sftm", T=2, L=1, d=2, p=2, classes=2, dtype=torch.float64)
        with torch.no_grad():
            module.E.copy_(torch.eye(2))
            module.W_Q.copy_(torch.eye(2))
            module.W_K.copy_(1e300 * torch.eye(2, dtype=torch.float64))
            module.b_2[0] = shift
        certificate = certify(module)
        assert certificate.verdict is verdict and certificate.margin == pytest.approx(shift)


def test_the_budget_counts_from_the_first_search():
    """A small budget on a model with many open cells: no proof, and the share is bracketed."""
    module = HistogramTransformer("dot", T=60, L=6, d=4, p=6)
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g))
    certificate = certify(module, budget=0.0)
    assert certificate.verdict is not Verdict.PROVED
    if certificate.error_share is not None:
        low, high = certificate.error_share
        assert low <= high <= 1 and high > Fraction(1, 2)
