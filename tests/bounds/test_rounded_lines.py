"""Number words that p bits tell apart: every order of the operations, run with fractions, and the built decoders."""

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from models.selection import first
from oracles import decoder as oracle
from oracles.operations import Rounded
from planted import planted

from bounds import rounded_lines
from bounds.rounded_lines import farthest, first_wrong, largest_right, slack
from constructions.inductive import started


def rounded(x, p):
    """A fraction rounded to p significand bits, ties to even."""
    if x == 0:
        return x
    exponent = 0
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - p + 1)
    return round(x / unit) * unit


def logits(k, n, M, p, centre, fused):
    """C-T1's logits, w and t rounded as the decoder does; `fused` names the product that is not rounded, if any."""
    w = rounded(Fraction(1, n + 1), p)
    t = rounded(1 + rounded(w * (k - 1 - centre), p), p)
    out = []
    for j in range(-centre, M + 1 - centre):
        one, two = j * t, -rounded(Fraction(j * j, 2), p) * w
        out.append(rounded((one if fused == 1 else rounded(one, p)) + (two if fused == 2 else rounded(two, p)), p))
    return out, w


def least(M, p, is_centred):
    """The least margin in units of w over all k, n and ways to fuse."""
    centre, found = M // 2 if is_centred else 0, None
    for k in range(1, M + 1):
        for n, fused in product(range(M - k + 1), (0, 1, 2)):
            values, w = logits(k, n, M, p, centre, fused)
            right = values.pop(k + n)
            margin = (right - max(values)) / w
            found = margin if found is None or margin < found else found
    return found


@pytest.mark.parametrize("is_centred, p", first(4, product((True, False), (5, 7, 8, 9, 10))))
def test_every_way_to_round_is_right_and_has_the_margin_that_is_said(is_centred, p):
    for M in range(2, largest_right(p, is_centred=is_centred) + 1, 7):
        assert 0 < slack(M, p, is_centred=is_centred) <= least(M, p, is_centred)
    assert slack(largest_right(p, is_centred=is_centred) + 1, p, is_centred=is_centred) <= 0


def test_a_bound_that_forgets_a_rounding_is_caught():
    for right, wrong in (("- u * (1 + u)", "- 0 * (1 + u)"), ("4 * J * J + 4 * J * a", "0 * J * J")):
        with planted(rounded_lines, "slack", right, wrong):
            assert rounded_lines.slack(12, 6, is_centred=True) > 0 == least(12, 6, True)


@pytest.mark.parametrize("p", range(5, 13))
@pytest.mark.parametrize("is_centred", [True, False])
def test_a_number_alone_is_a_tie_where_each_operation_is_rounded(p, is_centred):
    for M in (first_wrong(p, is_centred=is_centred), first_wrong(p, is_centred=is_centred) + 3):
        centre = M // 2 if is_centred else 0
        k = farthest(first_wrong(p, is_centred=is_centred), is_centred=is_centred) + centre
        values, _ = logits(k, 0, M, p, centre, 0)
        assert values[k] == values[k - 1]
    assert first_wrong(p, is_centred=is_centred) > largest_right(p, is_centred=is_centred)


def test_the_tie_in_float32_and_float16():
    for kind, p in ((np.float32, 24), (np.float16, 11)):
        K = first_wrong(p, is_centred=False)
        a, b = (kind(j) * kind(K) - kind(j * j / 2) * kind(1) for j in (K, K - 1))
        assert a == b == (K * K - 1) / 2


@pytest.mark.parametrize("name, p", first(1, [("bfloat16", 8), ("float16", 11)]))
@pytest.mark.parametrize("is_centred", [True, False])
def test_built_decoders_are_right_in_random_orders_and_in_a_run(name, p, is_centred):
    M, rng = largest_right(p, is_centred=is_centred), random.Random(0)
    model = started(task="shifted", M=M, layernorm=False, centred=is_centred, dtype=getattr(torch, name))
    stored = oracle.stored(model)
    for k in range(1, M + 1):
        tokens = (k, *[M + 1] * (M - k))
        with torch.no_grad():
            said = model(torch.tensor([tokens]))[0].double().numpy()
        for values in (said, oracle.slow(stored, tokens, 0, Rounded(p, rng, -14 if name == "float16" else -126))):
            for n, margin in enumerate(oracle.margins(values, range(k, M + 1))):
                assert margin * (n + 1) >= slack(M, p, is_centred=is_centred) * (1 - 2.0**-p)


@pytest.mark.parametrize("call", [lambda: largest_right(1, is_centred=True), lambda: first_wrong(4, is_centred=True)])
def test_too_few_bits_are_refused(call):
    with pytest.raises(ValueError, match="must be at least"):
        call()
