"""Circuit transformers whose layers are scaled by powers of two: the same tokens, and no verdict against them."""

import collections
import itertools
import random

import numpy as np
import pytest
import torch
from models.selection import every, first

from constructions.circuit_simulation import build
from constructions.circuits.circuit import Circuit, Gate, decompose
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS
from verify.tasks.circuit import dtype
from verify.tasks.circuit.attention import ScoreError

XOR = decompose(Circuit("xor", ("x", "y"), (Gate("xor", (0, 1), "z"),), (("z", 2),)))
NAND = decompose(Circuit("nand", ("x", "y"), (Gate("nand", (0, 1), "z"),), (("z", 2),)))


def scaled(model, rng, powers):
    """Powers of two move from values to W_O, from queries to keys, and from neurons to what they write."""
    with torch.no_grad():
        for layer in model.layers:
            values, scores, neurons = (rng.choice(powers) for _ in range(3))
            pairs = (
                ((layer.W_V,), (layer.W_O,), values), ((layer.W_Q,), (layer.W_K,), scores),
                ((layer.W_1, layer.b_1), (layer.W_2,), neurons),
            )  # fmt: skip
            for up, down, power in pairs:
                for W in up:
                    W.mul_(2.0**power)
                for W in down:
                    W.mul_(2.0**-power)
    return model


def is_right(model, decomposition):
    """Every input run by torch in float64, without scales: margins are far from its rounding."""
    for bits in itertools.product((0, 1), repeat=2):
        circuit = decomposition.circuit
        due = circuit.evaluate(list(bits), 1)
        if model.generate(torch.tensor([bits]))[0].tolist() != list(due):
            return False
    return True


@pytest.mark.parametrize("models", first(1, [12, 24]))
@pytest.mark.parametrize("fmt", every(3, [None, "float16", "bfloat16", "float32"]))
def test_scaled_layers_are_never_decided_against_what_they_compute(fmt, models):
    rng, seen = random.Random(str(fmt)), collections.Counter()
    powers = (-900, -500, -100, -20, 0, 0, 20, 100, 500, 900) if fmt is None else (-16, -13, -8, 0, 0, 8, 13)
    for number in range(models):
        decomposition = rng.choice((NAND, XOR))
        model = build(decomposition.circuit, s=rng.choice((3, 4))).double()
        if number % 2:
            with torch.no_grad():
                W = rng.choice((model.layers[1].W_2, model.layers[1].b_2, model.layers[1].W_O))
                W.mul_(-1) if rng.random() < 0.5 else W.zero_()
        right = is_right(model, decomposition)
        found = dtype.certify(
            scaled(model, rng, powers if number > 3 else (0,)), decomposition, fmt=fmt and FORMATS[fmt]
        )
        seen[found.verdict.value, right] += 1
        assert found.verdict != "PROVED" or right
        if fmt is None:
            assert found.verdict != "REFUTED" or not right
    assert sum(n for (verdict, right), n in seen.items() if verdict == "PROVED") >= 2, seen


def test_a_radius_that_underflows_in_a_score_is_no_exact_score():
    at = RoundedArithmetic.of(FORMATS["float32"])
    q = Ball(np.array([[1.0, 1.0]]), np.array([[1e-200, 0.0]]))
    k = Ball(np.array([[1e-200, 1.0]]), np.array([[0.0, 0.0]]))
    tiny = Ball(q.mid, q.rad * 1e-200)
    assert ScoreError.of(at, Ball(q.mid, np.zeros_like(q.rad)), Ball(np.ones_like(k.mid), k.rad)).absolute == 0
    assert ScoreError.of(at, tiny, k).absolute > 0
