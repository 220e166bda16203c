"""Recurrent networks in a dtype that may flush: each stored number that is subnormal may be read as 0."""

import collections
import itertools
import random
from fractions import Fraction

import numpy as np
import pytest
import torch

from constructions.errors import BadInput
from constructions.recurrent.model import RecurrentModel
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.outward import float_at_least, float_at_most
from verify.arithmetic.readings import reading_of
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import chain
from verify.tasks.recurrent.enclosures import Roundings
from verify.tasks.recurrent.selective import Selective
from verify.tasks.recurrent.task import Homogeneous

TINY = 2.0**-14  # the smallest normal number of float16
PARTS = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")


def once(x, is_flushed):
    """A float64 number as float16 stores it, or reads it: subnormal ones may be flushed."""
    x = float(np.float16(x))
    return 0.0 if is_flushed and abs(x) < TINY else x


def run(model, tokens, is_flushed, rng):
    """Logits after each token, every operation in float16 and sums in a random order, in plain Python."""
    stored = {name: value.double().tolist() for name, value in model.state_dict().items()}

    def read(x):
        return [read(y) for y in x] if isinstance(x, list) else once(x, is_flushed)

    def affine(parts):
        """sum of W x + b over the parts, as one sum."""
        terms = []
        for W, x, b in parts:
            terms += [once(w * v, is_flushed) for w, v in zip(W, x, strict=True)] + [b]
        rng.shuffle(terms)
        total = terms[0]
        for term in terms[1:]:
            total = once(total + term, is_flushed)
        return total

    W_x, W_h, b_x, b_h = (read(stored[f"cell.{name}"]) for name in PARTS)
    V, b, E = (read(stored[name]) for name in ("readout.weight", "readout.bias", "embedding.weight"))
    h, out = [0.0] * model.hidden, []
    for token in tokens:
        rows = zip(W_x, W_h, b_x, b_h, strict=True)
        a = [affine([(x, E[token], c), (w, h, d)]) for x, w, c, d in rows]
        h = [once(np.tanh(v) if model.activation == "tanh" else max(v, 0.0), is_flushed) for v in a]
        out.append([affine([(row, h, c)]) for row, c in zip(V, b, strict=True)])
    return out


def flip(e, read, activation="tanh"):
    """One unit that changes its sign at each token, kicked by a token of size e that is read `read` times."""
    model = RecurrentModel("rnn", hidden=1, classes=2, types=1, activation=activation, dtype=torch.float64)
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
        model.cell.weight_ih_l0.fill_(read)
        model.cell.weight_hh_l0.fill_(-3.0)
        model.embedding.weight.fill_(e)
        model.readout.weight[0], model.readout.weight[1] = 4.0, -4.0
    return model


def right_margins(logits, m):
    return [row[t % m] - max(x for j, x in enumerate(row) if j != t % m) for t, row in enumerate(logits)]


def test_a_subnormal_embedding_is_not_proved_for_ever():
    model, reading = flip(2.0**-15, 2.0**15), reading_of("float16")
    kept, flushed = (right_margins(run(model, [0] * 6, flag, random.Random(0)), 2) for flag in (False, True))
    assert min(kept) > 0 and min(flushed) <= 0
    for length in (None, 6):
        found = certify(Homogeneous(model, Task.of("modular", modulus=2), length), reading, Effort(budget=0.5))
        assert found.verdict is not Verdict.PROVED
    normal = flip(2.0**-14, 2.0**14)
    found = certify(Homogeneous(normal, Task.of("modular", modulus=2), 6), reading, Effort(budget=5))
    margins = right_margins(run(normal, [0] * 6, True, random.Random(0)), 2)
    assert found.verdict is Verdict.PROVED and found.margin <= min(margins)


def test_networks_whose_layers_are_scaled_never_win_by_what_a_flush_takes():
    """30 networks, scaled by powers of two where nothing changes in real arithmetic, against 8 runs each."""
    rng, seen, lost = random.Random(31), collections.Counter(), 0
    for _ in range(30):
        k, j = rng.randrange(25), rng.randrange(0, 8)
        gain, activation = rng.choice((1.0, 1.5, 0.75)), rng.choice(("tanh", "tanh", "relu"))
        model = flip(2.0**-k, 2.0 ** min(k, 15) * gain, activation)
        with torch.no_grad():
            model.readout.weight.mul_(2.0 ** -rng.randrange(20))
            model.readout.bias.copy_(torch.tensor([1.0, -1.0]) * rng.choice((0.0, 0.0, 2.0**-15, 2.0**-20)))
            model.cell.bias_ih_l0.fill_(rng.choice((0.0, 2.0**-16, -(2.0**-j))))
            model.cell.weight_hh_l0.mul_(rng.choice((1.0, 1.0, 2.0**-16)))
        length = rng.randrange(1, 5)
        task = Task.of("modular", modulus=2)
        found = certify(Homogeneous(model, task, length), reading_of("float16"), Effort(budget=2))
        seen[found.verdict] += 1
        margins = [right_margins(run(model, [0] * length, flag, rng), 2) for flag in (False, True) for _ in range(4)]
        if found.verdict is Verdict.PROVED:
            assert found.margin <= min(map(min, margins)), (k, j, length)
        lost += min(map(min, margins)) <= 0
    assert seen[Verdict.PROVED] >= 5 and lost >= 5, (seen, lost)


def test_boxes_of_strings_charge_what_tokens_read():
    """Selective counting over two embedded types: the same state whether a string begins with a or b, if flushed."""
    task = Task.of("selective", types=2, max_count=1)
    model = RecurrentModel("rnn", hidden=2, classes=2, inputs=2, types=2, activation="relu", dtype=torch.float64)
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
        model.embedding.weight.copy_(torch.eye(2) * 2.0**-15)
        model.cell.weight_ih_l0.copy_(torch.eye(2) * 2.0**15)
        model.readout.weight[1] = 4.0
        model.readout.bias[0] = 1.0
    strings = list(itertools.product(range(2), repeat=1))
    kept, flushed = ([run(model, s, flag, random.Random(0))[-1] for s in strings] for flag in (False, True))
    assert all(row[1] > row[0] for row in kept) and all(row[1] <= row[0] for row in flushed)
    found = certify(Selective(model, task, 1), reading_of("float16"), Effort(budget=3))
    assert found.verdict is not Verdict.PROVED
    assert certify(Selective(model, task, 1), reading_of("float32"), Effort(budget=3)).verdict is Verdict.PROVED


def test_a_linear_map_charges_the_vector_that_it_reads():
    on = Roundings(RoundedArithmetic.of(FORMATS["float16"]))
    subnormal, W = np.array([2.0**-15]), np.array([[2.0**15]])
    off = on.linear(W, subnormal, np.zeros(1), np.ones(1))
    assert off.error[0] >= 1


@pytest.mark.parametrize("power", [1000, -1000, 0])
def test_exact_margins_of_any_size_are_rounded_and_no_crash(power):
    """Logits beyond float64: what is printed of a proof is below its margin, of a failure above it."""
    model = flip(1.0, 1.0, activation="relu")
    with torch.no_grad():
        model.cell.weight_hh_l0.fill_(-1.0)
        model.readout.weight.mul_(2.0**power)
        model.cell.weight_ih_l0.mul_(2.0**power)
        model.readout.bias.copy_(torch.tensor([-1.0, 1.0], dtype=torch.float64) * 2.0 ** min(2 * power, 1000))
    found = certify(Homogeneous(model, Task.of("modular", modulus=2), 3), reading_of(None), Effort(budget=2))
    state, least = Fraction(0), None
    for t in range(3):
        state = max(Fraction(2) ** power - state, Fraction(0))
        gap = 8 * state * Fraction(2) ** power - 2 * Fraction(2.0 ** min(2 * power, 1000))
        least = min(gap if t % 2 == 0 else -gap, least if least is not None else Fraction(10) ** 1000)
    assert found.verdict is (Verdict.PROVED if least > 0 else Verdict.REFUTED)
    if least > 0:
        assert Fraction(found.margin) <= least


@pytest.mark.parametrize("x", [Fraction(10) ** 400, -(Fraction(10) ** 400), Fraction(1, 10**400), Fraction(1, 3)])
def test_fractions_as_floats_lie_on_their_side(x):
    assert float_at_most(x) <= x <= float_at_least(x)


def test_infinite_weights_are_refused():
    model = flip(1.0, float("inf"), activation="relu")
    with pytest.raises(BadInput, match="infinity"):
        certify(Homogeneous(model, Task.of("modular", modulus=2), 3), reading_of(None), Effort(budget=2))


def test_what_a_step_may_vary_by_is_scaled_before_it_is_squared():
    """A step that shrinks 2^540 times: squares of 2^-560 are 0, and 2^-20 of the later ellipsoid."""
    one = np.ones((1, 1, 1))
    image, moved = Ball(2.0**-540 * one, 2.0**-560 * one), Ball.exact(np.zeros((1, 1)))
    before, after = (chain.Ellipsoids(np.zeros((1, 1)), one, np.array([size])) for size in (0, -540))
    assert chain._together(image, moved, None, before, after, one) >= 1 + 2.0**-20
    assert chain._widened(image, np.zeros((1, 1)), before, after, one) >= 1 + 2.0**-20
