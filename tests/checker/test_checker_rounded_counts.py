"""What roundings take off a histogram model's forms, slot by slot: every drawn evaluation in tf32 is above them."""

import base64
import json
import math
import random
import zlib
from itertools import product
from pathlib import Path

import pytest
import torch
from flint import arb, ctx, fmpq_mat
from models.random_models import random_model
from models.selection import first
from oracles.forged import falsehood
from test_checker_dtypes import sha, times
from test_checker_real import outcome

from constructions import checkpoint, relation_counting
from constructions.histogram import HistogramTransformer
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.checker import any_order, forwards, kinds, leaves, rounded_counts
from verify.checker.formats import NAMED, TF32, BinaryFormat
from verify.checker.mathematics import BITS
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_weights
from verify.tasks.histogram.rounded.verdict import certify

ATTENDING = [seed for seed in range(400) if seed % 6 > 1]  # models that attend: of the others weights go by position
BY_POSITION = [seed for seed in range(400) if seed % 6 < 2]


def eleven(x):
    m, e = torch.frexp(x)
    return torch.ldexp((m * 2**11).round() / 2**11, e)


class Drawn:
    """A drawn model as tf32 stores it, and what one evaluation computes of all its inputs."""

    def __init__(self, seed, module=None):
        self.module, self.draw = (module or random_model(seed)).float().double(), random.Random(seed)
        if self.module.is_linear and not self.module.is_softmax:
            with torch.no_grad():
                self.module.A.abs_()
        of_file = read_weights(checkpoint.as_bytes(self.module.float(), claim=None, construction=None))
        self.w, self.W = forwards.rounded_once(of_file, TF32)
        self.module = self.module.double()
        self.tokens = torch.tensor([*product(range(self.module.T), repeat=self.module.L)])

    def model(self):
        with ctx.workprec(BITS + 64):
            root = arb(self.module.d).sqrt()
            return rounded_counts.rounded_model(TF32, self.w, self.W, [0.0] * self.module.L, root)

    def read(self, x):
        """Each number as it is, or rounded to 11 bits."""
        drawn = torch.Generator().manual_seed(self.draw.randrange(2**30))
        return torch.where(torch.rand(x.shape, generator=drawn) < 0.7, eleven(x), x)

    def computed(self):
        """Pre-activations and logits."""
        m, read = self.module, self.read
        x = context = m.E[self.tokens]
        if m.has_bos:
            context = torch.cat([m.e_BOS.expand(len(x), 1, m.d), x], 1)
        if m.is_linear:
            scores = m.A
        else:
            q, k = (read(y) @ read(M) for y, M in ((x, m.W_Q), (context, m.W_K)))
            scores = read(q) @ read(k).transpose(1, 2) / math.sqrt(m.d)
        mixing = scores.softmax(-1) if m.is_softmax else scores
        z = read(x + read(mixing) @ read(context)) @ read(m.W_1) + m.b_1
        return z, read(z.relu()) @ read(m.W_2) + m.b_2


def shortfalls(seed, evaluations=3, module=None):
    """By how much what is computed is below the bound on it: of forms, and of differences of logits."""
    drawn = Drawn(seed, module)
    model, p, draw = drawn.model(), drawn.module.p, random.Random(seed)
    one, forms = float(model.one), [[int(i == j) for j in range(p)] for i in range(p)]
    forms += [[-x for x in n] for n in forms] + [[draw.randint(-3, 3) for _ in range(p)] for _ in range(4)]
    bounds, queries = {}, {(place * model.is_linear, q[0]): q for q, place in model.queries().items()}
    for (here, q), (i, n) in product(queries.items(), enumerate(forms)):
        u = [sum(x * column[s] for x, column in zip(n, model.columns[:p], strict=True)) for s in range(len(model.V))]
        bias = sum(x * b for x, b in zip(n, model.biases[:p], strict=True))
        bounds[here, i] = model.least(q, u, bias, dict(enumerate(n)))
    found = [[-math.inf], [-math.inf]]
    for _ in range(evaluations):
        with torch.no_grad():
            z, logits = drawn.computed()
        for at, tokens in enumerate(drawn.tokens.tolist()):
            for position, t in enumerate(tokens):
                k, row, place = tokens.count(t), [float(x) for x in z[at, position]], position * model.is_linear
                if (place, t) not in queries:  # a position that mixes as another does
                    continue
                weights = [float(w) for w in weights_of(model, tokens, position)]
                D = sum(weights) if model.is_softmax else float(model.D[0])
                for i, n in enumerate(forms):
                    here = sum(x * y for x, y in zip(n, row, strict=True))
                    found[0].append(float(bounds[(place, t), i][k - 1]) / D / one**2 - here)
                right = model.right(k)
                for other in {*model.classes} - {right}:
                    slopes = model.slopes(right, other)
                    least = sum(x * max(0.0, y) for x, y in zip(slopes[:-1], row, strict=True)) + slopes[-1]
                    gap = float(logits[at, position, right] - logits[at, position, other])
                    found[1].append(least / one - gap)
    return [max(x) for x in found]


def weights_of(model, tokens, position):
    """Of all that is mixed in, less the largest that there is; without softmax they are not needed."""
    of_row = model.scores[position if model.is_linear else tokens[position]]
    context = range(model.L) if model.is_linear else [*tokens, *range(model.T, len(model.V))]
    return [model.weight(of_row[s] - max(of_row))[0] for s in context] if model.is_softmax else []


def worst(seeds):
    found = [[-math.inf], [-math.inf]]
    for seed in seeds:
        try:
            both = shortfalls(seed)
        except Refusal as refusal:
            assert refusal.exit_code == NOT_CHECKABLE
            continue
        for listed, x in zip(found, both, strict=True):
            listed.append(x)
    return [max(x) for x in found]


@pytest.mark.parametrize("seeds", first(1, [ATTENDING[:1], ATTENDING[1:80]]), ids=lambda x: str(len(x)))
def test_what_is_computed_is_above_the_bounds(seeds):
    assert max(worst(seeds)) <= 1e-9


@pytest.mark.parametrize("seeds", first(1, [BY_POSITION[2:8], BY_POSITION[:80]]), ids=lambda x: str(len(x)))
def test_what_is_computed_of_weights_by_position_is_above_the_bounds(seeds):
    assert -1 < max(worst(seeds)) <= 1e-9


def one_of(kind, T, L, d, p=1, **weights):
    """A model whose numbers are given, and otherwise 0."""
    module = HistogramTransformer(kind, T=T, L=L, d=d, p=p, classes=L, dtype=torch.float64)
    with torch.no_grad():
        for name, W in module.named_parameters():
            W.copy_(torch.tensor(weights[name], dtype=torch.float64).reshape(W.shape) if name in weights else 0 * W)
    return module


def tilted():
    """Scores 256 1/16 and 256 over sqrt(2), the first from a query of 13 bits."""
    q = [[4097 / 16, 256], [0, 0]]
    return one_of("dot+sftm", 2, 2, 2, E=[[1, 0], [0, 1]], W_Q=q, W_K=[[1, 0], [0, 1]], W_1=[1, -1])


def read_and_multiplied():
    """1 + 2^-11 and a little less, rounded down to 1, times as much again."""
    return one_of("dot", 2, 1, 1, E=[1, 1], W_Q=[1], W_K=[2**-11 - 2**-22], W_1=[1 + 2**-11 - 2**-22])


C = rounded_counts.CountRoundings
CAUGHT = [  # by what is computed of which models
    ("_of_weights", "w * self.few", "0 * w", ATTENDING[:12]),
    ("_of_weights", "e * D", "0 * e * D", ATTENDING[:24]),
    ("_shares", "(1 + moved) * d - 1", "d - 1", tilted),
    ("_read_by_neurons", "* (1 + self.few) *", "*", ATTENDING[:12]),
    ("_read_by_neurons", "+ weights.error", "", read_and_multiplied),
    ("_read_by_logits", "(e + (grown", "(0 * e + (grown", ATTENDING[:24]),
    ("slopes", "- y for", "for", ATTENDING[:12]),
    ("slopes", "n - x", "n", ATTENDING[:24]),
    ("costs", "off * abs(x)", "0", ATTENDING[:12]),
    ("costs", "weight[1] * rest", "0", ATTENDING[:24]),
    ("costs", "self.share * abs(x) +", "", BY_POSITION[:24]),
    ("costs", "(1 + self.share) * y", "0 * y", BY_POSITION[:24]),
    ("costs", "_above(x) + rest", "_above(x)", BY_POSITION[:24]),
]


@pytest.mark.parametrize("module", [tilted, read_and_multiplied], ids=lambda x: x.__name__)
def test_what_is_known_to_happen_is_above_the_bounds(module):
    assert max(shortfalls(1, 20, module())) <= 1e-9


@pytest.mark.deep
@pytest.mark.parametrize("fault", CAUGHT, ids=lambda x: f"{x[0]}: {x[1]}")
def test_a_bound_without_one_of_its_terms_is_passed(fault):
    *planted_one, of = fault
    with planted(C, *planted_one):
        found = worst(of) if isinstance(of, list) else shortfalls(1, 20, of())
    assert max(found) > 1e-6


IN_THE_BOUND = [  # too small beside the others for a test that sees them by what is computed
    ("_shares", "(1 + self.few)", "1", "dot+sftm"),
    ("_read_by_neurons", "+ off * grown * weights.size", "", "dot"),
    ("costs", "always, found = 0 if self.model.is_softmax else rest * self.model.D[1]", "always, found = 0", "dot"),
    ("_read_by", "self._ends(arb(x), e)", "[arb(x) - e, arb(x) + e]", "dot"),
]


@pytest.mark.parametrize("fault", IN_THE_BOUND, ids=lambda x: f"{x[0]}: {x[1]}")
def test_each_term_makes_the_bound_wider(fault):
    *planted_one, kind = fault
    numbers = torch.Generator().manual_seed(1)
    shapes = {"E": (2, 2), "W_Q": (2, 2), "W_K": (2, 2), "W_1": (2, 1), "W_2": (1, 2)}
    weights = {
        name: torch.randn(shape, generator=numbers, dtype=torch.float64).tolist() for name, shape in shapes.items()
    }
    drawn = Drawn(0, one_of(kind, 2, 2, 2, **weights))

    def cost():
        found, always = drawn.model().costs(0, [1 << 60, 1 << 60], {0: 1})
        return sum(found) + always

    before = cost()
    with planted(C, *planted_one):
        assert cost() < before


BUILT = {"dot": relation_counting.dot, "bos": relation_counting.bos, "bos+sftm": relation_counting.bos_sftm}


def proof_of(build, T, L):
    file = checkpoint.as_bytes(build(T=T, L=L), claim=None, construction=None)
    return file, certify(build(T=T, L=L), fmt=FORMATS["tf32"]).about(file).to_json()


@pytest.mark.parametrize("name", BUILT)
def test_half_of_the_margin_is_shown(name):
    file, text = proof_of(BUILT[name], 8, 6)
    assert any_order.HALF in kinds.check(file, text.encode())[1]
    for factor, holds in ((1.0, True), (2.2, False), (5.0, False)):
        assert (outcome(file, json.dumps(times(json.loads(text), factor)))[0] == 0) == holds, factor


@pytest.mark.parametrize("name", BUILT)
def test_no_false_margin_holds_of_a_mutated_model(name):
    _, text = proof_of(BUILT[name], 3, 3)
    held = 0
    for seed, share in product(range(8), (0.4, 0.02)):
        module, draw = BUILT[name](T=3, L=3), random.Random(seed)
        with torch.no_grad():
            W = draw.choice([*module.parameters()]).view(-1)
            W[draw.randrange(len(W))] += draw.choice([-0.25, -0.0625, 0.015625, 0.125])
        moved = checkpoint.as_bytes(module, claim=None, construction=None)
        forged = json.dumps(times(json.loads(text), share) | {"weights_sha256": sha(moved)})
        if outcome(moved, forged)[0] == 0:
            held += 1
            assert falsehood(moved, forged) is None, seed
    assert held


def test_what_only_roundings_make_right_is_not_called_false():
    """A score of (1 + 2^-7)^2 is 1 + 2^-6 as a factor of bfloat16, which turns a neuron off that real numbers turn on.

    So the one margin of all evaluations is 1, and a tree of leaves that say so is true. In real arithmetic 9 are lost.
    """
    module = HistogramTransformer("dot", T=2, L=1, d=1, p=1, classes=2, dtype=torch.float64)
    factor = [1 + 2.0**-7]
    weights = {"E": [1, 1], "W_Q": factor, "W_K": factor, "W_1": [2.0**14], "W_2": [0, 10], "b_2": [1, 0]}
    weights["b_1"] = [-(2.0**15) - 2.0**8]
    with torch.no_grad():
        for name, W in module.named_parameters():
            W.copy_(torch.tensor(weights[name], dtype=torch.float64).reshape(W.shape))
    file, certificate = (
        checkpoint.as_bytes(module, claim=None, construction=None),
        certify(module, fmt=FORMATS["bfloat16"]),
    )
    assert certificate.verdict.value == "PROVED" and certificate.margin > 0.99
    leaves = {"rows": [[[0], [[]]]], "cells": [[0, t, [], [[1, [0]]]] for t in range(2)]}
    data = base64.b64encode(zlib.compress(json.dumps(leaves).encode())).decode()
    tree = {"parts": 2, "data": data, "reason": None}
    said = json.loads(certificate.about(file).to_json())
    assert outcome(file, json.dumps(said))[0] == 0  # part by part of what every order computes
    assert outcome(file, json.dumps(said | {"tree": tree}))[0] == NOT_CHECKABLE


# ---- weights by position


def near(x, p):
    m, e = math.frexp(x)
    return math.ldexp(round(math.ldexp(m, p)), e - p)


def off_by_position(seed):
    """The largest share of itself that a weight of lin+sftm is off in one order of bfloat16, and the checker's."""
    draw, fmt = random.Random(seed), BinaryFormat(*NAMED["bfloat16"])
    A = [[near(draw.uniform(0, 8), 8) for _ in range(4)] for _ in range(4)]
    module = one_of("lin+sftm", 2, 4, 1, A=A, E=[1, 1], W_1=[1])
    w, W = forwards.rounded_once(read_weights(checkpoint.as_bytes(module, claim=None, construction=None)), fmt)
    with ctx.workprec(BITS + 64):
        share = float(rounded_counts.rounded_model(fmt, w, W, [0.0] * 4, arb(1)).roundings.share)
    found = 0.0
    for row in A:
        real, exps = [math.exp(x) for x in row], [near(math.exp(near(x - max(row), 8)), 8) for x in row]
        total = 0.0
        for x in exps:
            total = near(total + x, 8)
        off = (abs(near(x / total, 8) / (y / sum(real)) - 1) for x, y in zip(exps, real, strict=True))
        found = max(found, *off)
    return found, share


def test_a_weight_by_position_is_off_by_no_more_than_its_share():
    pairs = [*map(off_by_position, range(12))]
    assert all(0 < found <= share for found, share in pairs)
    for right, wrong in (("p * off", "0 * p"), ("(1 + 2 * a / (1 - a)) *", "")):
        with planted(C, "_of_positions", right, wrong):
            assert all(off_by_position(seed)[1] < share for seed, (_, share) in enumerate(pairs))
    with planted(C, "_of_positions", "p * off", "0 * p"):
        assert any(found > share for found, share in map(off_by_position, range(12)))


def test_weights_below_0_are_not_followed():
    drawn = Drawn(0, one_of("lin+sftm", 2, 2, 1, E=[1, 1]))
    drawn.w.repeated["parameters"]["model"] = "lin"
    drawn.W["A"] -= drawn.W["A"] + 1 * fmpq_mat(2, 2, [1, 0, 0, 0])
    with pytest.raises(Refusal, match="weights below 0"):
        drawn.model()


@pytest.mark.parametrize("name", ["lin_T16_L5_d12", "lin+sftm_T16_L5_d12"])
def test_half_of_the_margin_of_found_weights_by_position_is_shown(name):
    """Proofs in tf32 that one bound for all inputs is too much for; more than twice the margin is not shown."""
    path = Path(__file__).parents[1] / f"data/frontier/{name}.safetensors"
    file, text = (
        path.read_bytes(),
        certify(checkpoint.load(path), fmt=FORMATS["tf32"]).about(path.read_bytes()).to_json(),
    )
    assert any_order.HALF in kinds.check(file, text.encode())[1]
    assert [outcome(file, json.dumps(times(json.loads(text), factor)))[0] for factor in (2.5, 5.0)] == [3, 3]


def above_leaves(seed):
    """By how much a leaf without splits is above what is computed of pre-activations at position 0."""
    drawn = Drawn(seed)
    model, found = drawn.model(), [-math.inf]
    region = leaves.Region((leaves.Group(tuple(range(1, model.L)), None, {}),))
    ends = {}
    for t in range(model.T):
        at = leaves.At(leaves.QueryCell(model, t, [], [0], [[[*range(1, model.L)]]]), 0)
        ends[t] = [[form.least(region, k) for form in at.low[:-1]] for k in range(1, model.L + 1)]
    for _ in range(3):
        with torch.no_grad():
            z, _ = drawn.computed()
        for tokens, row in zip(drawn.tokens.tolist(), z[:, 0].tolist(), strict=True):
            D = sum(map(float, weights_of(model, tokens, 0))) if model.is_softmax else float(model.D[0])
            least = ends[tokens[0]][tokens.count(tokens[0]) - 1]
            found += [float(x) / D / float(model.one) ** 2 - y for x, y in zip(least, row, strict=True)]
    return max(found)


LEAVES = [seed for seed in BY_POSITION[2:40] if seed not in (18, 49)]


def test_a_leaf_of_weights_by_position_is_below_what_is_computed():
    def worst_leaf(seeds):
        return max(above_leaves(seed) for seed in seeds)

    assert worst_leaf(LEAVES[:12]) <= 1e-9
    with planted(leaves.LeafForm, "__init__", "u, lost = [x - y for", "u, lost = [x for"):
        assert worst_leaf(LEAVES[:12]) > 1e-6
