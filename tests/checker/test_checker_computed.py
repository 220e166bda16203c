"""Computed numbers of a decoder in a format are within the checker's balls, whatever is rounded which way."""

import random
from functools import cache
from types import SimpleNamespace
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat
from models.selection import first
from oracles import decoder as oracle
from oracles.eleven_bits import FactorsOfElevenBits
from oracles.operations import Exact, add, matmul, softmax, whole

from constructions.decoder_model import Decoder
from constructions.inductive import as_bytes
from tests.planted import planted
from verify.checker import waves
from verify.checker.arrays import FLOAT, Array
from verify.checker.computed_decoder import ComputedDecoder, _magnitudes, _marks
from verify.checker.decoder import ExactDecoder
from verify.checker.formats import NAMED, TF32, BinaryFormat, as_factors
from verify.checker.moved import MovedArray
from verify.checker.moved_decoder import MovedDecoder
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.tasks.inductive.task import Counting

P = 10
FORMAT = BinaryFormat(P, -126, 127)


class Pushed(Exact):
    """Results off by a unit round-off, sums in a random order; sums with 0 and what the format holds are exact."""

    def __init__(self, rng, *held):
        self.rng, self.lean = rng, rng.choice([0.0, 0.5, 0.9, 1.0])
        self.held = {x for part in held for x in part.flat}

    def number(self, x):
        return self.once(mpmath.mpf(x))

    def once(self, x, units=1):
        if not mpmath.isfinite(x) or x == 0 or x in self.held or x.man.bit_length() <= P:
            return x
        up = self.rng.random() < self.lean
        found = x * (1 + (1 if up else -1) * units * mpmath.mpf(2) ** -P)
        self.held.add(found)
        return found

    def function(self, name, x):
        return self.once(getattr(mpmath, name)(x), 8)

    def sum(self, xs):
        xs = [x for x in xs if x != 0]
        self.rng.shuffle(xs)
        while len(xs) > 1:
            xs.append(self.once(xs.pop(0) + xs.pop(0 if self.rng.random() < 0.2 else -1)))
        return xs[0] if xs else mpmath.mpf(0)

    def products(self, xs, ys):
        return [self.once(x * y) for x, y in zip(xs, ys, strict=True)]

    def dot(self, xs, ys):
        return self.sum(self.products(xs, ys))


def drawn(rng):
    """A small decoder of few bits, in which some parts are 0 and others large, and an input with its shift."""
    kind = {
        "pe": rng.choice(["nope", "ape", "spe", "rope", "sine"]),
        "layernorm": rng.random() < 0.6,
        "bos": rng.random() < 0.3,
    }
    kind |= {"n_layers": rng.choice([1, 1, 2]), "d_mlp": rng.choice([0, 3]), "n_heads": rng.choice([1, 2])}
    kind |= {"activation": rng.choice(["relu", "gelu", "gelu_tanh"]), "unembedding_bias": rng.random() < 0.5}
    model = Decoder(vocabulary=2, d=4, classes=2, positions=6, d_head=2, eps=2.0**-6, **kind)
    with torch.no_grad():
        for name, x in model.named_parameters():
            scale = rng.choice([0.0, 0.0625, 0.25, 1.0] if x.ndim == 2 else [0.0, 0.25, 1.0])
            scale = scale or float("norm" in name and "weight" in name)
            for i in range(x.numel()):
                x.view(-1)[i] = rng.randint(-31, 31) / 16 * scale
    tokens = [rng.randrange(2) for _ in range(rng.randint(1, 4))]
    return model.eval(), tokens, 0 if kind["pe"] == "nope" else rng.randint(0, 1)


def decoder(model, fmt):
    """The checker's decoder, whatever numbers its tables of sines hold."""
    tables = Counting.made_tables.fget(SimpleNamespace(module=model)).get("tables")
    with mock.patch.object(waves, "FEW", arb(1)):
        return ComputedDecoder(as_bytes(model, {}), fmt, tables)


def balls(model, fmt, tokens, shift):
    return decoder(model, fmt).gaps(tokens, [0] * len(tokens), shift, 128)


def moved(model, fmt, tokens, shift):
    """With each error by itself, for a model that is followed so."""
    tables = Counting.made_tables.fget(SimpleNamespace(module=model)).get("tables")
    with mock.patch.object(waves, "FEW", arb(1)):
        read = ExactDecoder(as_bytes(model, {}), tables)
    if not MovedDecoder.follows(read, fmt):
        raise Refusal("not followed", NOT_CHECKABLE)
    return MovedDecoder(read, fmt).gaps(tokens, [0] * len(tokens), shift)


def outside(seed, found=balls):
    """How far a pushed run is beyond the balls, in their radii; None where the checker says nothing."""
    rng = random.Random(seed)
    model, tokens, shift = drawn(rng)
    numbers = oracle.stored(model)
    for x in model.buffers():  # sines and cosines, of so few bits that rounding them once changes nothing
        x.copy_((64 * x).round() / 64)
    numbers.cos, numbers.sin = (getattr(model.blocks[0].attention.rotation, x, None) for x in ("cos", "sin"))
    numbers.table = model.W_pos.detach().numpy() if model.pe in ("ape", "spe", "sine") else None
    try:
        rows = found(model, FORMAT, tokens, shift)
    except Refusal:
        return None
    computed = oracle.slow(numbers, tokens, shift, Pushed(rng), rng.choice([1, 2]))
    most = 0.0
    for row, logits in zip(rows, computed, strict=True):
        for ball, other in zip(row, logits[1:], strict=True):
            far, radius = abs(float(logits[0] - other) - float(ball.mid())), float(ball.rad())
            most = max(most, far / radius if radius else 2.0 * (far > 1e-12))
    return most


@pytest.mark.parametrize("seeds", first(1, [range(12), *(range(i, i + 300) for i in range(12, 3000, 300))]), ids=str)
def test_pushed_runs_are_within_the_balls(seeds):
    found = [x for x in map(outside, seeds) if x is not None]
    assert len(found) > len(seeds) / 4 and 0.005 < max(found) <= 1


@pytest.mark.parametrize("seeds", first(1, [range(6, 8), *(range(i, i + 200) for i in range(8, 3008, 200))]), ids=str)
def test_pushed_runs_are_within_each_error_by_itself(seeds):
    found = [x for x in (outside(seed, moved) for seed in seeds) if x is not None]
    assert len(found) > len(seeds) / 4 and 0.005 < max(found) <= 1


# ---- one operation after the other, of numbers that are exact or already off


def bare(tensors, **named):
    """A decoder with these tensors and a format, and nothing else; and its tensors as matrices."""
    on = object.__new__(ComputedDecoder)
    vars(on).update({"fmt": FORMAT, "growth": cache(FORMAT.growth), "norm": True, "bos": False, "eps": 2.0**-6} | named)
    on.exact = {name: fmpq_mat([[fmpq(*float(x).as_integer_ratio()) for x in row] for row in W])
                for name, W in tensors.items()}  # fmt: skip
    on.sizes, on.marks = ({name: of(x) for name, x in on.exact.items()} for of in (_magnitudes, _marks))
    on.factors = {name: as_factors(on.fmt, arb_mat(x)) for name, x in on.exact.items()}
    on.differences = on._differences
    return on, {name: arb_mat(x) for name, x in on.exact.items()}


def few(rng, rows, columns, scale=1.0):
    """Numbers of five bits, some of them 0."""
    return [[rng.choice([0, 1, 1, 1]) * rng.randint(-31, 31) / 16 * scale for _ in range(columns)] for _ in range(rows)]


def known(rng, rows, columns):
    """Balls, and a number at an end of each, all exact or none."""
    exact, far = few(rng, rows, columns), rng.choice([0.0, 2.0**-10, 2.0**-8])
    said = [[x + rng.choice([-1, 1]) * (x != 0) * far for x in row] for row in exact]
    return arb_mat([[arb(x, far) if x and far else arb(x) for x in row] for row in exact]), whole(said)


def summed(rng):
    """x W + b, and the stream."""
    (x, said), W = known(rng, 1, 3), few(rng, 3, 2, rng.choice([1, 1, 0, 2.0**-7]))
    b, stream = few(rng, 1, 2, rng.choice([1.0, 2.0**-7])), few(rng, 1, 2)
    on, tensors = bare({"W": W} | ({"b": b} if (has_b := rng.random() < 0.5) else {}))
    f, is_there = Pushed(rng, said), rng.random() < 0.5
    found = on._affine(x, tensors, "W", "b", arb_mat(stream) if is_there else None)
    factors, added = whole(W), whole(b * has_b + stream * is_there or [[0.0, 0.0]])
    return [f.sum([*f.products(said[0], factors[:, j]), *added[:, j]]) for j in range(2)], found.entries()


def placed(rng):
    """A token's row and its place's."""
    x, table = few(rng, 1, 3), few(rng, 1, 3, 2.0**-9)
    on, tensors = bare({"W_pos": table}, pe="ape")
    return [*add(Pushed(rng), whole(x), whole(table))[0]], on._placed(arb_mat(x), tensors, 0).entries()


def turned(rng):
    """A pair that is turned by the angle of its place."""
    (x, said), (c, s) = known(rng, 1, 2), few(rng, 1, 2)[0]
    on, _ = bare({}, heads=1)
    found = on._turned(x, {"cos": arb_mat([[c]]), "sin": arb_mat([[s]])}, 0)
    f, (a, b) = Pushed(rng, said), said[0]
    return [f.dot([a, b], whole([[c, -s]])[0]), f.dot([b, a], whole([[c, s]])[0])], found.entries()


def scored(rng):
    """Scores, divided by the root of 3, or times its reciprocal."""
    (on, _), (q, a), (k, b) = bare({}), known(rng, 1, 3), known(rng, 2, 3)
    f = Pushed(rng, a, b)
    root, products = f.number(mpmath.sqrt(3)), matmul(f, a, b.T)[0]
    by = rng.choice([lambda x: f.once(x / root), lambda x: f.once(x * f.once(1 / root))])
    return [*map(by, products)], on._scores(q, k).entries()


def weighed(rng):
    """A mean by softmax, divided before or after."""
    (on, _), n = bare({}), rng.randint(1, 4)
    (s, a), (v, b) = known(rng, 1, n), known(rng, n, 1)
    f = Pushed(rng, b)
    if rng.random() < 0.4:
        s, a = arb_mat([[0] * n]), whole([[0] * n])
    found, top = on._mean(s.entries(), v), max(a[0])
    if rng.random() < 0.5:
        return [f.dot(softmax(f, a)[0], b[:, 0])], found
    powers = [f.function("exp", f.once(x - top)) for x in a[0]]
    return [f.once(f.dot(powers, b[:, 0]) / f.sum(powers))], found


def weighed_alone(rng):
    """A mean in which nothing but exponentials is off, or nothing but the scores less the largest."""
    is_exp, u = rng.random() < 0.5, mpmath.mpf(2) ** -P
    on, _ = bare({}, growth=lambda n: FORMAT.growth(2) if n == 2 and not is_exp else arb(0))
    scores, values = few(rng, 1, 2, 1.0 if is_exp else 16.0)[0], few(rng, 2, 1)
    powers = []
    for x in whole(scores):
        lean = rng.choice([-1, 1])
        d = (x - max(scores)) * (1 + (not is_exp) * lean * u)
        powers.append(mpmath.exp(d) * (1 + (is_exp and d != 0) * 8 * lean * u))
    found = sum(x * y[0] for x, y in zip(powers, whole(values), strict=True)) / sum(powers)
    return [found], on._mean([*map(arb, scores)], arb_mat(values))


def normal(f, rng, x, weight, bias, eps):
    """LayerNorm, step by step or as x (w / s) + (b - mean w / s), its mean and variance as far off as they may be."""
    xs, u, d = [*x[0]], mpmath.mpf(2) ** -P, len(x[0])

    def moved(n):
        return rng.choice([-1, 0, 1]) * n * u / (1 - n * u)

    centre = mpmath.fsum(xs) / d
    variance = mpmath.fsum((y - centre) ** 2 for y in xs) / d + moved(4 * d + 16) * mpmath.fsum(y * y for y in xs) / d
    centre += moved(d + 2) * mpmath.fsum(map(abs, xs)) / d
    inverse = f.once(1 / f.once(mpmath.sqrt(f.once(max(variance, 0) + mpmath.mpf(eps))), 8))
    if rng.random() < 0.5:
        return [f.once(f.once(f.once(f.once(y - centre) * inverse) * w) + b)
                for y, w, b in zip(xs, weight, bias, strict=True)]  # fmt: skip
    gains = [f.once(inverse * w) for w in weight]
    return [f.once(f.once(y * g) + f.once(b - f.once(centre * g)))
            for y, g, b in zip(xs, gains, bias, strict=True)]  # fmt: skip


def row_of(rng):
    """A row for LayerNorm, sometimes one with a mean that is large, or 0; its gain and bias."""
    d, many = rng.choice([(2, 1), (4, 1), (24, 6)])
    x, said = known(rng, 1, d // many)
    level, bias = rng.choice([0, 0, 0.5, 8]), few(rng, 1, d)[0]
    alike = rng.choice([0, 1, 1, 1])
    x, said = [y * alike for y in x.table()[0]] * many, [y * alike for y in said[0]] * many
    x, said = [y + level for y in x], [y + level for y in said]
    return arb_mat([x]), np.array([said], dtype=object), few(rng, 1, d)[0], [y * rng.choice([0, 1]) for y in bias]


def normalised(rng):
    x, said, weight, bias = row_of(rng)
    on, tensors = bare({"n.weight": [weight], "n.bias": [bias]}, eps=rng.choice([2.0**-6, 1.0]))
    found = on._normal(x, tensors, "n").entries()
    return normal(Pushed(rng, said), rng, said, *whole([weight, bias]), on.eps), found


def active(rng):
    """GELU, off by eight round-offs of its argument, and stored."""
    (on, _), f, (x, said) = bare({}, activation=rng.choice(["gelu", "relu"])), Pushed(rng), known(rng, 1, 3)
    if on.activation == "relu":
        return [max(y, mpmath.mpf(0)) for y in said[0]], on._active(x).entries()
    computed = [y * mpmath.ncdf(y) + rng.choice([-1, 1]) * 8 * mpmath.mpf(2) ** -P * abs(y) for y in said[0]]
    return [*map(f.once, computed)], on._active(x).entries()


def read(rng):
    """A difference of two logits, with LayerNorm or without."""
    x, said, weight, bias = row_of(rng)
    U, b = few(rng, len(weight), 2), few(rng, 1, 2)
    if (kind := rng.random()) < 0.4:  # they read the sum of a row, or nothing of its mean
        weight, U = [1.0] * len(weight), [[0.0, 1.0 if kind < 0.2 else (-1.0) ** i] for i in range(len(weight))]
    on, tensors = bare({"norm.weight": [weight], "norm.bias": [bias], "W_U": U, "b_U": b}, norm=rng.random() < 0.7)
    on.eps = rng.choice([2.0**-6, 1.0])
    found, f = on._gaps(x, tensors, [1])[0], Pushed(rng, said)
    row = normal(f, rng, said, *whole([weight, bias]), on.eps) if on.norm else [*said[0]]
    logits = [f.once(f.dot(row, column) + y) for column, y in zip(whole(U).T, whole(b)[0], strict=True)]
    return [logits[1] - logits[0]], found


OPERATIONS = (summed, placed, turned, scored, weighed, weighed_alone, normalised, active, read)


def beyond(seed, operation):
    """How far computed numbers are beyond their balls, in radii; None where nothing is said."""
    rng, most = random.Random(seed), 0.0
    with mpmath.workprec(200), ctx.workprec(128):
        try:
            computed, balls = operation(rng)
        except Refusal:
            return None
        for x, ball in zip(computed, balls, strict=True):
            far = abs(arb(mpmath.nstr(x, 50)) - ball.mid())
            most = max(most, float(far / ball.rad()) if ball.rad() > 0 else 2.0 * float(far > 1e-30))
    return most


@pytest.mark.parametrize("seeds", first(1, [range(40), *(range(i, i + 1000) for i in range(40, 6000, 1000))]), ids=str)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda x: x.__name__)
def test_pushed_operations_are_within_the_balls(operation, seeds):
    found = [x for x in (beyond(seed, operation) for seed in seeds) if x is not None]
    assert len(found) > len(seeds) / 4 and 0.05 < max(found) <= 1


FAULTS = [
    (summed, "_affine", "y + arb(0, e) for y", "y for y"),
    (summed, "_off", "_magnitudes(x) * self.sizes[name]", "0 * _magnitudes(x) * self.sizes[name]"),
    (summed, "_off", "others = [] if stream is None else [stream.table()]", "others = []"),
    (summed, "_off", "if bias in self.sizes else []", "if False else []"),
    (summed, "_of_sum", "self.growth(n + 1) * total +", "0 * total +"),
    (summed, "_of_sum", "self.growth(n + 1) * total +", "self.growth(1) * total +"),
    (summed, "_of_sum", "(abs(y) for y in more), size)", "(), size)"),
    (summed, "_of_sum", "if products == 0 and n < 2", "if products < 2"),
    (placed, "_placed", "arb(0, self._of_sum(arb(0), 0, both))", "0"),
    (turned, "_summed", "self._of_sum(size, int(n.unique_fmpz() or 0))", "arb(0)"),
    (turned, "_summed", "_magnitudes(x) * _magnitudes(W)", "0 * _magnitudes(x) * _magnitudes(W)"),
    (scored, "_scores", "self._of_sum(size, int(n.unique_fmpz() or 0))", "arb(0)"),
    (scored, "_divided", "abs(y) * self.growth(4) +", "0 * y +"),
    (weighed_alone, "_mean", "self.growth(2) * 2 * top + 4 * fmt.tiny +", "0 *"),
    (weighed_alone, "_mean", "2 * (ULPS * fmt.u + self.growth(3))", "0"),
    (weighed_alone, "_mean", "x + arb(0, moved.upper()) for x in scores", "x for x in scores"),
    (weighed, "_mean", "off = (share + self.growth(n + 1) * (1 + share) ** 2) * size", "off = 0 * size"),
    (weighed, "_mean", "x + y + arb(0, off.upper())", "x + y"),
    (normalised, "_spread", "gamma(d + 2, self.fmt.u) * about +", "0 * about +"),
    (normalised, "_spread", "gamma(4 * d + 16, self.fmt.u) * squares +", "0 * squares +"),
    (normalised, "_spread", "arb(self.eps)", "arb(0)"),
    (normalised, "_spread", "self.growth(2) + ULPS * self.fmt.u * (1 + self.growth(2))", "0"),
    (normalised, "_rounded", "self.growth(8) * size * r * w +", "0 * size +"),
    (normalised, "_rounded", "self.growth(4) * b", "0 * b"),
    (normalised, "_normal", "y - of.centre + arb(0, of.off)", "y - of.centre"),
    (normalised, "_normal", "arb(0, self._rounded(of, size, a, b))", "0"),
    (active, "_active", "(share * abs(x) + tiny).upper()", "tiny"),
    (read, "_differences", "row[k] - y for y in row", "row[k] + y for y in row"),
    (read, "_differences", "x - total / d for x", "x for x"),
    (read, "_gaps", "g + arb(0, of.off) * arb(s)", "g"),
    (read, "_gaps", "(e + lost[k] + lost[j]).upper()", "e.upper()"),
    (read, "_gaps", "(arb_mat([local]) * _magnitudes(plain))", "(0 * arb_mat([local]) * _magnitudes(plain))"),
    (read, "_gaps", ") * of.inverse + b", ") * of.inverse.mid() + b"),
    (read, "_gaps", "g + of_b[k] - of_b[j]", "g"),
]


@pytest.mark.parametrize("number", first(1, range(len(FAULTS))))
def test_a_bound_that_forgets_something_is_found(number):
    """Each leaves out one rounding, or what an earlier one does."""
    operation, *fault = FAULTS[number]
    with planted(ComputedDecoder, *fault):
        assert any((beyond(seed, operation) or 0) > 1 for seed in range(4000))


# ---- each error by itself


def alone(**tensors):
    """A decoder of p4 with these tensors, and its numbers as it reads them."""
    on = MovedDecoder(SimpleNamespace(pe="ape", heads=1, norm=False, activation="gelu", bos=False), P4)
    on.W = {name: given(rows) for name, rows in tensors.items()}
    return on


def given(rows, is_stored=True):
    return MovedArray(Array(FLOAT, (len(rows), len(rows[0])), [[arb(x) for row in rows for x in row]]), {}, is_stored)


def has(found, *numbers):
    """Whether all of these lie in the hull."""
    return all(not (v < n or v > n) for v, n in zip(found.hull.rows[0], numbers, strict=True))


P4, SMALL = BinaryFormat(4, -126, 127), [[0.0625]] * 8  # each of which 1 swallows, in p4
CASES_ALONE = {  # the function, a fault in it, and whether the numbers of one evaluation are in what is found
    "products are rounded": ("_affine", "ADDED(at.terms(product_of, x, W), 1 + len(others))", "0", lambda: has(
        alone(W=[[1.0], *SMALL])._affine(given([[1.0] * 9]), "W", "b"), 1.0)),
    "a bias is a term": ("_affine", "ADDED(size, y.size)", "size", lambda: has(
        alone(W=[[0.0]], b=[[1.0]])._affine(given([[1.0]]), "W", "b", given([[0.0625]])), 1.0)),
    "a mean's sums are rounded": ("_mean", "ADDED(at.terms(product_of, share, v), 4)", "0", lambda: has(
        alone()._mean(given([[1.0], *SMALL])), *[1 / n for n in range(1, 10)])),
    "a mean's sums overflow": ("_mean", "at.within(found, product_of(seen, v.size), n + 1)", "found", lambda: not any(
        x.is_finite() for x in alone()._mean(given([[2.0**127], [2.0**127]])).hull.rows[0][1:])),
    "a turn is rounded": ("_turned", "0, 5)", "0, 0)", lambda: has(
        alone(cos=[[1.0]], sin=[[0.0625]])._turned(given([[1.0, 1.0]]), 0), 1.0, 1.0)),
    "places are rounded": ("_placed", "self.at.plus(x,", "self._moved(ADDED, x,", lambda: has(
        alone(W_pos=[[0.0625]])._placed(given([[1.0]]), 1, 0), 1.0)),
    "GELU is no ReLU": ("_active", '== "relu"', '!= "relu"', lambda: has(alone()._active(given([[-1.0]])), -0.1587)),
    "errors in two directions add up": ("_apart", "abs(g[k] - g[j])", "g[k] - g[j]", lambda: all(
        x.contains(y) for y in (-2, 2)
        for x in alone()._apart(MovedArray(given([[0.0, 0.0]]).mid, {0: [arb(0), arb(1)], 1: [arb(1), arb(0)]}), 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES_ALONE)
def test_an_error_by_itself_that_is_forgotten_is_found(name):
    function, right, wrong, case = CASES_ALONE[name]
    assert case()
    with planted(MovedDecoder, function, right, wrong):
        assert not case()


# ---- factors of fewer bits

FEWER = BinaryFormat(P, -126, 127, factors=4)


class Few(Pushed):
    """Factors of matrix products are rounded to four bits, or not, each to one number."""

    def __init__(self, *args):
        super().__init__(*args)
        self.factor = cache(self._factor)

    def products(self, xs, ys):
        return super().products([*map(self.factor, xs)], [*map(self.factor, ys)])

    def _factor(self, x):
        if x == 0 or self.rng.random() < 0.3:
            return x
        m, e = mpmath.frexp(x)
        return mpmath.ldexp(mpmath.nint(m * 16) / 16, e)


def beyond_with_few(seed, operation):
    with mock.patch.dict(globals(), FORMAT=FEWER, Pushed=Few):
        return beyond(seed, operation)


@pytest.mark.parametrize("seeds", first(1, [range(40), range(40, 4000)]), ids=str)
@pytest.mark.parametrize("operation", [summed, scored, weighed, read], ids=lambda x: x.__name__)
def test_operations_on_factors_of_fewer_bits_are_within_the_balls(operation, seeds):
    found = [x for x in (beyond_with_few(seed, operation) for seed in seeds) if x is not None]
    assert found and 0.05 < max(found) <= 1


FAULTS_OF_FACTORS = [
    (summed, "_affine", "as_factors(self.fmt, x)", "x"),
    (summed, "_affine", "W | {name: self.factors[name]}", "W"),
    (scored, "_scores", "root = as_factors(self.fmt, q),", "root = q,"),
    (weighed, "_mean", "as_factors(self.fmt, values)", "values"),
    (weighed, "_mean", "(arb(2) ** -fmt.factors if fmt.factors else 0)", "0"),
    (read, "_gaps", "b.rad() - a.rad() for a, b", "arb(0) for a, b"),
    (read, "_gaps", '+ _magnitudes(read) * _radii(self.factors["W_U"])', ""),
]


@pytest.mark.parametrize("number", first(2, range(len(FAULTS_OF_FACTORS))))
def test_a_bound_that_forgets_a_factor_is_found(number):
    operation, *fault = FAULTS_OF_FACTORS[number]
    with planted(ComputedDecoder, *fault):
        assert any((beyond_with_few(seed, operation) or 0) > 1 for seed in range(4000))


@pytest.mark.parametrize("seeds", first(1, [range(6), range(6, 200)]), ids=str)
def test_runs_with_factors_of_eleven_bits_are_within_the_balls(seeds):
    number = 0
    for seed in seeds:
        rng = random.Random(seed)
        model, tokens, shift = drawn(rng)
        with torch.no_grad():
            for x in model.parameters():
                x.mul_(1 + torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)) / 64)
        try:
            rows = decoder(model.float(), TF32).gaps(tokens, [0] * len(tokens), shift, 128)
        except Refusal:
            continue
        with torch.no_grad(), FactorsOfElevenBits() as mode:
            logits = model.double()(torch.tensor([tokens]), shift=shift)[0]
        assert mode.met > 3
        for row, said in zip(rows, logits.tolist(), strict=True):
            for ball, other in zip(row, said[1:], strict=True):
                assert (ball + arb(0, 1e-12)).contains(said[0] - other) or not ball.is_finite(), seed
                number += 1
    assert number


@pytest.mark.parametrize("seeds", first(1, [range(8), range(8, 200)]), ids=str)
@pytest.mark.parametrize("found", first(1, [balls, moved]), ids=lambda x: x.__name__)
def test_what_torch_computes_is_within_the_balls(found, seeds, device):
    """Differences of logits in float32, bfloat16 and float16."""
    closest, number = 0.0, 0
    for seed in seeds:
        rng = random.Random(seed)
        model, tokens, shift = drawn(rng)
        dtype = rng.choice(["float32", "bfloat16", "float16"])
        try:
            rows = found(model, BinaryFormat(*NAMED[dtype]), tokens, shift)
        except Refusal:
            continue
        with torch.no_grad():
            logits = model.to(getattr(torch, dtype)).to(device)(torch.tensor([tokens], device=device), shift=shift)[0]
        for row, said in zip(rows, logits.double().tolist(), strict=True):
            for ball, other in zip(row, said[1:], strict=True):
                assert ball.contains(said[0] - other) or not ball.is_finite(), (seed, dtype)
                number += 1
                closest = max(closest, abs(said[0] - other - float(ball.mid())) / (float(ball.rad()) or 1.0))
    assert number and 1e-3 < closest <= 1
