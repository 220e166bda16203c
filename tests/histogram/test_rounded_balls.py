"""Every intermediate of a run lies within its certified ball, and five ways in which balls were too small."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from models.random_models import random_model
from models.selection import first

from constructions import relation_counting
from constructions.histogram import HistogramTransformer
from verify.arithmetic import softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.evaluation import Evaluation, square_root
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import add, divide, multiply
from verify.frame.certificate import Verdict
from verify.tasks.histogram.reduction import slot_groups
from verify.tasks.histogram.rounded.coordinate import sharper_ends
from verify.tasks.histogram.rounded.forward import rounded_model
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.rounded.refutation import evaluations
from verify.tasks.histogram.rounded.verdict import certify, is_finite
from verify.tasks.histogram.stored import StoredModel

NAMES = ("p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "tf32", "e4m3", "float16")


def intermediates(model, tokens, at):
    """Queries, keys, scores, weights, x' and h (ReLU applied) of every position, each as it is stored."""
    x = context = model.E[tokens]
    found = {}
    if model.e_BOS is not None:
        context = np.concatenate([np.broadcast_to(model.e_BOS, (len(x), 1, model.d)), x], axis=1)
    if model.A is not None:
        weights = np.broadcast_to(model.A, (len(x), *model.A.shape))
    else:
        found["queries"], found["keys"] = at.product(x, model.W_Q), at.product(context, model.W_K)
        scores, root = at.product(found["queries"], np.swapaxes(found["keys"], -1, -2)), square_root(model.d, at.inner)
        reciprocal = divide(np.ones(1), root, at.inner)
        found["scores"] = weights = at.tensor(
            at(multiply, scores, reciprocal) if at.reciprocal else at(divide, scores, root)
        )
    if model.is_softmax:
        weights = at.softmax(weights)
    found["weights"] = weights
    found["x'"] = at.tensor(at(add, x, at.product(weights, context)))
    found["h"] = np.maximum(at.tensor(at(add, at.product(found["x'"], model.W_1), model.b_1)), 0)
    return found


def certified_balls(reduction, tokens):
    """The balls of the same for one sequence; a neuron's (low, high) as a factor of the readout."""
    stored, at = reduction.stored, reduction.at
    BOS = [stored.T] if stored.e_BOS is not None else []
    keys, E = [*BOS, *tokens], reduction.operand(reduction.embeddings)
    found = {}
    if stored.A is None:
        found["queries"] = reduction.at.product(E[tokens], reduction.operand(stored.W_Q))
        found["keys"] = reduction.at.product(E[keys], reduction.operand(stored.W_K))
        found["scores"] = reduction.scores[tokens][:, keys]
    weights = reduction.attention[tokens][:, keys] if stored.A is None else reduction.mixing
    D = np.ones((len(tokens), 1))
    if stored.is_softmax:
        row = reduction.normaliser[tokens][:, keys] if stored.A is None else softmax.weights(Ball.exact(stored.A))
        D = row.mid.sum(-1, keepdims=True)
    found["weights"] = Ball(weights.mid / D, weights.rad / D * (1 + 2.0**-40) + 2.0**-50 * np.abs(weights.mid / D))
    x, mixed = np.abs(stored.E[tokens]), reduction.mixed
    slots = found["weights"] @ E[keys]
    size = found["weights"].magnitude @ E[keys].magnitude
    flushed = at.flush_loss(stored.E[tokens])
    rad = slots.rad + size * mixed.slot_error + x * mixed.residual_error + mixed.lost + flushed
    found["x'"] = Ball(slots.mid + stored.E[tokens], (rad + 2.0**-50 * (size + x)) * (1 + 2.0**-30))
    ends = []
    for position, token in enumerate(tokens):
        row = next(row for row in reduction.rows if position in row.positions)
        tables = reduction.tables(row, token, token + 1)
        total, own, others = tables.of_token(token)
        for g, group in enumerate(slot_groups(stored, position)):
            for m in group:
                total = total + (own if tokens[m] == token else others[tokens[m]]) * row.weight[g]
        p = stored.p
        low, high = np.maximum(total.lower[:p], 0) / total.upper[p], np.maximum(total.upper[:p], 0) / total.lower[p]
        ends.append(at.factors(low * (1 - 2.0**-50), high * (1 + 2.0**-50)))
    return found, np.array(ends)


@pytest.mark.parametrize("name", first(1, NAMES))
def test_every_computed_number_is_in_its_ball(name):
    """Random models, in every evaluation order in turn: queries, keys, scores, weights, x' and hidden neurons."""
    fmt, rng, judged = format_named(name), np.random.default_rng(NAMES.index(name)), 0
    for seed in range(1000 * NAMES.index(name), 1000 * NAMES.index(name) + 45):
        module = random_model(seed)
        accumulate = FORMATS["float32"] if seed % 3 == 0 and name != "tf32" else None
        arithmetic = RoundedArithmetic.of(fmt, accumulate)
        with torch.no_grad():  # some with scores and readings near the subnormal numbers
            if seed % 4 == 3:
                module.E *= 2.0 ** -int(rng.integers(4, 9))
        stored = rounded_model(StoredModel.of(module), Evaluation(fmt))
        if not is_finite(stored):
            continue
        sequences = rng.integers(stored.T, size=(3, stored.L))
        with np.errstate(all="ignore"):
            reduction = RoundedReduction(stored, arithmetic)
            if not reduction.is_finite:
                continue
            balls = [certified_balls(reduction, tokens.tolist()) for tokens in sequences]
            for evaluation in list(evaluations(fmt, accumulate, stored))[seed % 4 :: 4]:
                runs = intermediates(stored, sequences, replace(evaluation))
                for i, (found, ends) in enumerate(balls):
                    for key, ball in found.items():
                        inside = (ball.lower <= runs[key][i]) & (runs[key][i] <= ball.upper)
                        assert (inside | ~np.isfinite(ball.rad)).all(), (seed, key, evaluation)
                        judged += int(np.isfinite(ball.rad).sum())
                    h = runs["h"][i]
                    is_open = ~np.isfinite(ends).all(1)
                    assert (is_open | ((ends[:, 0] <= h) & (h <= ends[:, 1]))).all(), (seed, evaluation)
    assert judged > 1000


def stub(fmt):
    """A reduction of which only the arithmetic is used."""
    reduction = RoundedReduction.__new__(RoundedReduction)
    reduction.at = RoundedArithmetic.of(fmt)
    return reduction


def test_softmax_weights_are_rounded_to_factors_not_their_multiples():
    """tf32: the weight 1/3 is cut to 11 bits, though 3 times 1/3 is a number of 11 bits; [1, 0, 0] then ties."""
    e, tau = 0.75048828125, 0.0628662109375
    module = HistogramTransformer("lin+sftm", T=2, L=3, d=1, p=2, dtype=torch.float64)
    with torch.no_grad():
        module.E[0, 0] = e
        module.W_1[:] = torch.tensor([[1.0, -1.0]])
        module.b_1[:] = torch.tensor([-1.3 * e, 0.75 * e], dtype=torch.float64)
        module.W_2[:] = torch.tensor([0.0, 1.0, 2.0])
        module.b_2[:] = torch.tensor([0.0, -tau, -tau - 7 * e / 12], dtype=torch.float64)
    certificate = certify(module, fmt=FORMATS["tf32"])
    assert certificate.verdict is Verdict.REFUTED and certificate.counterexample["is_tie"]


def test_a_token_below_the_normal_numbers_may_be_flushed_where_nothing_is_mixed():
    module = HistogramTransformer("lin", T=2, L=1, d=1, p=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        module.E[:], module.W_1[:], module.W_2[0, 0], module.b_2[1] = 2.0**-8, 16, 1, 2.0**-5
    certificate = certify(module, fmt=FORMATS["e4m3"])
    assert certificate.verdict is Verdict.REFUTED and "flushed" in certificate.counterexample["order"]
    stored = rounded_model(StoredModel.of(module), Evaluation(FORMATS["e4m3"]))
    reduction = RoundedReduction(stored, RoundedArithmetic.of(FORMATS["e4m3"]))
    cells, first = (np.array([0]), np.array([0]), np.array([0])), reduction.rows[0]
    ends = np.zeros(1), np.full(1, np.inf)
    low, high = sharper_ends(reduction, first, 0, 1, cells, ends)
    assert low[0] <= 0 and high[0] >= 2.0**-4  # flushed, and kept


@pytest.mark.parametrize("build", [relation_counting.dot, relation_counting.bos])
def test_an_overflow_that_no_neuron_reads_is_not_proved(build):
    """Two times 60000 is infinite in float16, and infinity times the zeros of W_1 is NaN."""
    module = build(T=2, L=2, d=3, dtype=torch.float64)
    assert certify(module, fmt=FORMATS["float16"]).verdict is Verdict.PROVED
    with torch.no_grad():
        module.E[:, 2] = 60000.0
        module.W_Q[2], module.W_K[2], module.W_1[2] = 0, 0, 0
    assert certify(module, fmt=FORMATS["float16"], budget=1).verdict is Verdict.REFUTED
    assert certify(module, fmt=FORMATS["bfloat16"], budget=1).verdict is not Verdict.REFUTED


@pytest.mark.parametrize("products", first(1, [12, 60]))
def test_a_product_of_computed_factors_is_not_exact_because_their_midpoints_are_round(products):
    """Factors 1.5 +- 2 units of p5 times whole numbers: every sum in every order lies in the ball."""
    fmt = format_named("p5")
    at, rng = Evaluation(fmt), np.random.default_rng(1)
    for _ in range(products):
        W = rng.choice([1.0, 3.0, 5.0, 7.0, -1.0, -3.0], size=(3, 1))
        x = Ball(np.full((1, 3), 1.5), np.full((1, 3), 2.0**-3))
        ball = stub(fmt).at.product(x, Ball(W, np.zeros_like(W)))
        for factors in itertools.product((1.375, 1.5, 1.625), repeat=3):
            for order in itertools.permutations(range(3)):
                places = list(order)
                computed = at.product(np.array([factors])[:, places], W[places])
                assert ball.lower[0, 0] <= computed[0, 0] <= ball.upper[0, 0]


@pytest.mark.parametrize("name", ["e4m3", "e5m2", "float16"])
def test_exponentials_below_the_normal_numbers_may_be_two_units_too_large(name):
    """Any exp within two units of its value, subnormal or flushed: the weights lie in their balls."""
    fmt, N = FORMATS[name], 2
    for score in (-16.0, -6.0, -5.0, -4.0, -12.0, -1.0):
        scores = Ball(np.array([[0.0, score]]), np.zeros((1, 2)))
        exact = softmax.weights(scores)
        ball = stub(fmt)._softmax(scores, exact, np.array([0]), N)
        value = math.exp(score)
        unit = 2.0 ** max(math.floor(math.log2(value)), fmt.smallest_exponent) * 2 * fmt.u
        around = np.floor(value / unit) * unit + unit * np.arange(-1, 3)
        for computed in [*around[(np.abs(around - value) <= 2 * unit) & (around >= 0)], 0.0 * unit]:
            if computed == 0 and value >= fmt.tiny:
                continue
            numerator = np.array([1.0, computed])
            total = add(numerator[:1], numerator[1:], fmt)
            weights = divide(numerator, total, fmt) * (1 + value)
            assert (ball.lower[0] <= weights).all() and (weights <= ball.upper[0]).all(), (score, computed)
