"""The classifier's bracket against a plain minimiser, and the best threshold against every threshold."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

from bounds.count01_heads import least_w02
from constructions.count01 import Count01Transformer
from constructions.errors import BadInput
from verify.tasks.count01.heads import svc
from verify.tasks.count01.heads.best_threshold import best_share
from verify.tasks.count01.layer_norm.laws import law_named
from verify.tasks.count01.layer_norm.numbers import model_numbers

TRAINING, TEST = law_named("box:0:6:5"), law_named("box:5:9:9")


def one_dimensional_head(seed):
    g = np.random.default_rng(seed)
    model = Count01Transformer(d=8, heads=1, d_h=1)
    with torch.no_grad():
        model.E.copy_(torch.eye(8))
        model.W_V[0, :5, 0] = torch.tensor(g.normal(size=5))
        model.W_Q[0, 4, 0] = 1
        model.W_K[0, :5, 0] = torch.tensor(g.normal(size=5))
    return model_numbers(model).heads[0], model


def outputs(model, law):
    w = np.exp(model.W_K.detach().numpy()[0, :5, 0])
    v = model.W_V.detach().numpy()[0, :5, 0]
    n = law.counts * w
    return n @ v / n.sum(axis=1)


def minimum(r, y, C):
    """(w, b) with the least w^2 + C mean(max(0, 1 - y (w r + b))): b is a break point, w by sections."""

    def at(w):
        breaks = np.unique(y - w * r)
        hinge = np.maximum(0, 1 - y[:, None] * (w * r[:, None] + breaks)).mean(axis=0)
        i = int(hinge.argmin())
        return w * w + C * hinge[i], breaks[i]

    low, high = -np.sqrt(C), np.sqrt(C)
    for _ in range(120):
        a, b = low + (high - low) * 0.382, low + (high - low) * 0.618
        low, high = (low, b) if at(a)[0] < at(b)[0] else (a, high)
    return (low + high) / 2, at((low + high) / 2)[1]


def classified(model, seed_law, test):
    y = np.where(seed_law.has_more_ones, 1.0, -1.0)
    w, b = minimum(outputs(model, seed_law), y, 1000.0)
    said = w * outputs(model, test) + b >= 0
    return Fraction(int((said == test.has_more_ones).sum()), test.size)


@pytest.mark.parametrize("seed", range(4))
def test_the_bracket_holds_what_a_plain_minimiser_finds(seed, monkeypatch):
    monkeypatch.setattr(svc, "WIDEST", 1.0)
    head, model = one_dimensional_head(seed)
    found = classified(model, TRAINING, TEST)
    for rounds in (12, 150):
        bracket = svc.svc(head, TRAINING, TEST, rounds)
        assert bracket.low <= found <= bracket.high
    assert bracket.high - bracket.low < Fraction(1, 10)


def test_planted_a_gap_left_out_is_caught(monkeypatch):
    """Planted: a fit that stops early and calls itself exact puts the classifier outside some bracket."""
    real = svc.fit
    monkeypatch.setattr(svc, "fit", lambda r, y, rounds: (*real(r, y, 4)[:2], 1e-12))
    outside = 0
    for seed in range(6):
        head, model = one_dimensional_head(seed)
        bracket, found = svc.svc(head, TRAINING, TEST), classified(model, TRAINING, TEST)
        outside += bracket.low is not None and not bracket.low <= found <= bracket.high
    assert outside


def by_every_threshold(w01, w02, values, law):
    weights = (w01, Fraction(1), Fraction(0) if w02 is None else w01 / w02)
    outs, free = [], 0
    for n, more in zip(law.triples.tolist(), law.has_more_ones.tolist(), strict=True):
        D = sum(a * b for a, b in zip(n, weights, strict=True))
        if D == 0:
            free += 1
            continue
        outs.append((sum(a * b * v for a, b, v in zip(n, weights, values, strict=True)) / D, more))
    best = 0
    for x in {x for x, _ in outs}:
        for side in (lambda o, x=x: o > x, lambda o, x=x: o >= x):
            right = sum(side(o) == more for o, more in outs)
            best = max(best, right, len(outs) - right)
    return Fraction(best + free, law.size)


@pytest.mark.parametrize("law", ["box:0:3:3", "box:2:5:4", "box:1:3:0"])
def test_the_best_threshold_is_the_best_of_all(law):
    law, g = law_named(law), np.random.default_rng(7)
    for _ in range(12):
        w01, w02 = (Fraction(int(g.integers(1, 9)), int(g.integers(1, 9))) for _ in range(2))
        values = [Fraction(int(g.integers(-5, 6)), int(g.integers(1, 4))) for _ in range(3)]
        for ratio in (w02, None):
            assert best_share(w01, ratio, values, law) == by_every_threshold(w01, ratio, values, law)


def test_accuracy_is_one_exactly_beyond_the_diagram():
    law, values = law_named("box:3:8:6"), (Fraction(-1), Fraction(1), Fraction(2, 3))
    for w01, factor in product((Fraction(1, 3), Fraction(1), Fraction(5)), (Fraction(1), Fraction(101, 100))):
        least = least_w02(w01, values, (3, 8, 6))
        assert (best_share(w01, least * factor, values, law) == 1) is (factor > 1)


def test_numbers_beyond_the_integers_are_refused():
    with pytest.raises(BadInput):
        best_share(Fraction(10**14), Fraction(1, 10**14), [Fraction(k) for k in range(3)], TRAINING)
