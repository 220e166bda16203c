"""Layers scaled by any powers of two, so that products underflow or overflow: nothing false by fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from models.selection import every, first

from constructions.histogram import HistogramTransformer
from verify.arithmetic.balls import Ball
from verify.frame.certificate import Verdict
from verify.tasks.histogram.bracket import in_one_group
from verify.tasks.histogram.moments import Moments
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.reduction import Reduction
from verify.tasks.histogram.slot_terms import Attended
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.tabulating import Space, Table

LAYERS = ("E", "W_Q", "W_K", "A", "W_1", "b_1", "W_2", "b_2")


def drawn_model(seed):
    """Small whole numbers, each layer times a power of two of its own; no softmax, so that fractions suffice."""
    rng = np.random.default_rng([31, seed])
    kind = ("lin", "dot")[seed % 2]
    T, L = int(rng.integers(2, 4)), int(rng.integers(1, 4))
    module = HistogramTransformer(
        kind, T=T, L=L, d=int(rng.choice([1, 4])), p=int(rng.integers(1, 4)), classes=L + 1, dtype=torch.float64
    )
    reach = int(rng.choice([0, 50, 250, 540, 1000]))
    with torch.no_grad():
        for name in LAYERS:
            weight = getattr(module, name, None)
            if weight is not None:
                whole = torch.from_numpy(rng.integers(-4, 5, tuple(weight.shape)).astype(float))
                weight.copy_(whole * 2.0 ** int(rng.integers(-reach, reach + 1)))
        if rng.random() < 0.5:  # the readout alone decides: ties and near ties
            module.b_1.copy_(module.b_1 * 0)
    return module


def exactly(module):
    """The margin of every (sequence, position), in rational arithmetic."""
    w = {
        name: np.array([Fraction(x) for x in v.flatten().tolist()], dtype=object).reshape(tuple(v.shape))
        for name, v in module.named_parameters()
    }
    found = {}
    for tokens in product(range(module.T), repeat=module.L):
        x = w["E"][list(tokens)]
        scores = None if module.is_linear else (x @ w["W_Q"]) @ (x @ w["W_K"]).T * Fraction(1, {1: 1, 4: 2}[module.d])
        mixing = w["A"] if module.is_linear else scores
        hidden = np.maximum((x + mixing @ x) @ w["W_1"] + w["b_1"], Fraction(0))
        logits = hidden @ w["W_2"] + w["b_2"]
        for i, token in enumerate(tokens):
            right = tokens.count(token) - module.first_count
            found[tokens, i] = logits[i, right] - max(y for c, y in enumerate(logits[i]) if c != right)
    return found


@pytest.mark.parametrize("part", first(1, range(4)))
def test_verdicts_shares_and_margins_of_scaled_layers(part):
    seen = set()
    for seed in range(part * 20, part * 20 + 20):
        module = drawn_model(seed)
        margins = exactly(module)
        wrong = sum(margin <= 0 for margin in margins.values())
        certificate = certify(module, budget=0.3)
        seen.add(certificate.verdict)
        assert certificate.verdict is not (Verdict.PROVED if wrong else Verdict.REFUTED), seed
        if certificate.verdict is Verdict.PROVED:
            assert Fraction(certificate.margin) <= min(margins.values()), seed
        elif certificate.error_share is not None:
            low, high = (Fraction(share) * len(margins) for share in certificate.error_share)
            assert 0 <= low <= wrong <= high <= len(margins), seed
            count = certificate.extra.get("wrong_pairs")
            assert count is None or int(count) == wrong, seed
    assert Verdict.REFUTED in seen


def proved_model(scales):
    """lin that counts one token: a staircase readout, each layer times a power of two."""
    T, L = 3, 3
    module = HistogramTransformer("lin", T=T, L=L, d=T, p=T, dtype=torch.float64)
    e, a, w, r = (2.0**k for k in scales)
    with torch.no_grad():
        module.E.copy_(torch.eye(T, dtype=torch.float64) * e)
        module.A.copy_(torch.full((L, L), a))
        module.W_1.copy_(torch.eye(T, dtype=torch.float64) * 4 * w)
        module.b_1.fill_(0.0)
        module.W_2.copy_(torch.arange(1, L + 1).double().repeat(T, 1) * r)
        module.b_2.zero_()
    return module


@pytest.mark.parametrize("scales", [(0, 0, 0, 0), (-600, 0, -600, 0), (0, -40, -1000, -60), (-30, -30, -1010, 900)])
def test_a_margin_is_never_above_the_exact_one(scales):
    module = proved_model(scales)
    margins = exactly(module)
    wrong = sum(margin <= 0 for margin in margins.values())
    certificate = certify(module, budget=0.3)
    assert certificate.verdict is not (Verdict.PROVED if wrong else Verdict.REFUTED)


def test_a_sequence_of_one_token_is_counted_once():
    """At L = 1 no slot is left, and what was decided near a tie was decided again."""
    for third, wrong in ((0.0, 1), (1.5, 2)):
        module = HistogramTransformer("dot", T=2, L=1, d=1, p=1, dtype=torch.float32, classes=2)
        with torch.no_grad():
            module.E.copy_(torch.tensor([[1.0], [1e38]]))
            module.W_1.fill_(1.0)
            module.W_2.copy_(torch.tensor([[1.0, third]]))
            module.b_2.copy_(torch.tensor([0.0, 1.5]))
        assert sum(margin <= 0 for margin in exactly(module).values()) == wrong
        certificate = certify(module)
        assert certificate.error_share == (Fraction(wrong, 2),) * 2 and certificate.extra["wrong_pairs"] == str(wrong)


def noisy_readout(scale, T=4, L=4, K=6):
    """One neuron that counts and K that disturb it; the readout times a power of two."""
    rng = np.random.default_rng(5)
    module = HistogramTransformer("lin", T=T, L=L, d=T, p=1 + K, dtype=torch.float64)
    first, last = np.zeros((T, 1 + K)), np.zeros((1 + K, L))
    first[-1, 0], first[:, 1:] = 1.0, np.round(rng.normal(size=(T, K)) * 64) / 64
    last[0, 0], last[1:, 0] = -3.0, np.where(np.arange(K) % 2, 1, -1) / 32
    with torch.no_grad():
        module.E.copy_(torch.eye(T))
        module.A.fill_(1.0)
        module.W_1.copy_(torch.tensor(first))
        module.b_1[0] = -1.5
        module.W_2.copy_(torch.tensor(last) * 2.0**scale)
        module.b_2[0] = 2.0**scale
    return module


def shares_by_moments(module):
    reduction = Reduction(StoredModel.of(module))
    row = in_one_group(reduction.rows[0], reduction)
    found = {}
    for t in range(module.T):
        moments = Moments(Table(reduction, row, t, Space(reduction.stored)), list(range(1, module.L)))
        found |= {(t, k): moments.wrong(k) for k in range(1, module.L)}
    return found


@pytest.mark.parametrize("scale", every(6, [0, -300, -520, -535, -540, -600, -1000]))
def test_means_and_variances_hold_however_the_readout_is_scaled(scale):
    """Variances underflowed where squares of means did not, so that Cantelli's bound was 0."""
    module = noisy_readout(scale)
    margins, counted = exactly(module), {}
    for (tokens, i), margin in margins.items():
        counted.setdefault((tokens[i], tokens.count(tokens[i])), []).append(margin <= 0)
    shares = shares_by_moments(module)
    for cell, (least, most) in shares.items():
        share = Fraction(sum(counted[cell]), len(counted[cell]))
        assert Fraction(float(least)) <= share <= Fraction(float(most)), cell
    if scale >= -600:
        assert shares == shares_by_moments(noisy_readout(0))
        assert any(least > 0 or most < 1 for least, most in shares.values())


def test_terms_of_slots_hold_however_small_their_factors_are():
    rng = np.random.default_rng(12)
    for trial in range(40):
        n, T, p = 2, 4, 3
        shapes = (n, T), (T, p), (n, p)
        parts = [np.ldexp(rng.uniform(-2, 2, shape), int(rng.integers(-1074, 400))) for shape in shapes]
        balls = [Ball(part, np.abs(part) * 2.0**-50 * (trial % 3 == 0)) for part in parts]
        weight, features, residual = balls
        attended = Attended(weight, features, residual if trial % 2 else None)
        with np.errstate(all="ignore"):
            least, most = attended.ends(np.array([0, 1]))
        for q in range(n):
            for s in set(range(T)) - {q}:
                for j in range(p):
                    value = Fraction(float(features.mid[s, j])) + (
                        Fraction(float(residual.mid[q, j])) if trial % 2 else 0
                    )
                    term = Fraction(float(weight.mid[q, s])) * value
                    assert least[q, j] == -np.inf or Fraction(float(least[q, j])) <= term
                    assert most[q, j] == np.inf or term <= Fraction(float(most[q, j]))
