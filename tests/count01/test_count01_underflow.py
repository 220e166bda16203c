"""Bounds on margins and shares hold where a weight times a value underflows, against sums with 3000 bits."""

from __future__ import annotations

import json
import sys

import mpmath
import numpy as np
import pytest
import torch
from models.selection import first

from constructions.count01 import Count01Transformer
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.formats import FORMATS
from verify.tasks.count01.boxes import BoxQuery
from verify.tasks.count01.layer_norm.bounding import BoxMargins
from verify.tasks.count01.layer_norm.numbers import model_numbers
from verify.tasks.count01.layer_norm.syntax import AfterAnswer
from verify.tasks.count01.layer_norm.tables import Differences
from verify.tasks.count01.real import exact_model
from verify.tasks.count01.task import EOS, EQUALS, FIVE, FOUR, PromptDomain, cells, kinds, multiplicities
from verify.tasks.count01.verdict import certify

TOKENS = 8


def drawn(seed):
    """One head with one-hot embeddings: scores down to -455, values and readouts with exponents down to -500."""
    rng = np.random.default_rng([5, seed])
    model = Count01Transformer(d=TOKENS, heads=1, d_h=1, skip=False)
    scores = -rng.choice([0.0, 0.0, 300.0, 400.0, 430.0, 455.0], TOKENS)
    values = rng.integers(-5, 6, TOKENS) * 2.0 ** int(rng.integers(-500, 1))
    readout = rng.integers(-5, 6, TOKENS) * 2.0 ** int(rng.integers(-500, 1))
    with torch.no_grad():
        model.E.copy_(torch.eye(TOKENS))
        model.W_Q.fill_(1.0)
        model.W_K.copy_(torch.tensor(scores).reshape(1, -1, 1))
        model.W_V.copy_(torch.tensor(values).reshape(1, -1, 1))
        model.W_O[0, 0, 0] = 1.0
        model.W_out[0] = torch.tensor(readout)
    return model, scores, values, readout


def margins(parts, n, last, expected, rivals):
    """(expected logit) - (each rival's logit) on a triple, in high precision."""
    scores, values, readout = parts
    with mpmath.workprec(2200):
        counted = [(t, k) for t, k in zip(kinds(last), multiplicities(n, last), strict=True) if k]
        weights = [k * mpmath.exp(int(scores[t])) for t, k in counted]
        mean = sum(w * mpmath.mpf(values[t]) for w, (t, _) in zip(weights, counted, strict=True)) / sum(weights)
        return [mean * (mpmath.mpf(readout[expected]) - mpmath.mpf(readout[rival])) for rival in rivals]


@pytest.mark.parametrize("models", first(1, [7, 40]))
@pytest.mark.parametrize("reading", [None, "float64"])
def test_bounds_on_boxes_are_below_every_margin(reading, models):
    spoken, at = 0, None if reading is None else RoundedArithmetic.of(FORMATS[reading])
    for seed in range(models):
        model, *parts = drawn(seed)
        exact = exact_model(model)
        for cell in cells("thesis"):
            with np.errstate(all="ignore"):
                query = BoxQuery(model, exact, cell, at)
                points = np.array([[0, 0, 0], [1, 0, 0], [0, 3, 0], [7, 2, 0], [1, 1, 5]], dtype=float)
                bounds = query.lower_bounds(points, points)
            for point, bound in zip(points.astype(int), bounds, strict=True):
                n = cell.side.at(*(int(x) for x in point))
                margin = min(margins(parts, n, cell.last, cell.expected, query.rivals))
                spoken += bool(np.isfinite(bound))
                assert not bound > margin, (seed, cell, n)
    assert spoken > 5 * models or reading == "float64"


def test_shares_of_heads_lie_within_their_radius():
    triples = np.array([[0, 0, 0], [0, 1, 0], [3, 0, 0], [2, 5, 0], [1, 1, 1]])
    counts = np.concatenate([np.ones((5, 1)), triples, np.ones((5, 1))], axis=1).astype(float)
    for seed in range(40):
        model, *parts = drawn(seed)
        numbers = model_numbers(model)
        for expected, rival in ((FOUR, FIVE), (EOS, 0)):
            score, radius = Differences(numbers, counts, expected, rival).score([0])
            for n, found in zip(triples.tolist(), score, strict=True):
                true = margins(parts, tuple(n), EQUALS, expected, [rival])[0]
                assert not abs(mpmath.mpf(float(found)) - true) > radius, (seed, n)
            side = BoxMargins(numbers, EQUALS, expected).decided(triples, triples)
            for n, said in zip(triples.tolist(), side, strict=True):
                rivals = [j for j in range(TOKENS) if j != expected]
                true = margins(parts, tuple(n), EQUALS, expected, rivals)
                assert said != 1 or min(true) > 0, (seed, n)
                assert said != -1 or min(true) < 0, (seed, n)
        after = AfterAnswer(numbers, FOUR, triples)
        score, radius = after.scores([0], 0)
        for n, found in zip(triples.tolist(), score, strict=True):
            true = margins(parts, tuple(n), FOUR, EOS, [0])[0]
            assert not abs(mpmath.mpf(float(found)) - true) > radius, (seed, n)


@pytest.mark.parametrize("skip, heads", [(True, 1), (False, 1), (False, 2)])
def test_a_margin_beyond_all_floats_is_the_last_float(skip, heads):
    """Values of 2^1000 read with 2^1000: the certificate of the failure can be saved, and is refuted by it."""
    model = Count01Transformer(d=TOKENS, heads=heads, d_h=1, skip=skip)
    with torch.no_grad():
        model.E.copy_(torch.eye(TOKENS))
        model.W_V.fill_(2.0**1000)
        model.W_O.fill_(2.0**1000)
        model.W_out[:, FIVE] = 1.0
    found = certify(model, "majority-ones", PromptDomain(max_length=2))
    said = json.loads(found.to_json())
    assert said["verdict"] == "REFUTED" and said["margin"] == -sys.float_info.max
    assert said["counterexample"]["margin"] == said["margin"]
