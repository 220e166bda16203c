"""Modular adders whose layers are scaled by powers of two: the same function, and no verdict but its own."""

import collections
import copy
import math
import random
from fractions import Fraction

import pytest
import torch
from flint import arb, fmpq
from models.selection import every

from constructions import modular
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.exact_reals import float_below
from verify.arithmetic.outward import float_at_most
from verify.arithmetic.readings import reading_of
from verify.frame.decide import certify
from verify.tasks.addition.modular.task import ModularAddition
from verify.tasks.addition.rounded import ORDERS

MODELS = {"staircase": lambda P: modular.staircase(P=P), "clock": lambda P: modular.clock(P=P, frequencies=(1,))}


def scaled(model, values, neurons, logits):
    """Powers of two move from W_V to W_O and from W_1 to W_2; the logits are multiplied by one."""
    new = copy.deepcopy(model)
    layer = new.blocks[0]
    with torch.no_grad():
        for power, *parts in ((values, layer.W_V), (-values, layer.W_O), (neurons, layer.W_1, layer.b_1)):
            for W in parts:
                W.mul_(2.0**power)
        layer.W_2.mul_(2.0**-neurons)
        new.W_out.mul_(2.0**logits)
        new.b_out.mul_(2.0**logits)
    return new


def least_size(x):
    return min((abs(v) for v in x.double().flatten().tolist() if v), default=1.0)


def changed(model, seed):
    new, g = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        new.W_out.add_(torch.randn(new.W_out.shape, generator=g, dtype=torch.float64) * new.W_out.abs().max() / 2)
    return new


@pytest.mark.parametrize("name", MODELS)
def test_scaled_layers_have_the_verdict_of_their_function(name):
    seen, rng = collections.Counter(), random.Random(name)
    for number in range(24):
        P = rng.choice((3, 5))
        base = MODELS[name](P)
        base = changed(base, number) if number % 2 else base
        values, neurons = (rng.choice((-1000, -600, -300, -60, 0, 60, 300, 600)) for _ in range(2))
        powers = values, neurons, rng.choice((-900, 0, 800))
        model = scaled(base, *powers)
        if any(not bool(x.isfinite().all()) or least_size(x) < 2.0**-1000 for x in model.parameters()):
            continue  # a number is not held
        problem = ModularAddition(base, P)
        least = float(problem.run(list(problem.inputs())).min())
        assert abs(least) > 1e-9
        found = certify(ModularAddition(model, P), reading_of(None))
        seen[found.verdict] += 1
        if found.verdict == "PROVED":
            assert 0 <= found.margin <= math.ldexp(least * (1 + 1e-9), powers[2]) and least > 0, powers
        if found.verdict == "REFUTED":
            assert least < 0, powers
    assert seen["PROVED"] >= 4 and seen["REFUTED"] >= 4, seen


@pytest.mark.parametrize("precision", every(2, ["float16", "bfloat16"]))
def test_no_flush_goes_below_a_margin_proved_in_a_dtype(precision):
    """Weights of layers near the smallest normal number, in every order, kept and flushed."""
    rng, seen, reading = random.Random(precision), collections.Counter(), reading_of(precision)
    for _ in range(20):
        P = rng.choice((3, 5))
        powers = [rng.choice((-16, -15, -13, -8, 0, 8)) for _ in range(2)] + [rng.choice((-14, -10, -4, 0))]
        model = scaled(modular.staircase(P=P), *powers)
        problem = ModularAddition(model, P)
        found = certify(problem, reading)
        seen[found.verdict] += 1
        for order in ORDERS if found.verdict == "PROVED" else ():
            for flush in (False, True):
                at = Evaluation(reading.format, None, order, flush=flush)
                assert problem.rounded_margins(list(problem.inputs()), at).min() >= found.margin, (powers, order, flush)
    assert seen["PROVED"], seen


@pytest.mark.parametrize("x", [arb(1) / 3, arb(2) ** -1080, -(arb(2) ** -1080), arb(2) ** 1030, arb(0.5), arb(0)])
def test_margins_of_balls_are_rounded_down(x):
    found = float_below(x)
    assert arb(found) <= x and (found >= 0 or x < 0 or x.rad() > 0)
    if x.is_exact():
        assert float_at_most(fmpq(*[int(part) for part in (x.fmpq().p, x.fmpq().q)])) == found


def test_rationals_are_rounded_down():
    rng = random.Random(1)
    for _ in range(2000):
        p, q = rng.getrandbits(rng.randrange(1, 1400)) + 1, rng.getrandbits(rng.randrange(1, 1400)) + 1
        for sign in (1, -1):
            found = float_at_most(fmpq(sign * p, q))
            assert found == -math.inf or Fraction(found) <= Fraction(sign * p, q)
            above = math.nextafter(found, math.inf)
            assert above == math.inf or Fraction(above) > Fraction(sign * p, q) or found == 0
