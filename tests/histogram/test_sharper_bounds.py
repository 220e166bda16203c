"""The sharper rules against an adversary that shares nothing with the certifier, at the edge of what they certify."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from models.selection import first
from oracles.any_order import Adversary
from oracles.every_sum import every_sum
from planted import planted

from constructions import inventory_counting, relation_counting
from constructions.coded_relation import signed_simplex, softmax_code, tagged_softmax_code
from constructions.codes import tokens as token_codes
from constructions.histogram import HistogramTransformer
from verify.arithmetic import softmax
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import FORMATS, format_named
from verify.arithmetic.rounding import rounded
from verify.frame.certificate import Verdict
from verify.tasks.histogram.rounded import copies as rounded_copies
from verify.tasks.histogram.rounded.cells import cell_margins
from verify.tasks.histogram.rounded.forward import margins, rounded_model
from verify.tasks.histogram.rounded.reduction import RoundedReduction
from verify.tasks.histogram.rounded.verdict import certify
from verify.tasks.histogram.stored import StoredModel

SIZES = {"T": 3, "L": 3, "dtype": torch.float64}
EDGE = {
    "relation": lambda: relation_counting.bos_sftm(**SIZES),
    "signs": lambda: tagged_softmax_code(token_codes.signs(3), L=3, dtype="float64").module(),
    "leaking signs": lambda: tagged_softmax_code(token_codes.signs(3), L=3, dtype="float64", kappa=1.0).module(),
    "lattice": lambda: softmax_code(token_codes.lattice_circle(3), L=3, dtype="float64").module(),
    "simplex": lambda: signed_simplex("bos", T=4, L=2, dtype="float64").module(),
    "lin": lambda: inventory_counting.lin(**SIZES),
    "lin+sftm": lambda: inventory_counting.lin_sftm(**SIZES),
    "dot+sftm": lambda: inventory_counting.dot_sftm(**SIZES),
    "bos+sftm": lambda: inventory_counting.bos_sftm(**SIZES),
}
IN = [("p5", None), ("p8", "float32"), ("float16", None), ("e4m3", None), ("e4m3", "float32"), ("tf32", None)]


def certified(module, fmt, accumulate=None):
    """The rounded model, and the certified margins of the first position's cells (T, L)."""
    stored = rounded_model(StoredModel.of(module), Evaluation(fmt))
    reduction = RoundedReduction(stored, RoundedArithmetic.of(fmt, accumulate))
    return stored, cell_margins(reduction)[[0 in row.positions for row in reduction.rows].index(True)]


def broken(module, name, accumulate=None, flips=0):
    """Cells of the first position whose certified margin is above that of an evaluation; and how many were tried."""
    fmt, accumulate = format_named(name), accumulate and FORMATS[accumulate]
    stored, cells = certified(module, fmt, accumulate)
    found, tried, rng = [], 0, np.random.default_rng(0)
    adversaries = [Adversary(stored, fmt, accumulate, stores_softmax=four, ties=four) for four in (False, True)]
    for t, k in np.argwhere((cells > 0) & np.isfinite(cells)).tolist():
        others = [s for s in range(stored.T) if s != t]
        for rest in combinations_with_replacement(others, stored.L - 1 - k):
            keys = [t] * (k + 1) + list(rest) + [stored.T] * (stored.e_BOS is not None)
            right = k + 1 - stored.first_count
            for rival in {max(right - 1, 0), min(right + 1, stored.classes - 1)} - {right}:
                for adversary in adversaries:
                    for signs in [None] + [rng] * flips:
                        tried += 1
                        margin = adversary.margin(t, keys, 0, right, rival, signs)
                        if margin < Fraction(float(cells[t, k])):
                            found.append((t, k + 1, keys, float(margin), float(cells[t, k])))
    return found, tried


def squeezed(module, fmt, accumulate=None):
    """The module with the last logit raised until one more step would leave its rival cell open."""
    cells = certified(module, fmt, accumulate)[1]
    if not (cells[0] > 0).all():
        return module
    low, high, at = 0.0, float(cells[0].max()) * 4, module.b_2.detach()[-1].item()
    for _ in range(10):
        module.b_2.data[-1] = at + (low + high) / 2
        is_open = not (certified(module, fmt, accumulate)[1][0] > 0).all()
        low, high = (low, (low + high) / 2) if is_open else ((low + high) / 2, high)
    module.b_2.data[-1] = at + low
    return module


@pytest.mark.parametrize(("name", "accumulate"), first(1, IN))
def test_no_evaluation_falls_below_a_certified_margin(name, accumulate):
    tried = 0
    for build in EDGE.values():
        module = squeezed(build(), format_named(name), accumulate and FORMATS[accumulate])
        found, more = broken(module, name, accumulate)
        tried += more
        assert not found
    assert tried > 50


def sums_beyond_the_ends(name, cases=10):
    """Sums of up to four copies and two other terms, over all trees, that are not within the certified ends."""
    fmt, rng = format_named(name), np.random.default_rng(0)
    reduction = RoundedReduction(StoredModel.of(inventory_counting.lin(**SIZES)), RoundedArithmetic.of(fmt))
    beyond = 0
    for _ in range(cases):
        terms = rounded(rng.choice([-1.0, 1.0], 3) * rng.uniform(0.3, 2, 3), fmt)
        copy, *extras = [(x[None], x[None]) for x in terms]
        low, high = rounded_copies._ends_of_sums(reduction, copy, extras, 4)
        for copies in range(5 if fmt.p < 6 else 4):
            sums = np.array(list(every_sum((float(terms[0]),) * copies + tuple(terms[1:].tolist()), fmt)))
            beyond += int(((sums < low[copies]) | (sums > high[copies])).sum())
    return beyond


@pytest.mark.parametrize("cases", first(1, [4, 10, 25]))
@pytest.mark.parametrize("name", first(2, ["p3", "bfloat16", "p5", "e4m3"]))
def test_the_ends_of_sums_of_copies_hold_all_orders(name, cases):
    assert not sums_beyond_the_ends(name, cases)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "lows.min(0), -np.inf), np.nextafter(highs.max(0)",
            "lows[0], -np.inf), np.nextafter(highs[0]",
        ),  # one way of splitting the sum
        ("ends(reduction.at.result(Ball.between(least, greatest)))", "(least, greatest)"),  # no rounding
    ],
)
def test_ends_of_sums_that_miss_an_order_are_found(right, wrong):
    with planted(rounded_copies, "_ends_of_sums", right, wrong):
        assert sums_beyond_the_ends("p5", 3)


def subnormal_copies():
    """The weight is 16 and the token's own coordinate, which is what the neuron reads, subnormal in e4m3."""
    module = HistogramTransformer("lin", T=2, L=1, d=1, p=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        module.E[0], module.A[:], module.W_1[:] = 2.0**-7, 16.0, 4.0
        module.W_2[0], module.b_2[1] = torch.tensor([1.0, 0.0]), 0.25
    return module


def test_an_embedding_that_is_flushed_where_it_is_read():
    module = subnormal_copies()
    fmt = FORMATS["e4m3"]
    assert not broken(module, "e4m3")[0]
    assert certify(module, fmt=fmt, budget=1).verdict is not Verdict.PROVED
    with planted(rounded_copies, "_term", "ends(reduction.operand(value))", "[value]"):
        assert broken(module, "e4m3")[0]


def one_key_more(kind, score, value):
    """The right logit is the weight of BOS, whose score is given, times its value; the own score is 0."""
    module = HistogramTransformer(kind, T=2, L=2, d=4, p=1, classes=2, dtype=torch.float64)
    with torch.no_grad():
        module.E[:, :2], module.e_BOS[2:] = torch.eye(2), torch.tensor([1.0, value])
        module.W_K[:] = torch.eye(4)
        module.W_Q[:2, 2] = 2 * score
        module.W_1[3], module.W_2[0, 0] = 1.0, 1.0
    return module


def test_a_key_that_is_wrongly_called_the_largest_is_found():
    models = [one_key_more("bos+sftm", score, 1.0) for score in (0.0, 0.5, 1.0, 2.0, 3.0)]
    runs = [(model, bits) for model in models for bits in ("p3", "p4", "p5")]
    assert not any(broken(module, bits)[0] for module, bits in runs)
    with planted(softmax.Arguments, "of", "(scores.mid == top)", "(scores.mid <= top)"):
        assert any(broken(module, bits)[0] for module, bits in runs)


@pytest.mark.parametrize("L", [1022, 1023, 1500])
def test_long_sequences_do_not_overflow(L):
    at = RoundedArithmetic.of(FORMATS["float32"])
    assert softmax.total_error(at, L, 1.0, np.array([0.5, 0.0]), True).tolist() == [at.growth(L - 1, 0), 0]


def test_a_sum_of_ones_that_loses_many_small_terms_is_found():
    """1 + x + ... + x from left to right stays 1 where x is below half a unit, and the own weight is too large."""
    L, fmt = 64, format_named("p8")
    module = HistogramTransformer("dot+sftm", T=2, L=L, d=4, p=1, dtype=torch.float64)
    with torch.no_grad():
        module.E[0, 0] = module.E[1, 1] = 1.0
        module.W_Q[0, 0], module.W_K[1, 0] = 2.0, -5.625  # the other token has exp(-5.625) = 0.0036 < 2^-8
        module.W_1[0], module.b_1[0] = 1.0, -1.0  # the neuron reads the own weight
        module.W_2[0, 0], module.b_2[0], module.b_2[1] = -1.0, 4.0, 3.0
    stored = rounded_model(StoredModel.of(module), Evaluation(fmt))
    run = margins(stored, np.array([[0] + [1] * (L - 1)]), Evaluation(fmt, order="left to right"))[0, 0]

    def certified():
        return cell_margins(RoundedReduction(stored, RoundedArithmetic.of(fmt)))[0, 0, 0]

    assert run == 0 and not certified() > 0
    with planted(softmax, "total_error", "np.ldexp(others,", "np.ldexp(0 * others,"):
        assert certified() > 0
