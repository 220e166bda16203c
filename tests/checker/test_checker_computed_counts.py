"""Histogram models in 16 bits, part by part of the inputs: no evaluation within the reading is below the bounds."""

import json
import math
import random
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import comb
from unittest import mock

import mpmath
import numpy as np
import pytest
import torch
from flint import ctx, fmpq
from models.certificates import honest
from models.random_models import BUILDERS, random_model
from models.selection import first
from oracles.any_order import UNIT, Adversary
from oracles.forged import falsehood
from oracles.loose_steps import LooseSteps
from oracles.rounded import fraction, nearest
from test_checker_dtypes import sha, times
from test_checker_real import outcome

from constructions import checkpoint
from constructions.histogram import HistogramTransformer
from constructions.parity import as_bytes as parity_bytes
from constructions.parity import sawtooth
from tests.planted import planted
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import FORMATS, Format
from verify.arithmetic.readings import reading_of
from verify.checker import computed_counts, forwards, kinds
from verify.checker.any_order import half_of
from verify.checker.computed_counts import ComputedCounts, InputPart
from verify.checker.computed_orders import EveryOrder
from verify.checker.formats import NAMED, BinaryFormat
from verify.checker.mathematics import BITS
from verify.checker.reading import NOT_CHECKABLE, Refusal, read_weights
from verify.frame import decide
from verify.tasks.histogram.rounded.forward import rounded_model
from verify.tasks.histogram.rounded.verdict import certify
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.parity.task import Parity

SMALL = {"bfloat16": BinaryFormat(*NAMED["bfloat16"]), "float16": BinaryFormat(*NAMED["float16"])}


def exact(x):
    return Fraction(int(x.p), int(x.q))


# ---- one operation


def ways(x, fmt):
    """What a result may be computed as, half-way cases rounded either way."""
    x = Fraction(x)
    kept = [x, *(Fraction(nearest(x, Format("kept", 2 * fmt.p + 2 + more, -1000, 2.0**1000))) for more in (0, 1, 9))]
    found = {*kept, *(z for y in kept for z in rounded(y, fmt))}
    return found | {Fraction(0)} if abs(x) < Fraction(fmt.tiny) else found


def is_kept_once(seed):
    """Whether what an adversary stores of a drawn number is that with so many bits, or this rounded once more."""
    draw, name = random.Random(seed), "bfloat16"
    adversary = Adversary(StoredModel.of(random_model(0)), FORMATS[name])
    n, up = draw.randrange(1 << 40, 1 << 44) << UNIT - 44, draw.random() < 0.5
    found = Fraction(adversary.tensor(adversary.inner_result(n, UNIT, up), up), 1 << UNIT)
    x = Fraction(n, 1 << UNIT)
    kept = {x, *(Fraction(nearest(x, Format("kept", bits, -1000, 2.0**1000))) for bits in (18, 19, 21))}
    return found in kept or found in {z for y in kept for z in rounded(y, FORMATS[name])}


def test_an_adversary_keeps_a_result_once():
    """As the contract says: not with 21 bits, and then of these with 18."""
    assert all(map(is_kept_once, range(60)))
    with planted(Adversary, "tensor", "if self.is_wider", "if True"):
        assert not all(map(is_kept_once, range(60)))


def rounded(x, fmt):
    return {Fraction(nearest(x * (1 + Fraction(e, 2**60)), fmt)) for e in (-1, 0, 1)}


def reached(terms, fmt):
    """The least and the greatest number that some order makes of terms: all trees."""
    if len(terms) == 1:
        return {Fraction(terms[0])}
    found = set()
    for chosen in range(1, 2 ** (len(terms) - 1)):
        parts = [[x for i, x in enumerate(terms) if (chosen >> i & 1) == side] for side in (0, 1)]
        for a, b in product(*(reached(part, fmt) for part in parts)):
            found |= ways(a + b, fmt)
    return {min(found), max(found)}


def drawn_number(draw, fmt):
    return Fraction(nearest(Fraction(draw.uniform(-1, 1)) * Fraction(2) ** draw.choice([0, 0, 0, 1, 3, -14]), fmt))


def is_around(ends, numbers, loose=None):
    """Whether two ends are around numbers, and no further away than so."""
    low, high = map(exact, ends)
    is_held = low <= min(numbers) and max(numbers) <= high
    return is_held and (loose is None or max(min(numbers) - low, high - max(numbers)) <= loose)


def whole(x):
    return fmpq(x.numerator, x.denominator)


def sum_holds(seed):
    fmt, on, draw = FORMATS["bfloat16"], EveryOrder(SMALL["bfloat16"]), random.Random(seed)
    terms = [drawn_number(draw, fmt) for _ in range(draw.randint(1, 4))]
    terms += [terms[0]] * draw.choice([0, 0, 1])
    size = sum(map(abs, terms)) or 1
    loose = None if any(0 < abs(x) < 2**-10 for x in terms) else size * Fraction(2) ** (-2 * fmt.p)
    found = on.total([((whole(x), whole(x)), 1) for x in terms])
    return is_around(found, reached([x for x in terms if x] or [0], fmt), loose)


def operations_hold(seed):
    """Products, quotients, roots, exponentials and factors at the ends of drawn intervals."""
    draw, name = random.Random(seed), [*SMALL][seed % 2]
    fmt, on = FORMATS[name], EveryOrder(SMALL[name])
    x, y = (sorted(drawn_number(draw, fmt) for _ in range(2)) for _ in range(2))
    if seed % 3 == 0:
        x, y = [x[0]] * 2, [y[0]] * 2
    ends = [tuple(map(whole, part)) for part in (x, y)]
    over = sorted(abs(part) + Fraction(1, 64) for part in y)
    wide = sorted(a + Fraction(draw.randrange(3), 2**20) for a in x)
    factors = {z for a in wide for z in rounded(a, fmt)} | {Fraction(0) for a in wide if abs(a) < Fraction(fmt.tiny)}
    d = draw.randint(1, 40)
    return (
        is_around(on.times(*ends), {z for a in x for b in y for z in ways(a * b, fmt)})
        and is_around(on.over(ends[0], tuple(map(whole, over))), {z for a in x for b in over for z in ways(a / b, fmt)})
        and is_around(on.power(ends[0]), {z for a in x for z in powers(a, fmt)})
        and is_around(on.factor(tuple(map(whole, wide))), factors)
        and is_around(on.root(d), ways(Fraction(math.isqrt(d << 400), 2**200), fmt))
    )


def powers(x, fmt):
    """The ends of what is within two units in the last place of e^x."""
    if x == 0:
        return {Fraction(1)}
    with mpmath.workprec(400):
        value = fraction(mpmath.exp(mpmath.mpf(x.numerator) / x.denominator))
    e = max(math.floor(math.log2(value)), fmt.smallest_exponent)
    place = Fraction(2) ** (e - fmt.p + 1)
    return ways(value - 2 * place, fmt) | ways(value + 2 * place, fmt) | ways(value, fmt)


def test_a_share_by_a_reciprocal_is_another_number_than_the_contract_has():
    """3/4 of 11 in bfloat16, as docs/precision.md has it: two roundings leave the quotient's ends."""
    on, (e, total) = EveryOrder(SMALL["bfloat16"]), ((fmpq(x), fmpq(x)) for x in (fmpq(3, 4), 11))
    one = (fmpq(1), fmpq(1))
    quotient, product_of_two = on.factor(on.over(e, total)), on.factor(on.times(e, on.over(one, total)))
    assert quotient == (fmpq(35, 512),) * 2 and product_of_two[0] == fmpq(139, 2048)


@pytest.mark.parametrize("seeds", first(1, [range(5), range(5, 400)]), ids=str)
def test_no_order_of_a_sum_is_outside(seeds):
    with ctx.workprec(BITS + 64):
        assert all(map(sum_holds, seeds))


@pytest.mark.parametrize("seeds", first(1, [range(12), range(12, 1000)]), ids=str)
def test_no_result_is_outside(seeds):
    with ctx.workprec(BITS + 64):
        assert all(map(operations_hold, seeds))


def numbers_are_all(seed):
    """All numbers between two ends, 0 and those below the normal ones among them; where they are many, too many."""
    fmt, draw = BinaryFormat(3, -3, 2), random.Random(seed)
    steps = {0.0, *(m * 2.0**e for m in range(1, 8) for e in range(-5, 1))}  # up to 7
    low, high = sorted(draw.choices(sorted(steps), k=2)) if seed else (0.0, 2.0**-4)
    found = EveryOrder(fmt).numbers((fmpq(*low.as_integer_ratio()), fmpq(*high.as_integer_ratio())), most := 9)
    there = [Fraction(x) for x in sorted(steps) if low <= x <= high]
    return len(found) == most + 1 if len(there) > most else [*map(exact, found)] == there


def test_all_values_of_a_neuron_are_tried():
    assert all(map(numbers_are_all, range(40)))


def test_zero_is_read_as_zero():
    assert EveryOrder(SMALL["bfloat16"]).factor((fmpq(0), fmpq(0))) == (fmpq(0), fmpq(0))


def test_many_terms_are_bounded():
    """Of 25 different terms no drawn order is outside."""
    fmt, on, draw = FORMATS["bfloat16"], EveryOrder(SMALL["bfloat16"]), random.Random(1)
    with ctx.workprec(BITS + 64):
        for size in (25, 40):
            terms = [drawn_number(draw, fmt) for _ in range(size)]
            found = on.total([((whole(x), whole(x)), 1) for x in terms])
            for _ in range(4):
                left = [*terms]
                while len(left) > 1:
                    draw.shuffle(left)
                    left.append(draw.choice([*ways(left.pop() + left.pop(), fmt)]))
                assert is_around(found, left)


ORDERS = [  # and which test sees it
    ("times", "return self.result(min(corners), max(corners))", "return min(corners), max(corners)", operations_hold),
    ("times", "for b in y]", "for b in y[:1]]", operations_hold),
    ("over", "self._cut(min(corners))", "self._cut(max(corners))", operations_hold),
    ("over", "for b in y]", "for b in y[1:]]", operations_hold),
    (
        "root",
        "self.result(exact(found.lower()), exact(found.upper()))",
        "(exact(found), exact(found))",
        operations_hold,
    ),
    ("power", "(1 - off)", "1", operations_hold),
    ("power", "(1 + off)", "1", operations_hold),
    ("power", "return self.result(least,", "return (least,", operations_hold),
    ("factor", "self.nearest(x[0])", "x[0]", operations_hold),
    ("_least", "self.down(min(found", "(min(found", sum_holds),
    ("_least", "1 : len(parts) // 2 + 1", "1:2", sum_holds),
    ("_bounded", "self.down(total - off)", "total", None),
    ("_bounded", "unit >= self.fmt.least and size <= fmpq(2) ** (self.fmt.p + unit)", "True", None),
    ("nearest", "- (n != 0)", "+ (n != 0)", operations_hold),
    ("numbers", "if n else self.fmt.least", "", numbers_are_all),
]


def caught(seen):
    with ctx.workprec(BITS + 64):
        return not all(map(seen, range(2000)))


@pytest.mark.deep
@pytest.mark.parametrize("fault", [fault for fault in ORDERS if fault[3]], ids=lambda x: f"{x[0]}: {x[2]}")
def test_a_fault_in_an_operation_is_seen(fault):
    *planted_one, seen = fault
    with planted(EveryOrder, *planted_one):
        assert caught(seen)


@pytest.mark.parametrize("fault", [fault for fault in ORDERS if not fault[3]], ids=lambda x: f"{x[0]}: {x[2]}")
def test_a_fault_in_a_long_sum_is_seen(fault):
    with planted(EveryOrder, *fault[:3]), pytest.raises(AssertionError):
        test_many_terms_are_bounded()


# ---- models


class Model:
    """A model as a format stores it, its bounds, and evaluations within the reading."""

    def __init__(self, module, name):
        self.module, self.fmt = module, FORMATS[name]
        of_file = read_weights(checkpoint.as_bytes(module, claim=None, construction=None))
        self.w, W = forwards.rounded_once(of_file, SMALL[name])
        self.stored = rounded_model(StoredModel.of(module), Evaluation(self.fmt))
        self.bounds = ComputedCounts(SMALL[name], self.w, W)

    def bound(self, tokens, position, is_whole=False):
        """Of one input, or of all with its token and count."""
        t = tokens[position]
        k, others = tokens.count(t), [s for s in tokens if s != t]
        groups = tuple(((s,), others.count(s)) for s in sorted({*others}))
        return exact(self.bounds.gap(InputPart(position, t, k, self.bounds._others(t, k) if is_whole else groups)))

    def worst(self, tokens, position):
        """The least margin that the adversary finds."""
        keys = tokens + [self.stored.T] * self.module.has_bos
        right = tokens.count(tokens[position]) - self.stored.first_count
        rivals = {*range(self.stored.classes)} - {right}
        adversary = Adversary(self.stored, self.fmt)
        return min(adversary.margin(tokens[position], keys, position, right, rival) for rival in rivals)

    def drawn(self, tokens, position, draw):
        """The margin of an evaluation of which each choice is drawn."""
        m, on = self.stored, LooseSteps.__new__(LooseSteps)
        on.fmt, on.draw, on.wider = self.fmt, draw, None
        there = {name: getattr(m, name) for name in NAMES if getattr(m, name) is not None}
        rows = {name: np.vectorize(Fraction, otypes=[object])(W) for name, W in there.items()}
        context = [list(rows["E"][s]) for s in tokens] + ([list(rows["e_BOS"])] if "e_BOS" in rows else [])

        def product_of(x, W, added=None):
            x = [on.near(y) for y in x]
            if added is not None and draw.random() < 0.5:  # afterwards
                return [on.result(on.read(on.total(col, x, [])) + b) for col, b in zip(W.T, added, strict=True)]
            more = [[]] * W.shape[1] if added is None else [[b] for b in added]
            return [on.total(col, x, b) for col, b in zip(W.T, more, strict=True)]

        x = context[position]
        if "A" in rows:
            scores = list(rows["A"][position])
        else:
            q, keys = product_of(x, rows["W_Q"]), [product_of(y, rows["W_K"]) for y in context]
            root = on.result(Fraction(math.isqrt(m.d << 400), 2**200))
            dots = product_of(q, np.array([[on.near(y) for y in key] for key in keys], dtype=object).T)
            by = [lambda s: s / root, lambda s: s * on.result(1 / root)]
            scores = [on.result(draw.choice(by)(on.read(s))) for s in dots]
        if m.is_softmax:
            top = max(on.read(s) for s in scores)
            args = [on.result(on.read(s) - top) for s in scores]
            e = [Fraction(1) if a == 0 else on.function(mpmath.exp, [a])[0] for a in args]
            total = on.total([Fraction(1)] * len(e), [on.read(y) for y in e], [])
            scores = [on.result(on.read(y) / total) for y in e]
        mixed = product_of(scores, np.array(context, dtype=object), x)
        h = [max(z, Fraction(0)) for z in product_of(mixed, rows["W_1"], rows["b_1"])]
        logits = product_of(h, rows["W_2"], rows["b_2"])
        right = tokens.count(tokens[position]) - m.first_count
        return logits[right] - max(y for c, y in enumerate(logits) if c != right)


NAMES = ("E", "e_BOS", "A", "W_Q", "W_K", "W_1", "b_1", "W_2", "b_2")


def shortfall(module, name, inputs=4, evaluations=2, seed=0):
    """By how much what is computed is below the bound on it, at most."""
    draw, found = random.Random(seed), []
    with ctx.workprec(BITS + 64):
        model = Model(module, name)
        for _ in range(inputs):
            tokens = [draw.randrange(module.T) for _ in range(module.L)]
            position = draw.randrange(module.L)
            reached = [model.drawn(tokens, position, draw) for _ in range(evaluations)]
            reached.append(model.worst(tokens, position))
            found.append(model.bound(tokens, position) - min(reached))
            found.append(model.bound(tokens, position, is_whole=True) - min(reached))
    return max(found)


def worst_of(seeds, **more):
    found = [Fraction(-1)]
    for seed in seeds:
        if len(random_model(seed).b_2) < 2:  # refused before
            continue
        try:
            found.append(shortfall(random_model(seed), [*SMALL][seed % 2], seed=seed, **more))
        except Refusal as refusal:
            assert refusal.exit_code == NOT_CHECKABLE
    assert len(found) > len(seeds) // 3
    return max(found)


@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 120)]), ids=str)
def test_no_evaluation_is_below_the_bound(seeds):
    assert worst_of(seeds) <= 0


# ---- certificates


def built(kind, T, L):
    return BUILDERS[kind][0](T=T, L=L)


def proof_of(kind, T, L, name):
    file = checkpoint.as_bytes(built(kind, T, L), claim=None, construction=None)
    return file, json.loads(certify(built(kind, T, L), fmt=FORMATS[name]).about(file).to_json())


KINDS = [(kind, name) for kind in BUILDERS for name in SMALL]


@pytest.mark.parametrize(("kind", "name"), first(3, KINDS))
def test_built_models_hold_and_raised_margins_do_not(kind, name):
    file, said = proof_of(kind, 4, 3, name)
    assert said["verdict"] == "PROVED"
    for factor, holds in ((1.0, True), (0.4, True), (2.2, False), (5.0, False)):
        assert (outcome(file, json.dumps(times(said, factor)))[0] == 0) == holds, factor


def test_sums_in_a_wider_format_hold():
    file = checkpoint.as_bytes(built("bos+sftm", 4, 3), claim=None, construction=None)
    proof = certify(built("bos+sftm", 4, 3), fmt=FORMATS["float16"], accumulate=FORMATS["float32"]).about(file)
    assert kinds.check(file, proof.to_json().encode())[0] == "PROVED"


def test_parity_holds_part_by_part_and_not_by_five_times_the_margin():
    """What one bound for all inputs leaves open, in bfloat16."""
    module = sawtooth(T=6, L=4, dtype=torch.float32)
    with torch.no_grad():
        module.b_2[0] += 2**-7
    weights, proof = parity_bytes(module), decide.certify(Parity(module), reading_of("bfloat16"), decide.Effort(5.0))
    said = json.loads(proof.about(weights).to_json())
    assert said["verdict"] == "PROVED"
    for factor, holds in ((1.0, True), (0.5, True), (5.0, False)):
        assert (outcome(weights, json.dumps(said | {"margin": factor * said["margin"]}))[0] != 0) != holds
    with mock.patch.object(computed_counts, "MOST_PARTS", 0):
        assert outcome(weights, json.dumps(said))[0] == NOT_CHECKABLE


def barely_on(ahead):
    """A neuron that is 0 where its product is rounded and 2^-14 where it is kept, which both logits read 64 times."""
    module = HistogramTransformer("dot", T=2, L=1, d=1, p=1, classes=2)
    with torch.no_grad():
        for W in (module.W_Q, module.W_K):
            W.zero_()
        for W, x in ((module.E, 1 + 2**-7), (module.W_1, 1 + 2**-7), (module.b_1, -1 - 2**-6)):
            W.fill_(x)
        module.W_2[0] = torch.tensor([64 - 2**-2, 64 + 2**-1])
        module.b_2[:] = torch.tensor([1 + ahead, 1.0])
    return module


def test_a_tie_does_not_hold_by_half_of_the_least_number():
    """Half of 2^-1074 is no float: rounded down to 0 it is what a tie has."""
    margins = (5e-324, 1.5e-323, 2.0)
    assert [*map(half_of, margins)] == [5e-324, 1e-323, 1.0]
    module = sawtooth(T=3, L=4)
    with torch.no_grad():
        module.b_1[1] += 0.25
    weights, said = parity_bytes(module), json.loads(honest("parity, float32")[1])
    forged = json.dumps(said | {"margin": 5e-324, "weights_sha256": sha(weights)})
    assert falsehood(weights, forged) and outcome(weights, forged)[0] == NOT_CHECKABLE
    with mock.patch.object(computed_counts, "half_of", lambda margin: margin / 2):
        assert outcome(weights, forged)[0] == 0


def test_a_tie_between_two_values_of_a_neuron_is_not_missed():
    """Right where the neuron is 0 or 2^-8; where it is 2^-14, both logits are rounded to one number."""
    module, near = (checkpoint.as_bytes(barely_on(x), claim=None, construction=None) for x in (2**-7, 3.0))
    assert certify(barely_on(2**-7), fmt=FORMATS["bfloat16"]).verdict == "REFUTED"
    said = json.loads(certify(barely_on(3.0), fmt=FORMATS["bfloat16"]).about(near).to_json())
    assert outcome(near, json.dumps(said))[0] == 0
    for margin in (2**-8, 2**-14):
        forged = said | {"margin": margin, "margin_per_count": [margin], "weights_sha256": sha(module)}
        assert outcome(module, json.dumps(forged))[0] == NOT_CHECKABLE


def mutated(kind, seed):
    """A built model with one of its numbers moved."""
    module, draw = built(kind, 3, 3), random.Random(seed)
    with torch.no_grad():
        W = draw.choice([*module.parameters()]).view(-1)
        W[draw.randrange(len(W))] += draw.choice([-0.25, -0.0625, 0.015625, 0.125, 0.5])
    return module


def false_of(kind, seed, name):
    """What is false about a mutated model of which the checker holds the built one's certificate, lowered."""
    module, said = mutated(kind, seed), proof_of(kind, 3, 3, name)[1]
    moved = checkpoint.as_bytes(module, claim=None, construction=None)
    forged = json.dumps(times(said, 0.2) | {"weights_sha256": sha(moved)})
    if outcome(moved, forged)[0] != 0:
        return None
    model, wrong = Model(module, name), [falsehood(moved, forged)]
    for tokens in product(range(3), repeat=3):
        for position in range(3):
            if not model.worst([*tokens], position) > 0:
                wrong.append(f"{tokens} at {position}")
    return [x for x in wrong if x]


PROVED = [pair for pair in KINDS if pair != ("bos+sftm", "bfloat16")]  # of three tokens
FORGED = [(*pair, seeds) for seeds in (1, 16) for pair in PROVED]


@pytest.mark.parametrize(("kind", "name", "seeds"), first(1, FORGED))
def test_nothing_false_holds_of_a_mutated_model(kind, name, seeds):
    found = [false_of(kind, seed, name) for seed in range(seeds)]
    assert not any(found), found
    assert seeds == 1 or [] in found


def test_halves_are_all_inputs_once():
    T, L, k = 5, 5, 2
    parts, found = [InputPart(0, 1, k, (((0, 2, 3, 4), L - k),))], []
    while parts:
        part = parts.pop()
        halves = part.halves()
        parts += halves
        if not halves:
            found.append(tuple(sorted(s for (s,), n in part.others for _ in range(n))))
    assert sorted(found) == sorted(combinations_with_replacement((0, 2, 3, 4), L - k))
    assert len(found) == comb(T - 2 + L - k, L - k)


# ---- faults

C = ComputedCounts
FAULTS = [
    (C, "_read", "(b, 1)", "(b, 0)"),
    (C, "_weights", "for keys, n in slots]", "for keys, n in slots[:2]]"),
    (C, "_weights", "self.is_softmax", "True"),
    (C, "_mixed", "(((t,), k - 1), *others)", "(((t,), k), *others)"),
    (C, "_mixed", "for s in range(self.T, len(self.x))", "for s in range(0)"),
    (C, "gap", "[*terms, (own, 1)]", "terms"),
    (C, "_least", "for c, (_, y)", "for c, (y, _)"),
    (C, "_of_form", "min(n * x, n * y)", "(n * x)"),
    (C, "_others", "self.L - k", "self.L - k - (k < self.L - 1)"),
]


@pytest.mark.deep
@pytest.mark.parametrize("fault", FAULTS, ids=lambda x: f"{x[1]}: {x[3]}")
def test_a_fault_in_a_step_is_seen(fault):
    with planted(*fault):
        found = Fraction(-1)
        for seed in range(240):
            if len(random_model(seed).b_2) > 1 and found <= 0:
                try:
                    found = shortfall(random_model(seed), [*SMALL][seed % 2], seed=seed, inputs=2)
                except Refusal:
                    continue
    assert found > 0


WIDER = [  # too small beside the others for a test that sees them by what is computed
    ("_divided", ", self.on.times(score, self.on.over((fmpq(1), fmpq(1)), root))", ""),
    ("_weights", "scores[s][0] - top[1]", "scores[s][0] - top[0]"),
    ("_weights", "scores[s][1] - top[0]", "scores[s][1] - top[1]"),
    ("_of_form", "- off[right] - off[c]", "- off[c]"),
    ("_of_form", "- off[right] - off[c]", "- off[right]"),
]


@pytest.mark.parametrize("fault", WIDER, ids=lambda x: f"{x[0]}: {x[2]}")
def test_each_term_makes_the_bound_wider(fault):
    numbers, module = torch.Generator().manual_seed(1), HistogramTransformer("dot+sftm", T=2, L=2, d=3, p=2, classes=2)
    with torch.no_grad():
        for W in module.parameters():
            W.copy_(torch.randn(W.shape, generator=numbers).abs())

    def gaps():
        with ctx.workprec(BITS + 64):
            model, h = Model(module, "bfloat16"), ((fmpq(1), fmpq(2)), (fmpq(0), fmpq(3)))
            weights = model.bounds.weights(0, (((0,), 1), ((1,), 1)))
            widths = [y - x for row in [*model.bounds.scores, weights.values()] for x, y in row]
            return sum(widths) - sum(model.bounds._of_form(h, right) for right in (0, 1))

    before = gaps()
    with planted(C, *fault):
        assert gaps() < before
