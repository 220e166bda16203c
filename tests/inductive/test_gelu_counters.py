"""Selective counting with GELU neurons: saturated built ones, softer and changed ones, against runs of every string."""

import itertools
import math
import random

import mpmath
import numpy as np
import pytest
import torch
from command import run
from models import counting_decoders as models
from models.selection import first
from oracles import decoder as oracle
from oracles.inductive import right
from planted import planted

from constructions.decoder_arrays import DecoderArrays
from constructions.errors import BadInput
from constructions.inductive import selective
from verify.arithmetic.readings import Real, reading_of
from verify.counting.tasks import Task
from verify.engine.balls import Arithmetic, Ball
from verify.engine.rules import pointwise
from verify.tasks.inductive import boxes, noisy

KINDS = ("gelu", "gelu_tanh")


def exact(x, kind):
    """GELU of a number to 200 bits."""
    with mpmath.workprec(200):
        x = mpmath.mpf(x)
        inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3)
        return x * mpmath.ncdf(x) if kind == "gelu" else x * (1 + mpmath.tanh(inner)) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_far_from_0_gelu_is_relu_up_to_what_is_said(kind):
    for x in (2.0, 2.1, 2.5, 3.0, 4.5, 6.0, 8.0, 11.0):
        bound = float(noisy.saturation(np.array(x), kind))
        for at in (x, x + 0.3, x + 2, -x, -x - 1):
            assert abs(exact(at, kind) - max(at, 0)) <= bound <= 1.1 * x * math.exp(-(x**2) / 2)
    assert noisy.saturation(np.array(1.9), kind) == math.inf


def counter(seed):
    """A counter of two types with GELU neurons, as built, less saturated, or with noise."""
    rng = random.Random(seed)
    task = Task.of("selective", types=2, max_count=rng.randint(1, 4))
    pe = rng.choice(["nope", "nope", "rope", "ape", "spe", "sine"])
    n = rng.randint(2, 7)
    model = selective(
        K=2, C=task.C, pe=pe, layernorm=rng.random() < 0.4, positions=n + 1 + rng.randint(0, 1),
        activation=rng.choice(KINDS),
    )  # fmt: skip
    mlp = model.blocks[0].mlp
    with torch.no_grad():
        if rng.random() < 0.7:
            for weight, by in zip((mlp.W_in, mlp.b_in, mlp.b_out), [rng.choice([0.1, 0.2, 0.3, 0.4])] * 3, strict=True):
                weight.mul_(by)
        if rng.random() < 0.3:
            models.nudged(rng, model, rng.choice([1e-4, 1e-3, 1e-2]))
    return task, model, n


def decide(seed):
    """What is proved of a counter against all its strings and shifts."""
    task, model, n = counter(seed)
    found = boxes.decide(DecoderArrays.of(model), task, n, Real())
    m, wrong, least = oracle.stored(model), math.inf, math.inf
    strings = list(itertools.product(range(2), repeat=n))
    for shift in range(1 if model.pe == "nope" else model.positions - n):
        for string, row in zip(strings, oracle.fast(m, strings, shift), strict=True):
            for i, margin in enumerate(oracle.margins(row, right("selective", string, C=task.C))):
                least, wrong = min(least, margin), wrong if margin > 0 else min(wrong, i + 1)
    assert found.length < wrong, f"WRONG PROVED: {seed}"
    assert found.length < n or found.margin <= least + 1e-9 * (1 + abs(least)), seed
    return "proved" if found.length == n else "wrong" if wrong <= n else "open"


@pytest.mark.parametrize("seeds", first(1, [range(20), *(range(i, i + 100) for i in range(0, 1000, 100))]))
def test_every_string(seeds):
    assert {decide(seed) for seed in seeds} >= {"proved", "wrong"}


def check_enclosures(seed):
    """What `activate` makes of numbers with an error of their own and a shared one holds GELU of numbers within."""
    rng, kind = random.Random(seed), KINDS[seed % 2]
    mid, own, part = (np.array([[value]]) for value in (
        rng.uniform(-9, 9), rng.choice([0.0, 0.01, 0.5, 2.0]), rng.choice([0.0, 1e-3, 0.3, 2.0])
    ))  # fmt: skip
    out = noisy.activate(noisy.Allowed(), noisy.Noisy(mid, own, {"q": part}), kind)
    for e, r in itertools.product((-1.0, 0.0, 1.0), repeat=2):
        value = float(exact((mid + e * part + r * own).item(), kind))
        assert abs(value - (out.mid + e * out.shared["q"]).item()) <= out.own.item() + 1e-13, seed


def test_enclosures_hold_gelu():
    for seed in range(60):
        check_enclosures(seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reading", ["real", "float32", "bfloat16"])
def test_gelu_of_arrays_is_the_engines(kind, reading):
    x = np.concatenate([np.random.default_rng(1).normal(0, size, 500) for size in (0.1, 1, 5, 30, 1e9, 1e200)])
    x = np.concatenate([x, [0.0, -0.0, 5e-324, 37.4, -37.5, 1e154, 1e308, np.inf, -np.inf, np.nan]])
    at = noisy.Allowed.of(reading_of(reading))
    with np.errstate(all="ignore"):
        value, error, slope = noisy.gelu(at, x, kind)
    form = {"gelu": "none", "gelu_tanh": "tanh"}[kind]
    ball = pointwise.gelu(Arithmetic(at.stored), Ball(torch.from_numpy(x)), approximate=form)
    assert np.array_equal(value, ball.mid.numpy(), equal_nan=True)
    assert np.array_equal(error, ball.radius.numpy(), equal_nan=True)
    is_some = np.abs(x) < 1000
    for point, found in zip(x[is_some][::60].tolist(), slope[is_some][::60].tolist(), strict=True):
        assert abs(found - (mpmath.ncdf(point) + point * mpmath.npdf(point))) <= 2.0**-40, point


@pytest.mark.parametrize(
    ("says", "wrongly"),
    [
        ("x.own, 0.0) + rest", "x.own, 0.0)"),
        ("np.abs(x.mid) * (1 - OF_FEW) - noise", "np.abs(x.mid) * (1 - OF_FEW)"),
        ("np.where(x.mid > 0, x.own, 0.0) + rest", "0.0 * x.own + rest"),
        ("is_far, np.maximum(x.mid, 0), value", "is_far, x.mid, value"),
        ("is_far, (x.mid > 0).astype(np.float64), slope", "is_far, 0 * slope, slope"),
    ],
)
def test_planted_faults_are_caught(says, wrongly):
    with planted(noisy, "activate", says, wrongly), pytest.raises(AssertionError):
        for seed in range(300):
            check_enclosures(seed)


@pytest.mark.deep
def test_command(capsys):
    sizes = ("--task", "selective", "--bos", "--types", "2", "--max-count", "3", "--activation")
    assert run(capsys, "inductive", *sizes, "gelu", "--length", "10000")[0] == 0
    code, out, _ = run(capsys, "inductive", *sizes, "gelu_tanh", "--no-layernorm", "--budget", "3")
    assert code == 3 and "the search ends there" in out
    code, out, err = run(capsys, "inductive", "--task", "shifted", "--activation", "gelu")
    assert code == 2 and out == "" and err.count("\n") == 1
    with pytest.raises(BadInput, match="sawtooth"):
        selective(K=2, C=2, m=2, activation="gelu")


def test_float32():
    """Saturated neurons are off by their rounding, so that thousands of tokens are proved, and no end of them."""
    task = Task.of("selective", types=2, max_count=3)
    model = selective(K=2, C=3, layernorm=False, activation="gelu", dtype=torch.float32)
    assert 10_000 < boxes.decide(DecoderArrays.of(model), task, None, reading_of("float32"), 2.0).length < 1_000_000
