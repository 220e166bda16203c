"""Circuits in a format: whatever an evaluation computes is in the checker's balls, and a fault of theirs is seen."""

import json
import random
from fractions import Fraction
from hashlib import sha256

import pytest
import torch
from flint import arb, ctx
from models.circuits import mutate, random_circuit
from models.selection import first
from oracles.loose_chain import LooseChain
from oracles.rounded import nearest
from test_checker_real import outcome

from constructions.circuit_simulation import build
from constructions.circuits.circuit import Circuit, Gate, decompose
from constructions.circuits.weights import as_bytes
from constructions.regular_language import from_regex, unroll
from tests.planted import planted
from verify.arithmetic.formats import FORMATS, Format
from verify.checker import circuits
from verify.checker.computed_steps import ComputedSteps
from verify.checker.computed_sums import ComputedSums
from verify.checker.formats import TF32, BinaryFormat, format_of
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.tasks.circuit import dtype
from verify.tasks.circuit.language.task import for_strings
from verify.tasks.circuit.program import program

READINGS = [("bfloat16", None), ("bfloat16", "float32"), ("float16", None), ("float16", "float32"), ("float32", None)]
READINGS += [("tf32", None)]


def steps_of(name, inner):
    return ComputedSteps(TF32, TF32) if name == "tf32" else ComputedSteps(format_of(name), format_of(inner or name))


def loose(W, name, inner, draw, lean):
    if name == "tf32":
        return LooseChain(W, FORMATS["float32"], FORMATS["float32"], draw, lean, Format("few", 11, -126, 2.0**127))
    return LooseChain(W, FORMATS[name], FORMATS[inner or name], draw, lean)


def drawn(seed):
    """A built model, often with weights moved, in a format: its numbers, and the checker's chain. None if refused."""
    rng = random.Random(seed)
    name, inner = rng.choice(READINGS)
    parts = decompose(random_circuit(rng, rng.randrange(2, 4), rng.randrange(1, 5)))
    model = build(parts.circuit, s=rng.choice([1, 2, 3, 5]))
    with torch.no_grad():
        if rng.random() < 0.6:
            mutate(model, rng)
        if rng.random() < 0.3:
            for x in model.parameters():
                noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)) * 2.0**-6
                x += noise * (torch.rand(x.shape, generator=torch.Generator().manual_seed(seed + 1)) < 0.3)
        if rng.random() < 0.3:
            for x in model.parameters():  # some numbers below the normal ones of float16
                tiny = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed + 2)) < 0.3
                x[(x == 0) & tiny] = 2.0**-15 + 2.0**-20
    at, (rows, sizes) = steps_of(name, inner), circuits._read(as_bytes(model))
    try:
        W = {of: [[*map(at.fmt.nearest, row)] for row in x] for of, x in rows.items()}
        n, T = sizes["n"], sizes["T"]
        chain = circuits._chain(at, W, n)
        assert len(chain.looks.streams) == n + T - 1
    except Refusal as refusal:
        assert refusal.exit_code == NOT_CHECKABLE
        return None
    return rng, model, (name, inner), W, chain


def balls(chain, tokens):
    """Of each position that writes: what may be computed there after these tokens, from cases and in one run."""
    found = []
    for p in range(chain.n - 1, len(tokens)):
        (g,) = (g for seen, g in chain.answers(p) if all(tokens[i] == x for i, x in seen.items()))
        found.append((p, g))
    try:
        return [*found, (len(tokens) - 1, chain.run(tokens))] if len(tokens) >= chain.n else found
    except Refusal as refusal:
        assert refusal.exit_code == NOT_CHECKABLE
        return found


def fraction(x):
    man, exponent = map(int, x.man_exp())
    return Fraction(man) * Fraction(2) ** exponent


def holds(ball, x):
    return fraction(ball.lower()) <= x <= fraction(ball.upper())


def leavers(seed, leans=(0, 1)):
    """How many computed numbers are within their balls, and which are not."""
    with ctx.workprec(128):
        case, inside, outside = drawn(seed), 0, []
        for lean in leans if case else ():
            rng, _, named, W, chain = case
            tokens = [rng.randrange(2) for _ in chain.embedded]
            g = loose(W, *named, rng, lean).run(tokens)
            for p, ball in balls(chain, tokens):
                inside += holds(ball, g[p])
                outside += [(seed, lean, p)] * (not holds(ball, g[p]))
    return inside, outside


@pytest.mark.parametrize("seeds", first(1, [range(1), range(1, 200)]), ids=str)
def test_drawn_evaluations_are_within_the_balls(seeds):
    inside = 0
    for seed in seeds:
        found, outside = leavers(seed)
        assert not outside
        inside += found
    assert inside


# ---- single operations


def number(draw, fmt):
    """A number of the format, sometimes tiny."""
    scale = draw.choice([1.0, 1.0, 2.0**-3, 2.0**-9, float(fmt.tiny) * 3])
    return Fraction(nearest(Fraction(draw.choice([1.0, draw.uniform(-2, 2), draw.uniform(0.5, 1)]) * scale), fmt))


def exactly(x):
    return arb(x.numerator) / arb(x.denominator)


def a_sum(draw, at, loose, fmt):
    terms = [(number(draw, fmt), number(draw, fmt)) for _ in range(draw.randrange(4))]
    added = [number(draw, fmt) for _ in range(draw.randrange(3))]
    column = [(j, at.weight(float(w))) for j, (_, w) in enumerate(terms)]
    found = at.total(column, [exactly(x) for x, _ in terms], *map(exactly, added))
    return found, lambda: loose.total([tuple(as_factors(loose, pair)) for pair in terms], *added)


def as_factors(loose, numbers):
    return [loose.factor(x) if loose.few else x for x in numbers]


def a_factor(draw, at, loose, fmt):
    x = number(draw, fmt) * number(draw, fmt)
    return at.factor(at.result(exactly(x), exactly(x))), lambda: loose.factor(loose.stored(loose.result(x)))


def a_score(draw, at, loose, fmt):
    q, k = ([number(draw, fmt) for _ in range(3)] for _ in range(2))
    found = at.scores([[*map(exactly, q)]], [[*map(exactly, k)]])[0][0]
    return found, lambda: loose.total([*zip(as_factors(loose, q), as_factors(loose, k), strict=True)])


def a_mean(draw, at, loose, fmt):
    n, of = draw.randrange(1, 7), draw.choice([(0.0, 1.0), (-1.0, 1.0), (0.7, 0.8)])
    low = draw.choice([1, 4, 30, 90])
    scores = [Fraction(nearest(Fraction(draw.uniform(-low, -low / 2)), fmt)) for _ in range(n)]
    scores[draw.randrange(n)] = Fraction(0 if draw.random() < 0.8 else -low)
    values = [Fraction(nearest(Fraction(draw.uniform(*of)), fmt)) for _ in range(n)]
    if draw.random() < 0.3:
        values = [v * Fraction(2) ** (fmt.smallest_exponent + 1) for v in values]
    return at.mean([*map(exactly, scores)], [*map(exactly, values)]), lambda: loose.mixed(scores, values)


OPERATIONS = (a_sum, a_factor, a_score, a_mean)


def leaving(seed, readings=tuple(READINGS[:4])):
    """The operation and what it computed outside its ball, None where it is in it."""
    draw = random.Random(seed)
    name, inner = draw.choice(readings)
    lean, operation = draw.choice([0, 1, -1]), draw.choice(OPERATIONS)
    run_loosely = loose({}, name, inner, draw, lean)
    with ctx.workprec(128):
        try:
            ball, run = operation(draw, steps_of(name, inner), run_loosely, run_loosely.fmt)
        except Refusal as refusal:
            assert refusal.exit_code == NOT_CHECKABLE
            return None
        computed = [run() for _ in range(5)]
        return next(((operation.__name__, name, inner, float(x), ball) for x in computed if not holds(ball, x)), None)


@pytest.mark.parametrize("seeds", first(1, [range(60), range(60, 10_000)]), ids=str)
def test_single_operations_are_within_their_balls(seeds):
    assert [found for seed in seeds if (found := leaving(seed))] == []


FAULTS = {  # a fault of the balls, and a drawn operation that leaves them
    171: ("total", "*apart])", "])"),
    19: ("_sum", "n - 2 + is_hard", "0"),
    1: ("result", "*map(self._nearest, ends), ", ""),
    1094: ("factor", "self._nearest(end)", "end"),
    6: ("scores", "return [[x + arb(0, off)", "return [[x + arb(0, 0)"),
    16: ("retrieved", "own = self.factor(", "own = arb(1) or self.factor("),
    7: ("retrieved", "others = (", "others = arb(2) ** -30 * ("),
    770: ("retrieved", "arb.union((1 - f) / (1 + off) - lost, most)", "arb(1)"),
    8: ("_small", "return ((size", "return 0 * ((size"),
    120: ("_flushed", "return [arb(0)] *", "return [] *"),
    1093: ("mixed", "bounds = [x + arb(0, off)", "bounds = [x + arb(0, 0)"),
}


@pytest.mark.parametrize("seed", FAULTS)
def test_a_fault_of_the_balls_is_seen(seed):
    assert leaving(seed) is None
    with planted(ComputedSteps, *FAULTS[seed]):
        assert leaving(seed)


FEWER = [  # of factors in tf32
    (BinaryFormat, "as_factor", "return [x, *", "return [*"),
    (ComputedSums, "weight", "self.hull(self._read(arb(x)))", "arb(x)"),
    (ComputedSums, "factor", "self._read(self._nearest(end))", "[self._nearest(end)]"),
    (ComputedSums, "_read", "+ self._flushed(*found)", ""),
]


@pytest.mark.parametrize("seeds", first(1, [range(40), range(40, 10_000)]), ids=str)
def test_single_operations_are_within_their_balls_in_tf32(seeds):
    assert [found for seed in seeds if (found := leaving(seed, READINGS[-1:]))] == []


def test_half_way_cases_are_rounded_either_way():
    x, ways = 1 + Fraction(1, 2**11), (Fraction(1), 1 + Fraction(1, 2**11), 1 + Fraction(1, 2**10))
    assert all(holds(steps_of("tf32", None).factor(exactly(x)), way) for way in ways)
    for wrong, left_out in (("(-1,)", ways[2]), ("(1,)", ways[0])):
        with planted(BinaryFormat, "as_factor", "(-1, 1)", wrong):
            assert not holds(steps_of("tf32", None).factor(exactly(x)), left_out)


@pytest.mark.parametrize("number", range(len(FEWER)))
def test_a_fault_of_factors_is_seen(number):
    with planted(*FEWER[number]):
        assert any(leaving(seed, READINGS[-1:]) for seed in range(200))


BFLOAT16 = format_of("bfloat16")


def kept_wider():
    """18 bits of a number that 8 bits round to the other side."""
    x = Fraction(1) + Fraction(3, 2**9) + Fraction(13, 2**22)
    kept = Fraction(nearest(x, Format("kept", 18, -1000, 2.0**1000)))
    at, up = ComputedSteps(BFLOAT16, BFLOAT16), Fraction(nearest(x, FORMATS["bfloat16"]))
    assert kept < x < up
    return holds(at.result(exactly(x), exactly(x)), kept) and holds(at.result(exactly(-x), exactly(-x)), -kept)


def three_formats():
    """1 and nine small terms: each format rounds up what the one before made of some of them."""
    formats = [Format(f"{p} bits", p, -126, 2.0**100) for p in (8, 6, 4)]
    y, t = Fraction(1), Fraction(51, 100 * 2**7)
    for i in range(1, 10):
        y = Fraction(nearest(y + t, formats[(i % 3 == 0) + (i % 9 == 0)]))
    fmt = BinaryFormat(4, -126, 127)
    assert y - 1 > 3 * 9 * t
    return bool(ComputedSteps(fmt, fmt)._moved(arb(1), exactly(9 * t), True) >= exactly(y - 1))


def exponentials():
    """The distance to the largest score is rounded, and the result is two units in the last place too large."""
    gap, at = Fraction(64249, 1000), ComputedSteps(BFLOAT16, BFLOAT16)
    read = Fraction(nearest(gap, FORMATS["bfloat16"]))
    most = (-exactly(read)).exp() * (1 + exactly(Fraction(15, 2**10)))
    return bool(at._exponential(exactly(gap)) > most)


DIRECT = [
    (kept_wider, "result", "low - self._kept(low)", "low"),
    (kept_wider, "result", "high + self._kept(high)", "high"),
    (three_formats, "_moved", "2**FORMATS_OF_A_SUM *", "1 *"),
    (exponentials, "_exponential", "(1 + ULPS * self.inner.u) * (1 + self.once)", "1"),
    (exponentials, "_exponential", "gap * (1 - self.once)", "gap"),
]


@pytest.mark.parametrize(("case", "name", "right", "wrong"), DIRECT)
def test_what_an_evaluation_may_do_is_covered(case, name, right, wrong):
    with ctx.workprec(128):
        assert case()
        with planted(ComputedSteps, name, right, wrong):
            assert not case()


@pytest.mark.parametrize("seeds", first(1, [range(2), range(2, 100)]), ids=str)
def test_what_torch_computes_is_within_the_balls(seeds, device):
    met = 0
    for seed in seeds:
        with ctx.workprec(128):
            if (case := drawn(seed)) is None:
                continue
            rng, model, (name, _), _, chain = case
            tokens = [rng.randrange(2) for _ in chain.embedded]
            with torch.no_grad():
                run = model.to(getattr(torch, "float32" if name == "tf32" else name)).to(device)
                g = run(torch.tensor([tokens], device=device)).double().flatten().tolist()[-1]
            last = [ball for p, ball in balls(chain, tokens) if p == len(tokens) - 1]
            assert all(holds(ball, Fraction(g)) for ball in last), seed
            met += len(last)
    assert met


# ---- certificates


def saved(model, parts, name, inner=None, unrolling=None):
    found = dtype.certify(model, parts, fmt=FORMATS[name], accumulate=inner and FORMATS[inner])
    found = found if unrolling is None else for_strings(found, unrolling)
    weights = as_bytes(model)
    return weights, json.loads(found.about(weights).to_json()) | {"program": program(parts, unrolling)}


def answer(weights, c):
    return outcome(weights, json.dumps(c | {"weights_sha256": sha256(weights).hexdigest()}))


@pytest.mark.parametrize(("name", "inner"), READINGS)
def test_certificates_hold_and_others_do_not(name, inner):
    """A proof in each format; a margin or a format that is not so, and weights with another neuron."""
    of_and = decompose(Circuit("and", ("x", "y"), (Gate("and", (0, 1), "z"),), (("z", 2),)))
    model = build(of_and.circuit, s=2)
    with torch.no_grad():
        model.layers[1].b_2[circuits.G] -= 0.25  # which leaves a margin of at most 1/4
    weights, c = saved(model, of_and, name, inner)
    assert answer(weights, c) == (0, "PROVED")
    assert answer(weights, c | {"margin": 1.9 * c["margin"]})[0] == 1
    assert answer(weights, c | {"margin": 0.51})[0] == 1 and answer(weights, c | {"margin": None})[0] == 0
    for named, value in (("precision", "p12"), ("accumulate", "float64"), ("accumulate", "e4m3"), ("s", 3)):
        assert answer(weights, c | {"parameters": c["parameters"] | {named: value}})[0] != 0
    with torch.no_grad():
        model.both[1].b_1[1] += 1.0
    assert answer(as_bytes(model), c)[0] == 1


def test_a_language_and_a_wrong_step_hold_in_16_bits():
    unrolling = unroll(from_regex("(01)*", "01"), 2)
    parts = decompose(unrolling.circuit)
    for name, inner in READINGS[1:3]:
        model = build(parts.circuit, s=5)
        weights, c = saved(model, parts, name, inner, unrolling)
        assert answer(weights, c) == (0, "PROVED")
        with torch.no_grad():
            model.both[1].b_1[1] += 1.0
        weights, c = saved(model, parts, name, inner, unrolling)
        assert c["verdict"] == "REFUTED" and answer(weights, c) == (0, "REFUTED")
        assert answer(weights, c | {"margin": c["margin"] - 0.25})[0] == 1
