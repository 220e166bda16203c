"""Contextual counting where products of weights underflow: bounds hold against fractions, nothing wrong is proved."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch

from constructions.contextual.bidirectional import SHAPES, BidirectionalContextualTransformer
from constructions.contextual_counting import build as build_causal
from constructions.contextual_positions import build
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS
from verify.frame.certificate import Verdict
from verify.frame.decide import certify
from verify.tasks.contextual.bidirectional.spans import product, total
from verify.tasks.contextual.bidirectional.task import Bidirectional
from verify.tasks.contextual.rounding import dot_error, dot_size
from verify.tasks.contextual.task import StringDomain
from verify.tasks.contextual.verdict import certify as certify_causal

FLOAT64 = FORMATS["float64"]


def drawn(rng, shape):
    exponent, whole = rng.integers(-1074, 400, shape), rng.integers(-5, 6, shape)
    return np.ldexp(whole.astype(float), exponent)


def exactly(x, W):
    x, W = ([[Fraction(float(v)) for v in row] for row in z] for z in (x, W.T))
    return np.array([[sum(a * b for a, b in zip(r, c, strict=True)) for c in W] for r in x], dtype=object)


def test_products_and_sums_of_any_size_hold_what_fractions_say():
    rng, spoken = np.random.default_rng(3), 0
    for trial in range(300):
        n = int(rng.integers(1, 4))
        x, W, added = drawn(rng, (2, n)), drawn(rng, (n, 2)), drawn(rng, (2, 2)) * (trial % 2)
        balls = [Ball(z, np.abs(z) * 2.0**-40 * (trial % 3 == 0)) for z in (x, W, added)]
        for fmt in (None, FLOAT64):
            found = product(balls[0], balls[1], fmt, balls[2] if trial % 2 else None)
            exact = exactly(x, W) + np.array([[Fraction(float(v)) for v in row] for row in added], dtype=object)
            computed = x @ W + added
            summed, together = total(balls[0], balls[1].T, fmt), x + W.T
            for ball, real, float64 in ((found, exact, computed), (summed, None, together)):
                for index in np.ndindex(ball.mid.shape):
                    if not (np.isfinite(ball.rad[index]) and np.isfinite(float64[index])):
                        continue
                    spoken += 1
                    mid, rad = Fraction(float(ball.mid[index])), Fraction(float(ball.rad[index]))
                    true = Fraction(float(x[index])) + Fraction(float(W.T[index])) if real is None else real[index]
                    assert abs(mid - true) <= rad
                    assert fmt is None or abs(mid - Fraction(float(float64[index]))) <= rad
    assert spoken > 2000


def test_errors_of_single_products_hold_where_their_size_underflows():
    """A single term that underflows is rounded, though float64 makes its size 0."""
    for x, w in ((2.0**-600, 3 * 2.0**-600), (3 * 2.0**-1074, 0.75), (2.0**-1074, 2.0**-1)):
        size, W = np.array([[x]]), np.array([[w]])
        computed, real = Fraction(x * w), Fraction(x) * Fraction(w)
        for format_name in ("float64", "float32"):
            error = dot_error(size, np.zeros((1, 1)), W, FORMATS[format_name])
            assert abs(computed - real) <= Fraction(float(error[0, 0]))
        assert real <= Fraction(float(dot_size(size, W)[0, 0]))


def poisoned(tiny, N=6, R=1, large=1000):
    """Token 0 alone has 2^tiny in a lane of its own, which is squared and then read out large."""
    a = build(N, R)
    d, h = a.W_V.shape
    module = BidirectionalContextualTransformer(
        tokens=5, places=N + 1, d=d + 2, e=a.W_Q.shape[1], h=h + 1, p=a.W_1.shape[1], R=R, f=a.U_K.shape[1], g=1,
        classes=len(a.b_out), dtype=torch.float64,
    )  # fmt: skip
    with torch.no_grad():
        for name in SHAPES:
            small, whole = getattr(a, name), getattr(module, name)
            whole[tuple(slice(0, k) for k in small.shape)] = small
        module.E[0, d] = 2.0**tiny
        module.W_V[d, h] = 2.0**tiny
        module.W_O[h, d + 1] = 2.0**large
        module.U_V[d + 1, 0] = 2.0**large
    return module


def predicted(module, tokens):
    """The class of prompt 0 on one string with BOS before it, with 6000 bits."""
    with mpmath.workprec(6000):
        W = {n: mpmath.matrix(np.atleast_2d(getattr(module, n).detach().double().numpy()).tolist()) for n in SHAPES}
        row = [4, *tokens]
        x = mpmath.matrix(
            [[W["E"][t, j] + W["positions"][i, j] for j in range(W["E"].cols)] for i, t in enumerate(row)]
        )

        def attended(Q, K, V):
            scores = Q * K.T
            out = mpmath.matrix(Q.rows, V.cols)
            for i in range(Q.rows):
                weights = [mpmath.exp(scores[i, j]) for j in range(K.rows)]
                for c in range(V.cols):
                    out[i, c] = sum(weights[j] * V[j, c] for j in range(K.rows)) / sum(weights)
            return out

        x = x + attended(x * W["W_Q"], x * W["W_K"], x * W["W_V"]) * W["W_O"]
        z = x * W["W_1"]
        hidden = mpmath.matrix([[max(z[i, j] + W["b_1"][j], 0) for j in range(z.cols)] for i in range(z.rows)])
        fed = hidden * W["W_2"]
        x = mpmath.matrix([[x[i, j] + fed[i, j] + W["b_2"][j] for j in range(x.cols)] for i in range(x.rows)])
        logits = attended(W["P"] * W["U_Q"], x * W["U_K"], x * W["U_V"]) * W["W_out"]
        return max(range(logits.cols), key=lambda c: logits[0, c] + W["b_out"][c])


@pytest.mark.parametrize("tiny", [-600, -530, -510])
def test_a_value_that_underflows_is_not_taken_for_zero(tiny):
    module = poisoned(tiny)
    assert predicted(build(6, 1), [0, 2, 1, 3]) == 1 != predicted(module, [0, 2, 1, 3])  # "0[1]" holds one 1
    assert certify(Bidirectional.of(module)).verdict is not Verdict.PROVED


@pytest.mark.parametrize("scale", [0, -30, -300, -500])
def test_scaled_values_of_a_causal_model_are_judged_as_what_they_are(scale):
    """With the readout scaled back the function is the same; scaled down with the values, the biases alone decide."""
    for back, never in ((-scale, Verdict.REFUTED), (scale, Verdict.PROVED if scale else None)):
        module = build_causal(8, 1, dtype=torch.float64)
        with torch.no_grad():
            module.U_V.mul_(2.0**scale)
            module.W_out.mul_(2.0**back)
        found = certify_causal(module, StringDomain(8, 1)).verdict
        assert found is not never and (scale or found is Verdict.PROVED)
