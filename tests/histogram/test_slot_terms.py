"""The ends of what a slot adds, found in blocks: they hold all products of exact fractions, and are not wider."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from verify.arithmetic.balls import Ball
from verify.tasks.histogram import slot_terms
from verify.tasks.histogram.slot_terms import Attended, GivenTerms


def ball(rng, *shape):
    mid = rng.normal(size=shape) * 10.0 ** rng.integers(-3, 3)
    rad = np.abs(rng.normal(size=shape)) * 10.0 ** rng.integers(-18, -1) * (rng.random(shape) < 0.8)
    return Ball(mid, rad * (rng.random() < 0.7))


def attended(rng):
    """Terms of some queries, with their tokens: with softmax or without, in blocks of any size."""
    T, p = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    start = int(rng.integers(0, T - 1))
    n = int(rng.integers(2, T - start + 1))
    residual = ball(rng, n, p) if rng.random() < 0.6 else None
    return Attended(ball(rng, n, T), ball(rng, T, p), residual), np.arange(start, start + n)


def exact_ends(x):
    return [Fraction(float(x.mid)) + sign * Fraction(float(x.rad)) for sign in (-1, 1)]


def exact_terms(terms, i, s, coordinate):
    """The extreme products of one query and token, in one linear form."""
    weight, p = exact_ends(terms.weight[i, s]), terms.features.mid.shape[1]
    if coordinate == p:
        return weight if terms.residual is not None else [Fraction(0)]
    value = exact_ends(terms.features[s, coordinate])
    if terms.residual is not None:
        value = [x + y for x in value for y in exact_ends(terms.residual[i, coordinate])]
    return [w * v for w in weight for v in value]


def check_ends(terms, tokens, method="ends"):
    (least, most), p = getattr(terms, method)(tokens), terms.features.mid.shape[1]
    for i, own in enumerate(tokens):
        for coordinate in range(p + 1):
            others = [s for s in range(terms.weight.mid.shape[1]) if s != own]
            products = [x for s in others for x in exact_terms(terms, i, s, coordinate)]
            assert Fraction(float(least[i, coordinate])) <= min(products)
            assert max(products) <= Fraction(float(most[i, coordinate]))
    return least, most


@pytest.mark.parametrize("block", [1, 8, 1 << 15])
def test_ends_hold_every_product_and_are_no_wider_than_balls(monkeypatch, block):
    monkeypatch.setattr(slot_terms, "BLOCK", block)
    rng = np.random.default_rng(block)
    for _ in range(25):
        terms, tokens = attended(rng)
        least, most = check_ends(terms, tokens)
        by_balls = GivenTerms(terms.ball).ends(tokens)
        assert (least >= by_balls[0]).all() and (most <= by_balls[1]).all()


@pytest.mark.parametrize("block", [1, 8, 1 << 15])
def test_ends_of_one_neuron_each_are_those_of_all_to_the_bit(monkeypatch, block):
    monkeypatch.setattr(slot_terms, "BLOCK", block)
    rng = np.random.default_rng(block)
    for _ in range(25):
        terms, tokens = attended(rng)
        n, p = np.arange(len(tokens)), terms.features.mid.shape[1]
        columns = rng.integers(0, p, len(tokens))
        for kind in (terms, GivenTerms(terms.ball), GivenTerms(terms.features[None])):
            last = kind.ball.mid.shape[-1] - 1
            for one, every in zip(kind.ends(tokens, columns), kind.ends(tokens), strict=True):
                assert np.array_equal(one, np.stack([every[n, columns], every[:, last]], axis=1))


def test_what_lies_around_the_ends_is_found_without_a_look_at_each_term(monkeypatch):
    """Around every exact product; planted: the next number is the number itself, and a weight's radius is left out."""
    rng = np.random.default_rng(3)
    for _ in range(100):
        check_ends(*attended(rng), "around")
    for owner, name, wrong in (
        (slot_terms.np, "nextafter", lambda x, end: x),
        (Ball, "lower", property(lambda self: self.mid)),
        (slot_terms.TwoLeast, "without", lambda self, tokens: self.second + 0 * tokens[:, None]),
    ):
        with monkeypatch.context() as patch, pytest.raises(AssertionError):
            patch.setattr(owner, name, wrong)
            for _ in range(200):
                check_ends(*attended(rng), "around")


def test_single_terms_are_those_of_all():
    rng = np.random.default_rng(1)
    for _ in range(25):
        terms, tokens = attended(rng)
        n, p = np.arange(len(tokens)), terms.features.mid.shape[1]
        for coordinate in (*range(p), -1):
            some, all_ = terms.at(n, np.full(len(n), coordinate)), terms.ball[n, :, coordinate]
            assert np.array_equal(some.mid, all_.mid) and np.array_equal(some.rad, all_.rad)
        own, all_ = terms.of_token(n, tokens), terms.ball[n, tokens]
        assert np.array_equal(own.mid, all_.mid) and np.array_equal(own.rad, all_.rad)


@pytest.mark.parametrize("missing", ["U", "rad"])
def test_a_missing_error_is_noticed(monkeypatch, missing):
    """Planted: no rounding at all, or weights that are taken as exact."""
    if missing == "U":
        monkeypatch.setattr(slot_terms, "U", -(2.0**-52))
        monkeypatch.setattr(slot_terms.np, "nextafter", lambda x, end: x)
    rng = np.random.default_rng(2)
    with pytest.raises(AssertionError):
        for _ in range(50):
            terms, tokens = attended(rng)
            if missing == "rad":
                exact = Attended(Ball.exact(terms.weight.mid), terms.features, terms.residual)
                monkeypatch.setattr(Attended, "ends", lambda self, tokens, exact=exact: bare(exact, tokens))
            check_ends(terms, tokens)


bare = Attended.ends
