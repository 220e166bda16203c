"""Two layers in a dtype: no order of evaluation goes below a margin that is proved for all, mutated or built."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest
import torch
from command import as_json
from models.selection import every
from planted import planted

from constructions import addition, addition_arrays
from constructions.adder.digits import Digits
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.evaluation import Evaluation, rounded_model
from verify.arithmetic.margins import margins_of
from verify.arithmetic.readings import reading_of
from verify.arithmetic.rounding import add, rounded
from verify.frame.clock import Deadline
from verify.frame.decide import Effort, certify
from verify.tasks.addition import induction, readout
from verify.tasks.addition.rounded import logits
from verify.tasks.addition.task import DigitAddition

SIZES = [(1, 2), (2, 2), (3, 2), (1, 3), (2, 3), (1, 5)]
ORDERS = ("left to right", "random", "upwards", "downwards", "small first", "large first")
BUILT = [(2, 2, "p12"), (1, 3, "p13"), (3, 2, "float32"), (1, 5, "tf32")]


def mutated(n, B, seed):
    """Built weights, one or three numbers changed in all but every fourth."""
    rng, model = random.Random(seed), addition.two_layers(n=n, B=B)
    with torch.no_grad():
        for _ in range(rng.choice([1, 1, 3]) if seed % 4 else 0):
            W = rng.choice([W for W in model.parameters() if W.numel()])
            W[tuple(rng.randrange(s) for s in W.shape)] += rng.choice([0.01, -0.03, 0.3, -1.0, 2.0])
    return DigitAddition(model, Digits(n, B))


@cache
def least_computed(n, B, seed, precision, accumulate=None):
    """The least margin over all pairs, in some orders of evaluation."""
    problem, reading = mutated(n, B, seed), reading_of(precision, accumulate)
    pairs = list(problem.inputs())
    found = [
        problem.rounded_margins(pairs, Evaluation(reading.format, reading.accumulate, order, fused=fused, seed=seed))
        for order in ORDERS
        for fused in (False, True)
    ]
    return float(np.min([np.nan_to_num(x, nan=-np.inf).min() for x in found]))


def decided(problem, precision, accumulate=None):
    return certify(problem, reading_of(precision, accumulate), Effort(1.0))


@pytest.mark.parametrize(("n", "B", "precision"), every(2, BUILT))
def test_built_weights_are_proved_below_what_any_order_computes(n, B, precision):
    found = decided(mutated(n, B, 0), precision)
    assert found.verdict == "PROVED" and found.inputs_covered == B ** (2 * n)
    assert 0.2 < found.margin <= least_computed(n, B, 0, precision)


@pytest.mark.parametrize(("n", "B"), every(3, SIZES))
@pytest.mark.parametrize("precision", every(2, ["p11", "float32"]))
def test_mutated_weights_are_never_proved_wrongly(n, B, precision):
    for seed in range(1, 7):
        problem = mutated(n, B, seed)
        found = decided(problem, precision)
        if found.verdict == "PROVED":
            assert found.margin <= least_computed(n, B, seed, precision), seed
        elif found.verdict == "REFUTED":
            assert found.margin <= 0 and "order" in found.counterexample


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_does_not_go_below(dtype, device):
    for n, B in SIZES[1:4]:
        problem = DigitAddition(addition.two_layers(n=n, B=B, dtype=dtype), Digits(n, B))
        found = decided(problem, str(dtype).removeprefix("torch."))
        assert found.verdict == "PROVED"
        tokens, right = problem._written(list(problem.inputs()))
        with torch.no_grad():
            logits = problem.model.to(device)(torch.from_numpy(tokens).to(device))[:, 2 * n + 1 :]
        assert found.margin <= margins_of(logits.double().cpu().numpy(), right).min()


def test_wider_sums():
    found = decided(mutated(2, 2, 0), "p12", "float32")
    assert found.verdict == "PROVED" and found.margin <= least_computed(2, 2, 0, "p12", "float32")


def test_long_numbers_in_float32():
    found = decided(DigitAddition(addition.two_layers(n=12), Digits(12)), "float32")
    assert found.verdict == "PROVED" and found.margin > 0.499 and found.inputs_covered == 10**24


def test_few_bits_prove_nothing():
    assert decided(mutated(2, 3, 0), "p5").verdict != "PROVED"


def test_what_meets_or_overflows_is_left_open():
    meets = mutated(1, 3, 0)
    with torch.no_grad():
        meets.model.positions[0, addition_arrays.DIGIT] = 0.3
    assert decided(meets, "float32").verdict != "PROVED"
    large = mutated(1, 3, 0)
    with torch.no_grad():
        large.model.W_out *= 2.0**14
        large.model.b_out *= 2.0**14
    assert decided(large, "float16").verdict != "PROVED"


def cancelling(where, K):
    """Built weights that read thirds, to which K is added, and taken away after it was rounded."""
    model = addition.two_layers(n=1, B=3)
    columns, answers, second = range(5, 7), 7, 8  # lanes of the builder
    with torch.no_grad():
        layer = model.blocks[0]
        if where == "readout":
            model.W_out /= 3
            model.b_out /= 3
            model.W_out[answers] += K
            model.b_out -= K
        if where == "factors":  # of 14 bits: in tf32 they are 1
            model.positions[3:, answers] = 1 + 2.0**-13 + 2.0**-12
            model.W_out[answers, 1:] += K
            model.b_out[1:] -= K * (1 + 2.0**-13 + 2.0**-12)
        if where == "neurons":
            layer.W_1 /= 3
            layer.b_1 /= 3
            layer.W_2 *= 3
            layer.W_1[second] += K
            layer.W_1[answers] += K
            layer.b_1 -= K
        if where == "uniform":
            layer.W_Q.zero_()
        if where in ("values", "uniform"):
            layer.W_V /= 3
            layer.W_O *= 3
            for column in columns:
                layer.W_V[0, column, 0] += K
            for q in (1, 3, 4):  # "+", the second digit is at 2, and where answers are due
                model.positions[q, addition_arrays.SUM] -= 6 * K
            model.positions[2, addition_arrays.SUM] -= 6 * K
    return DigitAddition(model, Digits(1, 3))


@cache
def least_cancelling(where, K, precision):
    problem, reading = cancelling(where, K), reading_of(precision)
    orders = [Evaluation(reading.format, None, order) for order in ORDERS]
    return min(float(problem.rounded_margins(list(problem.inputs()), at).min()) for at in orders)


HARD = [("readout", 2000.3, "p13"), ("neurons", 100.3, "p14"), ("values", 40.3, "p14"), ("factors", 2048.0, "tf32")]


def bound(where, K, precision):
    """What the induction says of the margin, be it above zero or not."""
    fmt, problem = reading_of(precision).format, cancelling(where, K)
    found = induction.margins(rounded_model(problem.model, fmt), problem.sums, RoundedArithmetic.of(fmt))
    return float(min(found.values()))


def is_too_much():
    return any(bound(*case) > least_cancelling(*case) for case in HARD) or not (averages_hold() and streams_hold())


def averages_hold():
    """Whether computed averages of a softmax are within what is said of them, on drawn scores and values."""
    rng = np.random.default_rng(5)
    for precision in ("p9", "p10"):
        fmt = reading_of(precision).format
        arithmetic = RoundedArithmetic.of(fmt)
        for trial in range(60):
            keys = int(rng.integers(2, 9))
            scores = -np.rint(rng.integers(0, 20, keys) / 2.0) * (trial % 3 > 0)
            scores += rng.random(keys) * (trial % 2)
            scores, values = rounded(scores, fmt), rounded(rng.normal(size=keys), fmt)
            off = induction._blurred(Ball.exact(scores[None]), arithmetic, np.ones((1, keys), dtype=bool)).rad[0]
            least, most = extremes(scores, values, off)
            error = induction.off_average(arithmetic, 16, keys, 0.0, float(np.abs(values).max()))
            for order in ORDERS:
                at = Evaluation(fmt, None, order, seed=trial)
                computed = float(at.product(at.softmax(scores[None]), values[:, None])[0, 0])
                if not least - error <= computed <= most + error:
                    return False
            apart = add(scores, -scores.max(keepdims=True), fmt) - (scores - scores.max())
            if (np.abs(apart) > off).any():
                return False
    return True


def streams_hold():
    """Whether what orders compute of the stream after layer 1 is where it is said to be."""
    for where, K in (("neurons", 100.3), ("values", 40.3), ("uniform", 900.7)):
        fmt, problem = reading_of("p12").format, cancelling(where, K)
        model, sums = rounded_model(problem.model, fmt), problem.sums
        streams = induction._after_layer_1(model, sums, RoundedArithmetic.of(fmt), Deadline.never())
        tokens, pairs = problem._written(list(problem.inputs()))[0], list(problem.inputs())
        for order in ORDERS:
            computed = after_layer_1(model, tokens, Evaluation(fmt, None, order))
            for x, (a, b) in zip(computed, pairs, strict=True):
                said = [(streams.second[0, a + b], x[sums.second(0)]), (streams.query[0, a + b], x[sums.query(0)]),
                        (streams.query[1, 0], x[sums.query(1)])]  # fmt: skip
                if not all(((ball.lower <= y) & (y <= ball.upper))[1:].all() for ball, y in said):  # but the digit
                    return False
    return True


def after_layer_1(model, tokens, at):
    """The streams (pairs, positions, d) after layer 1, as logits that are read by the identity."""
    d, layer = model.E.shape[1], model.blocks[0]
    shorter = addition.AdderTransformer(
        tokens=len(model.E), length=model.length, classes=d, d=d, d_h=layer.W_Q.shape[2], p=(3,), dtype=torch.float64
    )
    weights = {name: value for name, value in model.state_dict().items() if "layers.1" not in name}
    shorter.load_state_dict({**weights, "W_out": torch.eye(d, dtype=torch.float64), "b_out": torch.zeros(d)})
    return logits(shorter, tokens, at)


def extremes(scores, values, off):
    """The least and the largest average of values whose scores are each off by at most this."""
    found = []
    for cut in np.argsort(values):
        for sign in (-1, 1):
            weights = np.exp(scores + sign * off * np.where(values <= values[cut], 1.0, -1.0))
            found.append(weights @ values / weights.sum())
    found.append(np.exp(scores) @ values / np.exp(scores).sum())
    return min(found) - 1e-12, max(found) + 1e-12


def test_nothing_is_too_much_without_a_fault():
    assert not is_too_much()


FAULTS = [
    (induction, "off_average", "(growth + 24 * small) * size", "0.0 * size"),
    (induction, "_blurred", "found.off + np.where(found.is_top, 0.0, off * INFLATION)", "scores.rad"),
    (induction, "_decided", "if at.rounds else None", "if False else None"),
    (readout, "sum_error", "if arithmetic.rounds_factors else 0.0", "if False else 0.0"),
    (induction, "_after_neurons", "if not at.rounds:", "if True:"),
    (induction, "_after_layer_1", "off += _off_averages(shares, each, seen, at)", "off += 0"),
]


@pytest.mark.parametrize(("owner", "name", "right", "wrong"), every(8, FAULTS))
def test_planted_faults_are_caught(owner, name, right, wrong):
    """With the fault more is certified than some order computes, or an average is not within its bound."""
    with planted(owner, name, right, wrong):
        assert is_too_much()


def test_the_command_in_a_dtype(capsys):
    code, out = as_json(capsys, "addition", "--digits", "3", "--layers", "2", "--precision", "float32")
    assert code == 0 and out["verdict"] == "PROVED" and out["claim"] == "W-E4.3" and out["inputs_covered"] == "1000000"


def test_an_average_with_what_is_infinite_is_anything():
    """0 inf is no number, which min and max leave out where another number comes first."""
    start = induction.Mix((0.0, 1.0), (0.0, 0.0))
    heavy = start.plus((-1e3, -1e3), (-math.inf, math.inf))
    assert heavy.output == start.hull(heavy).output == (-math.inf, math.inf)
