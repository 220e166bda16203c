"""Decoders scaled by powers of two, and LayerNorms of any eps: float64 loses products, and no verdict follows it."""

import collections
import copy
import itertools
import random

import mpmath
import numpy as np
import pytest
import torch
from models.selection import every, first
from oracles import decoder as oracle
from oracles.inductive import right
from planted import planted

from constructions.decoder import Decoder
from constructions.inductive import positioned, selective, started, succession, unmarked
from verify.arithmetic import intervals, layer_norm, norms
from verify.arithmetic.readings import Real
from verify.arithmetic.slack import LEAST
from verify.counting.tasks import Task
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.inductive import cells, noisy, uniform
from verify.tasks.inductive.task import Counting

BRIEF = Effort(budget=3.0)
EPS = (5e-324, 1e-320, 2.0**-1022, 1e-300, 1e-200, 1e-30, 1e-5)


@pytest.fixture
def no_door(monkeypatch):
    """Without the shortcut for small numbers: the bounds themselves must hold."""
    monkeypatch.setattr(uniform, "is_faint", lambda model: False)


def everything(task, model):
    """Every input with its shift: strings of the task, as long as the positions or the task allow, up to three."""
    room = 4 if model.pe == "nope" else model.positions - model.has_bos
    shifts = range(1 if model.pe == "nope" else room)
    if task.is_homogeneous:
        lines = [line.tokens for line in task.lines(3, room=room)]
        return [(shift, line[: room - shift]) for shift in shifts for line in lines]
    found = [string for n in range(1, 4) for string in itertools.product(range(task.K), repeat=n)]
    return [(shift, string) for shift in shifts for string in found if len(string) + shift <= room]


def least_margin(task, model, inputs):
    """The least margin of all judged answers, to 200 bits whose exponents have no end."""
    m, least = oracle.stored(model), mpmath.inf
    for shift, string in inputs:
        due = right(task.name, string, M=task.M, m=task.m, C=task.C)
        if task.has_distinct_start and string[1:2] == string[:1]:
            due = (due[0],) + (None,) * (len(due) - 1)
        least = min(least, *oracle.margins(oracle.slow(m, string, shift), due))
    return least


def check(found, least, note):
    """PROVED and its margin, or REFUTED, against the least margin of all inputs."""
    if found.verdict is Verdict.PROVED:
        assert least > 0 and (found.margin is None or found.margin <= least * (1 + 1e-9)), (note, found.margin, least)
    if found.verdict is Verdict.REFUTED:
        assert least <= 0, (note, found.counterexample, least)


def scaled(model, stream, values, neurons):
    """The same function where powers of two move from what writes the stream, values and neurons to what reads them.

    Raises: OverflowError where a number is not held.
    """
    new = copy.deepcopy(model)
    weights = dict(new.named_parameters()) | dict(new.named_buffers())
    norms = [part for part in new.modules() if isinstance(part, torch.nn.LayerNorm)]
    reads = 0 if norms else -stream
    for part in norms:
        part.eps *= 2.0 ** (2 * stream)

    def times(name, power):
        if name in weights:
            before = weights[name].clone()
            weights[name].mul_(2.0**power)
            if not torch.equal(weights[name] * 2.0**-power, before):
                raise OverflowError(name)

    with torch.no_grad():
        for name, power in (("W_E", stream), ("W_pos", stream), ("W_U", reads)):
            times(name, power)
        for i in range(len(new.blocks)):
            for name, power in (
                ("attention.W_Q", reads), ("attention.W_K", reads), ("attention.W_V", reads + values),
                ("attention.b_V", values), ("attention.W_O", stream - values), ("attention.b_O", stream),
                ("mlp.W_in", reads + neurons), ("mlp.b_in", neurons), ("mlp.W_out", stream - neurons),
                ("mlp.b_out", stream),
            ):  # fmt: skip
                times(f"blocks.{i}.{name}", power)
    return new


def changed(model, seed):
    """The decoder with another readout, or other neurons: mostly wrong."""
    new = copy.deepcopy(model)
    W = new.W_U if seed % 2 or new.blocks[-1].mlp is None else new.blocks[-1].mlp.W_out
    with torch.no_grad():
        W.add_(torch.randn(W.shape, generator=torch.Generator().manual_seed(seed), dtype=W.dtype) * W.abs().max())
    return new


SHIFTED, SUCCESSION = (Task.of(name, vocabulary=3) for name in ("shifted", "succession"))
SELECTIVE = Task.of("selective", types=2, max_count=2)
MODELS = {
    "prefix sums": (SHIFTED, lambda norm: started(task="shifted", M=3, layernorm=norm)),
    "cells or boxes": (SELECTIVE, lambda norm: selective(K=2, C=2, layernorm=norm)),
    "placed": (SELECTIVE, lambda norm: positioned(K=2, C=2, layernorm=norm, positions=3)),
    "sharp": (SUCCESSION, lambda norm: succession(M=3, layernorm=norm, positions=4)),
    "marked": (SELECTIVE, lambda norm: unmarked(K=2, C=2, layernorm=norm, positions=3)),
}


@pytest.mark.parametrize("models", first(1, [2, 4]))
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", every(3, MODELS))
def test_scaled_layers_have_the_verdict_of_their_function(name, norm, models, no_door):
    task, build = MODELS[name]
    base, rng, seen = build(norm), random.Random(f"{name}{norm}"), collections.Counter()
    for number in range(models):
        model = changed(base, number) if number % 2 else base
        powers = [rng.choice((-1000, -700, -500, -300, 0, 300, 700, 900)) for _ in range(3)]
        powers[0] = rng.choice((-520, -400, 0, 3)) if norm else powers[0]  # so that eps is held
        try:
            other = scaled(model, *powers)
        except OverflowError:
            other = scaled(model, *(int(power / 4) for power in powers))
        least = least_margin(task, model, everything(task, model))
        found = certify(Counting(other, task, 3 if model.pe == "nope" else None), Real(), BRIEF)
        seen[found.verdict] += 1
        check(found, least, (number, powers))
    assert seen[Verdict.PROVED] and seen[Verdict.REFUTED]


def drawn(rng, eps):
    """A small decoder with LayerNorm whose numbers have any size, and its task."""
    task = rng.choice((Task.of("vanilla", vocabulary=1), Task.of("shifted", vocabulary=2), SELECTIVE))
    model = Decoder(
        vocabulary=task.vocabulary, d=rng.choice((2, 3)), d_head=1, d_mlp=rng.choice((1, 2)), classes=task.classes,
        pe="nope", bos=True, activation=rng.choice(("relu", "relu", "gelu")), layernorm=True, eps=eps,
        attention_bias=True, unembedding_bias=rng.random() < 0.5,
    )  # fmt: skip
    g = torch.Generator().manual_seed(rng.randrange(1 << 30))
    sizes = (0, 0, -30, -300, -500, -537, -600)
    with torch.no_grad():
        for part, value in model.named_parameters():
            value.copy_(torch.randn(value.shape, generator=g, dtype=torch.float64) * 2.0 ** rng.choice(sizes))
            if "W_Q" in part or "b_Q" in part:
                value.zero_()  # scores are 0, so that the bounds here are asked
            elif "norm" in part and part.endswith("weight"):
                value.fill_(2.0 ** rng.choice((0, 0, 0, 300, -300)))
    return model.eval(), task


def bent(model, task, rng):
    """The readout turned so that most answers are right: else nothing would be PROVED."""
    first = task.answers((1, 2) if task.name == "shifted" else (0,))[0] or 0
    with torch.no_grad():
        if model.b_U is not None:
            model.b_U.zero_()
            model.b_U[first] = 2.0 ** rng.choice((1, 2, 3, 4))
    return model


@pytest.mark.parametrize("models", first(1, [4, 8]))
@pytest.mark.parametrize("eps", EPS)
def test_layer_norms_of_any_eps(eps, models, no_door):
    rng, seen = random.Random(str(eps)), collections.Counter()
    for number in range(models):
        model, task = drawn(rng, eps)
        bent(model, task, rng)
        inputs = [(0, line.tokens[: 1 + line.leading]) for line in task.lines(1)] if task.is_homogeneous else [
            (0, (t,)) for t in range(task.K)
        ]  # fmt: skip
        least = least_margin(task, model, inputs)
        found = certify(Counting(model, task, 1), Real(), BRIEF)
        seen[found.verdict] += 1
        check(found, least, (eps, number))
    assert seen[Verdict.PROVED] + seen[Verdict.REFUTED]


def missed(c, eps):
    """A decoder of one token whose second LayerNorm sees (c, -c), c^2 below half of the least number of float64.

    A neuron reads c / sqrt(c^2 + eps), and is on where that is above 0.63: then the answer is wrong.
    """
    model = Decoder(
        vocabulary=1, d=2, d_mlp=1, d_head=1, classes=2, positions=1, pe="nope", activation="relu", layernorm=True,
        eps=eps, attention_bias=True,
    )  # fmt: skip
    attention, mlp = model.blocks[0].attention, model.blocks[0].mlp
    with torch.no_grad():
        for part in model.parameters():
            part.zero_()
        for norm in (model.norm, model.blocks[0].norm_1, model.blocks[0].norm_2):
            norm.weight.fill_(1.0)
        attention.b_V[0], attention.W_O[0, 0] = 2 * c * 2.0**500, 2.0**-500
        mlp.W_in[0, 0], mlp.b_in[0], mlp.W_out[0, 0] = 1.0, -0.63, -1.0
        model.W_U[0, 0] = model.W_U[1, 1] = 1.0
    return model.eval()


@pytest.mark.parametrize("eps", [5e-324, 1e-320])
def test_squares_that_underflow_are_not_lost(eps, no_door):
    task, seen = Task.of("vanilla", vocabulary=1), collections.Counter()
    for size in (0.1, 0.49, 0.7, 0.9, 3.0, 50.0, 1e4):
        model = missed(size**0.5 * 2.0**-537, eps)
        found = certify(Counting(model, task), Real(), BRIEF)
        seen[found.verdict] += 1
        check(found, least_margin(task, model, [(0, (0,))]), (eps, size))
    assert seen == {Verdict.PROVED: 7} or seen[Verdict.REFUTED], seen


def test_a_norm_without_its_scale_is_found_out(no_door):
    model, task = missed(0.7 * 2.0**-537, 5e-324), Task.of("vanilla", vocabulary=1)
    assert least_margin(task, model, [(0, (0,))]) < -1
    right, wrong = "least, most = root_mean_square(c)", "least = most = np.sqrt(np.square(c).mean(-1, keepdims=True))"
    with planted(layer_norm, "deviation_near", right, wrong):
        assert certify(Counting(model, task), Real(), BRIEF).verdict is Verdict.PROVED


@pytest.mark.parametrize("eps", [0.0, -1.0, float("nan")])
@pytest.mark.parametrize("name", ["prefix sums", "cells or boxes", "placed"])
def test_eps_that_is_no_eps_is_neither_proved_nor_a_crash(name, eps, no_door):
    task, build = MODELS[name]
    model = build(True)
    for part in model.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = eps
    found = certify(Counting(model, task, 2 if model.pe == "nope" else None), Real(), BRIEF)
    if eps != 0:
        assert found.verdict is not Verdict.PROVED
    with torch.no_grad():
        model.W_E.fill_(1.0)  # without positions every row is constant: 0/0
        for row in (model.W_pos,) if hasattr(model, "W_pos") else ():
            row.fill_(1.0)
    found = certify(Counting(model, task, 2 if model.pe == "nope" else None), Real(), BRIEF)
    assert found.verdict is not Verdict.PROVED


def test_halves_products_and_means_of_the_least_number_are_not_zero():
    """The smallest numbers of float64 in every operation of noisy rows: none becomes exactly 0 but by a factor 0."""
    at, least = noisy.Allowed(), np.array([[LEAST, 0.0]])
    half = noisy.activate(at, noisy.Noisy(np.zeros_like(least), least), "relu")
    assert half.size[0, 0] >= LEAST and half.size[0, 1] == 0
    assert noisy.box(np.zeros_like(least), least).size.tolist()[0][0] >= LEAST
    product = noisy.product(at, noisy.Noisy(least, least, {"q": least}), noisy.Noisy.exact(np.full((2, 1), 0.3)))
    assert product.noise.item() >= 0.3 * LEAST and product.size.item() >= 0.9 * LEAST
    means = uniform.means(at, noisy.Noisy.exact(np.array([[LEAST], [0.0], [0.0], [0.0]])))
    assert (means.noise >= LEAST / 4).all()
    for name in ("lower", "upper"):
        x = intervals.Interval(np.array([[-1e-200]]), np.array([[1e-200]]))
        for found in (x * x, x @ intervals.Interval.exact(np.array([[1e-200]])), x @ x, cells._scaled(x, 1e-200)):
            assert abs(getattr(found, name).item()) > 0


@pytest.mark.parametrize("x", [(1e-200, -3e-200), (LEAST, 0.0), (1.7e308, -1.7e308), (1.0, 1e-300), (2.0**-537, 0.0)])
def test_root_mean_squares_hold_at_any_size(x):
    row = np.array([x])
    exact = mpmath.sqrt(mpmath.fsum(mpmath.mpf(v) ** 2 for v in x) / 2)
    low, high = (part.item() for part in norms.root_mean_square(row))
    assert low <= exact <= high and high <= exact * (1 + 1e-12) + 4 * LEAST
    low, high = (part.item() for part in norms.hypotenuse(row[:, :1], row[:, 1:]))
    assert low <= exact * mpmath.sqrt(2) <= high
