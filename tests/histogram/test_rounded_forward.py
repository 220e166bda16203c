"""The rounded forward run against fractions, against torch, and order against order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from models.random_models import random_model
from models.selection import every, first
from oracles.rounded import LeftToRight

from constructions import relation_counting
from constructions.histogram import MODELS
from verify.arithmetic.evaluation import ORDERS, Evaluation, square_root
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import divide
from verify.tasks.histogram.rounded.forward import Scores, logits, margins
from verify.tasks.histogram.stored import StoredModel


def tokens_for(module, seed, n=4):
    return np.random.default_rng(seed).integers(0, module.T, (n, module.L))


@pytest.mark.parametrize("name", first(2, ["bfloat16", "e4m3", "float32", "p30"]))
@pytest.mark.parametrize("kind", every(2, range(len(MODELS))))
def test_left_to_right_is_what_fractions_say(kind, name):
    fmt = format_named(name)
    for seed in range(kind, kind + 24, 6):
        module = random_model(seed)
        tokens = tokens_for(module, seed, n=2)
        for is_fused in (False, True):
            got = logits(StoredModel.of(module), tokens, Evaluation(fmt, fused=is_fused))
            reference = LeftToRight(fmt, is_fused)
            for n, sequence in enumerate(tokens.tolist()):
                assert [[Fraction(v) for v in row] for row in got[n].tolist()] == reference.logits(module, sequence)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_fused", [False, True])
def test_whole_numbers_have_one_sum_in_every_order(order, is_fused):
    module = relation_counting.bos(T=4, L=4, dtype=torch.bfloat16)
    tokens = tokens_for(module, 0, n=50)
    got = logits(StoredModel.of(module), tokens, Evaluation(FORMATS["bfloat16"], order=order, fused=is_fused))
    assert np.array_equal(got, module(torch.from_numpy(tokens)).double().detach().numpy())


def test_each_order_of_a_sum():
    """256 and 300 ones: bfloat16 has no 257."""
    terms = np.array([256.0, *[1.0] * 300])

    def total(order, accumulate="bfloat16"):
        return Evaluation(FORMATS["bfloat16"], FORMATS[accumulate], order).dot(terms, np.ones(1)).item()

    assert total("left to right") == total("large first") == total("descending") == 256
    assert total("right to left") == total("small first") == total("ascending") == 512
    assert total("pairwise") in (552.0, 556.0, 560.0)
    assert 256 <= total("random") <= 560
    assert total("left to right", "float32") == 556


@pytest.mark.parametrize("name", ["bfloat16", "p4", "float32"])
def test_zeros_between_the_terms_leave_every_sum_term_by_term_as_it_is(name):
    rng, fmt = np.random.default_rng(5), format_named(name)
    x, y = (Evaluation(fmt).tensor(rng.standard_normal((40, 6)) * 2.0 ** rng.integers(-9, 9, (40, 6))) for _ in "xy")
    x[3, 2], y[3, 2], x[4, 1], y[5] = np.inf, 0.0, np.nan, 0.0  # no number; no number; no term at all
    places = np.sort(rng.permuted(np.tile(np.arange(50), (40, 1)), axis=1)[:, :6])
    wide = np.zeros((2, 40, 50))
    np.put_along_axis(wide[0], places, x, -1)
    np.put_along_axis(wide[1], places, y, -1)
    for order in set(ORDERS) - {"pairwise", "random"}:
        for options in ({}, {"fused": True}, {"flush": True}):
            at = Evaluation(fmt, None, order, **options)
            with np.errstate(all="ignore"):
                assert np.array_equal(at.dot(*wide), at.dot(x, y), equal_nan=True), (order, options)


@pytest.mark.parametrize("kind", ["dot", "bos+sftm"])
def test_a_score_is_that_of_its_query_and_its_key(kind):
    module = random_model(MODELS.index(kind))
    model, tokens = StoredModel.of(module), tokens_for(module, 1, n=6)
    for order in set(ORDERS) - {"random"}:
        at = Evaluation(FORMATS["bfloat16"], None, order, fused=order in ("upwards", "ascending"))
        x = context = model.E[tokens]
        if model.e_BOS is not None:
            context = np.concatenate([np.broadcast_to(model.e_BOS, (len(x), 1, model.d)), x], axis=1)
        products = at.product(at.product(x, model.W_Q), np.swapaxes(at.product(context, model.W_K), -1, -2))
        expected = at.tensor(at(divide, products, square_root(model.d, at.inner)))
        assert np.array_equal(Scores.of(model, np.unique(tokens), at).mixing(tokens), expected)


def test_driven_orders_bracket_left_to_right():
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((2, 200, 8))
    fmt = FORMATS["e4m3"]
    low, middle, high = (Evaluation(fmt, order=o).dot(x, y) for o in ("downwards", "left to right", "upwards"))
    assert low.mean() < middle.mean() - 0.02 and high.mean() > middle.mean() + 0.02


def test_accumulation_in_float32_rounds_at_the_end_of_a_product():
    module = random_model(8)
    evaluation = Evaluation(FORMATS["bfloat16"], FORMATS["float32"])
    got = logits(StoredModel.of(module), tokens_for(module, 1), evaluation)
    assert np.array_equal(got, evaluation.tensor(got))
    x, y = np.random.default_rng(0).standard_normal((2, 5, 40)).astype(np.float32)
    x, y = (torch.from_numpy(v).bfloat16() for v in (x, y))
    exact = (x.double() * y.double()).sum(-1).numpy()
    product = evaluation.product(x.double().numpy()[:, None, :], y.double().numpy()[:, :, None])[:, 0, 0]
    assert np.abs(product - exact).max() <= np.abs(exact).max() * 2.0**-8 + 1e-4
    assert np.array_equal(product, torch.tensor(product).bfloat16().double().numpy())


def test_tf32_rounds_only_the_factors():
    evaluation = Evaluation(FORMATS["tf32"])
    x = np.array([[1 + 2.0**-11 + 2.0**-20]])
    assert evaluation.product(x, np.ones((1, 1))).item() == 1 + 2.0**-10
    assert evaluation.tensor(x).item() == x.item()


def test_flushing_and_reciprocals():
    module = relation_counting.dot(T=3, L=3)
    with torch.no_grad():
        module.W_2 *= 1e-40
        module.b_2 *= 1e-40
    model, tokens = StoredModel.of(module), tokens_for(module, 0)
    assert not logits(model, tokens, Evaluation(FORMATS["float32"], flush=True)).any()
    assert (margins(model, tokens, Evaluation(FORMATS["float32"])) > 0).all()
    model = StoredModel.of(relation_counting.dot(T=3, L=3))
    assert (margins(model, tokens, Evaluation(FORMATS["float32"], reciprocal=True)) > 0).all()


def test_what_is_not_finite_is_no_margin():
    module = relation_counting.dot(T=3, L=3, dtype=torch.float64)
    with torch.no_grad():
        module.W_1 *= 1e300
    assert np.isnan(margins(StoredModel.of(module), tokens_for(module, 0), Evaluation(FORMATS["float16"]))).all()


def test_random_orders_repeat_by_seed_and_differ_between_seeds():
    module = random_model(3)
    model, tokens = StoredModel.of(module), tokens_for(module, 0)
    runs = [logits(model, tokens, Evaluation(FORMATS["e4m3"], order="random", seed=s)) for s in (1, 1, 2, 3, 4)]
    assert np.array_equal(runs[0], runs[1])
    assert any(not np.array_equal(runs[0], other) for other in runs[2:])


def test_square_roots_are_rounded_once():
    for p in (4, 27, 40, 52):
        fmt = format_named(f"p{p}")
        for d in (2, 3, 5, 32, 1000):
            root = Fraction(float(square_root(d, fmt)[0]))
            half = Fraction(2) ** (int(np.floor(np.log2(float(root)))) - p)
            assert (root - half) ** 2 <= d <= (root + half) ** 2
