"""Pairs of addition modulo P in a format: drawn evaluations, in any order, are within what each pair may lose."""

import copy
import json
import math
import random
from dataclasses import replace
from itertools import product
from unittest import mock

import pytest
import torch
from flint import arb, ctx, fmpq, fmpq_mat
from models.certificates import honest, real
from models.selection import first
from oracles.forged import falsehood
from test_checker_dtypes import sha, times
from test_checker_real import outcome

from constructions.adder.transformer import to_bytes
from tests.planted import planted
from verify.checker import any_order, kinds, rounded_pairs
from verify.checker.adder import Adder, AdderLayer, rounded
from verify.checker.formats import NAMED, TF32, BinaryFormat
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.checker.roundoff import Roundoff

BITS = {"tf32": 24, "bfloat16": 8, "float16": 11}
P = 3
PAIRS = [*product(range(P), repeat=2)]


def of(name):
    return TF32 if name == "tf32" else BinaryFormat(*NAMED[name])


def near(x, p):
    m, e = math.frexp(x)
    return math.ldexp(round(math.ldexp(m, p)), e - p)


class Evaluation:
    """Numbers rounded or kept wider at every step, factors at every read, and sums in a drawn order."""

    def __init__(self, name, seed):
        self.p, self.draw, self.has_few = BITS[name], random.Random(seed), name == "tf32"

    def result(self, x):
        return near(x, self.p) if self.draw.random() < 0.8 else x

    def factor(self, x):
        x = near(x, self.p)
        return near(x, 11) if self.has_few and self.draw.random() < 0.7 else x

    def total(self, terms):
        terms = [x for x in terms if x != 0]
        while len(terms) > 1:
            self.draw.shuffle(terms)
            terms.append(self.result(terms.pop() + terms.pop()))
        return terms[0] if terms else 0.0

    def affine(self, x, W, *others):
        """x W and the others, all one sum."""
        rows = [*zip(*([float(y) for y in row] for row in W.tolist()), strict=True)]
        return [
            self.result(self.total([
                *(self.result(self.factor(a) * self.factor(b)) for a, b in zip(x, column, strict=True)),
                *(other[j] for other in others)]))
            for j, column in enumerate(rows)
        ]  # fmt: skip

    def logits(self, model, a, b):
        """At "=" after a pair, attention being uniform."""
        x = [[*map(self.result, map(float, model.embedded(t, i)))] for i, t in enumerate((a, b, P))]
        layer, parts = model.layers[0], list[list[float]]()
        for head in layer.heads:
            values = [self.affine(row, head[2]) for row in x]
            by_reciprocal = self.draw.random() < 0.5
            shares = [self.result(self.result(1 / 3)) if by_reciprocal else self.result(1 / 3) for _ in x]
            if self.draw.random() < 0.5:
                mean = self.affine(shares, fmpq_mat([[fmpq(*v.as_integer_ratio()) for v in row] for row in values]))
            else:  # divided after weighing
                mean = [
                    self.result(self.total([*map(self.factor, column)]) / 3) for column in zip(*values, strict=True)
                ]
            parts.append(self.affine(mean, head[3]))
        stream = [self.total(column) for column in zip(*parts, *([x[2]] if model.skip else []), strict=True)]
        (b_1,), (b_out,) = ([[float(y) for y in row] for row in W.tolist()] for W in (layer.b_1, model.b_out))
        hidden = [max(0.0, z) for z in self.affine(stream, layer.W_1, b_1)]
        stream = self.affine(hidden, layer.W_2, *([stream] if model.skip else []))
        return self.affine(stream, model.W_out, b_out)


def matrix(rows, columns, number):
    return fmpq_mat(rows, columns, [fmpq(*number().as_integer_ratio()) for _ in range(rows * columns)])


def drawn(name, seed, d=2, p=3):
    """A drawn adder of P = 3."""
    draw = random.Random(seed)

    def small():
        x = near(draw.gauss(0, 1), 11 if name == "tf32" and seed % 2 else BITS[name])
        return x if abs(x) > 2.0**-10 else 0.0

    heads = [
        (fmpq_mat(d, 1), matrix(d, 1, small), matrix(d, 2, small), matrix(2, d, small)) for _ in range(1 + seed % 2)
    ]
    layer = AdderLayer(heads, *(matrix(*sizes, small) for sizes in ((d, p), (1, p), (p, d))))
    E, W_out, b_out = (matrix(*sizes, small) for sizes in ((P + 1, d), (d, P), (1, P)))
    return Adder({}, seed % 3 > 0, E, fmpq_mat(3, d), [layer], W_out, b_out)


def farthest_off(model, name, evaluations, pairs=PAIRS):
    """By how much of its bound a difference of logits moves at most."""
    bound, worst = rounded_pairs.RoundedPairs(model, of(name)), 0.0
    for a, b in pairs:
        with ctx.workprec(rounded_pairs.BITS):
            found = [(float(gap), float(off)) for gap, off in bound.gaps(a, b)]
        right, others = (a + b) % P, [j for j in range(P) if j != (a + b) % P]
        for evaluation in evaluations:
            logits = evaluation.logits(model, a, b)
            for j, (gap, off) in zip(others, found, strict=True):
                far = abs(logits[right] - logits[j] - gap) - 1e-13
                worst = max(worst, far / off if off > 0 else math.inf if far > 0 else 0.0)
    return worst


@pytest.mark.parametrize("seeds", first(1, [range(2), range(2, 150)]), ids=str)
def test_evaluations_are_within_what_a_pair_may_lose(seeds):
    found = {
        name: [
            farthest_off(rounded(drawn(name, seed), Roundoff(of(name))), name, [Evaluation(name, seed)] * 2)
            for seed in seeds
        ]
        for name in BITS
    }
    assert all(max(x) <= 1 for x in found.values()) and all(max(x) > 0.01 for x in found.values()), found


class InOrder(Evaluation):
    """Every sum from left to right, each result rounded."""

    def __init__(self):
        super().__init__("bfloat16", 0)
        self.draw.random = lambda: 0.5  # a quotient, and the values weighed by it

    def total(self, terms):
        found = 0.0
        for x in terms:
            found = self.result(found + x)
        return found


N = 33


def stagnating(stage):
    """An adder one of whose sums is 1 and 40 halves of its last place, each of which is lost; logit 0 reads it."""
    ones, zeros = [1] * N, [0] * N
    falling = fmpq_mat([[1] + [fmpq(1, 256)] * (N - 1)])
    column, unit = falling.transpose(), fmpq_mat([[1] + [0] * (N - 1)])
    neuron, written = fmpq_mat(N, 1), fmpq_mat(1, N)
    E = fmpq_mat([ones] * (P + 1))
    W_V, W_O, b_1 = fmpq_mat(N, 1), fmpq_mat(1, N), fmpq_mat(1, 1)
    W_out = fmpq_mat([[1, 0, 0], *[[0, 0, 0]] * (N - 1)])
    if stage == "neurons":
        neuron, written = column, unit
    elif stage == "sum":
        neuron, b_1, written = fmpq_mat([ones, *[zeros] * (N - 1)]), fmpq_mat(1, N), fmpq_mat(
            [[x, *zeros[1:]] for (x,) in column.table()])  # fmt: skip
    elif stage == "last":
        W_out = fmpq_mat([[x, 0, 0] for (x,) in column.table()])
    else:  # what attention reads of the numbers, and a neuron of it
        sign = -1 if stage == "open" else 1
        E = fmpq_mat([*[ones] * P, [int(sign < 0), *zeros[1:]]])
        W_V, W_O, neuron = sign * column, unit, unit.transpose()
        b_1 = fmpq_mat([[fmpq(int(sign < 0), 32)]])
        written = fmpq_mat([[0, 1, *zeros[2:]]])
        W_out = fmpq_mat([[0, 0, 0], [1, 0, 0], *[[0, 0, 0]] * (N - 2)])
    head = (fmpq_mat(N, 1), fmpq_mat(N, 1), W_V, W_O)
    return Adder({}, True, E, fmpq_mat(3, N), [AdderLayer([head], neuron, b_1, written)], W_out, fmpq_mat(1, P))


FAULTS = [
    ("neurons", "neurons", "own = self.rounds(sizes, W_1, [exact(b_1)])", "own = [arb(0)] * W_1.ncols()"),
    ("sum", "gaps", "of_sum = self.rounds(z.sizes, self.layer.W_2, others)", "of_sum = [arb(0)] * len(x)"),
    ("last", "gaps", "last = self.rounds(sizes, self.model.W_out, [exact(self.model.b_out)])",
     "last = [arb(0)] * self.P"),
    ("stream", "gaps", "off = self.stream(a, b)", "off = [arb(0)] * len(x)"),
    ("stream", "stream", "3 * a, 3 * b + 1, 3 * self.P + 2", "*[3 * self.P + 2] * 3"),
    ("stream", "_lost", "e * (abs(slope) + sum((y for _, y in terms), arb(0)))", "e * abs(self.model.skip * v)"),
    ("open", "gaps", "z, others = self.neurons(x, off)",
     "z, others = self.neurons(x, off)._replace(off=[arb(0)] * self.layer.b_1.ncols())"),
    ("open", "_lost", "e * (abs(slope) + sum((y for _, y in terms), arb(0)))", "0"),
]  # fmt: skip


@pytest.mark.parametrize(("stage", "function", "right", "wrong"), FAULTS)
def test_a_fault_in_what_is_lost_is_seen(stage, function, right, wrong):
    model = stagnating(stage)
    assert 0.05 < farthest_off(model, "bfloat16", [InOrder()], [(0, 1)]) <= 1
    with planted(rounded_pairs.RoundedPairs, function, right, wrong):
        assert farthest_off(model, "bfloat16", [InOrder()], [(0, 1)]) > 1


def test_a_number_that_is_flushed_where_it_is_read_is_in_the_bound():
    """It is just above the smallest normal number, kept or flushed, and W is large."""
    with ctx.workprec(rounded_pairs.BITS):
        tiny = arb(2) ** -126
        bound = rounded_pairs.RoundedPairs(stagnating("last"), of("bfloat16"))
        right, wrong = "fmt.u * y + fmt.tiny if", "fmt.u * y if"
        large = fmpq_mat([[1 << 30]])
        assert bound.rounds([tiny], large, [])[0] >= tiny * 2**30
        with planted(rounded_pairs.RoundedPairs, "given", right, wrong):
            assert not bound.rounds([tiny], large, [])[0] >= tiny * 2**30


def test_half_of_the_margin_of_each_pair_is_shown():
    weights, text = honest("clock, tf32")
    c = json.loads(text)
    assert any_order.HALF in kinds.check(weights, text.encode())[1]
    for factor, holds in ((1.1, True), (3, False)):
        assert (outcome(weights, json.dumps(times(c, factor)))[0] == 0) == holds
    assert outcome(weights, json.dumps(times(c, 3)))[0] == 1


@pytest.mark.parametrize("seeds", first(1, [range(2), range(2, 60)]), ids=str)
def test_mutated_clocks_against_the_oracle(seeds):
    """A forged proof holds only where real arithmetic on the rounded numbers has the margin."""
    (problem, _), held, c = real("clock"), 0, json.loads(honest("clock, tf32")[1])
    for seed in seeds:
        draw, module = random.Random(seed), copy.deepcopy(problem.model)
        with torch.no_grad():
            x = draw.choice([x for x in module.parameters() if x.numel()])
            x.view(-1)[draw.randrange(x.numel())] += draw.choice([2.0**-6, 0.25, 1.0]) * draw.choice([-1, 1])
        weights = to_bytes(module, {"task": "modular", "P": 5})
        for factor in (0.3, 1.5):
            forged = json.dumps(times(c, factor) | {"weights_sha256": sha(weights)})
            if outcome(weights, forged)[0] == 0:
                held += 1
                assert falsehood(weights, forged) is None, (seed, factor)
    assert held


def test_more_pairs_than_can_be_followed_are_refused():
    model = stagnating("last")
    with mock.patch.object(rounded_pairs, "MOST_TERMS", P**3 * N - 1), pytest.raises(Refusal) as refusal:
        rounded_pairs.RoundedPairs(model, of("tf32"))
    assert refusal.value.exit_code == NOT_CHECKABLE


def test_attention_that_looks_at_numbers_is_refused():
    model = stagnating("stream")
    (head,) = model.layers[0].heads
    looking = replace(model, layers=[replace(model.layers[0], heads=[(head[2], head[2], *head[2:])])])
    with pytest.raises(Refusal) as refusal:
        rounded_pairs.RoundedPairs(looking, of("tf32")).stream(0, 1)
    assert refusal.value.exit_code == NOT_CHECKABLE
