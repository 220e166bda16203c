"""Count01 in a dtype, box by box of prompts: no evaluation within the reading is below what is shown of its margin."""

import json
import random
from fractions import Fraction
from functools import cache
from itertools import product

import mpmath
import pytest
from flint import arb, ctx, fmpq, fmpq_mat
from models.selection import first
from oracles.loose_steps import LooseSteps
from oracles.rounded import nearest
from test_checker_computed_counts import exact, ways, whole
from test_checker_dtypes import times
from test_checker_real import outcome

from constructions import count01
from tests.planted import planted
from verify.arithmetic.formats import Format
from verify.arithmetic.readings import reading_of
from verify.checker.boxes import Box
from verify.checker.computed_prompts import ONE, PRECISION, ComputedPrompts, WeighedTokens
from verify.checker.depths import Departure, Depths
from verify.checker.formats import BinaryFormat
from verify.checker.prompts import SHAPES, PromptRegion
from verify.checker.reading import NOT_CHECKABLE, Refusal
from verify.frame.decide import certify
from verify.tasks.count01.task import PromptDomain
from verify.tasks.count01.verdict import Count01

P, LEAST = 5, -6  # bits of a small format, and its smallest normal exponent
FORMAT = Format("few", P, LEAST, 2.0**9 * (2 - 2.0 ** (1 - P)))
SAME = BinaryFormat(P, LEAST, 9)
FEW, WIDE = BinaryFormat(P, LEAST, 9, factors=3), BinaryFormat(2 * P + 2, -30, 30)


# ---- sums


def of_products(seed, by=1):
    """Products and one more term: the ends of what all trees make of them, and the bound on how far they are off. All
    but the weights are scaled."""
    draw, numbers = random.Random(seed), [Fraction(m, 16) for m in range(8, 32)]
    x, w = ([draw.choice(numbers) * draw.choice([1, -1]) for _ in range(draw.randint(1, 4))] for _ in range(2))
    w = [y if draw.random() < 0.6 else Fraction(2) ** draw.randint(-4, 2) for y in w][: len(x)]
    x, added = [y * by for y in x[: len(w)]], draw.choice([Fraction(0), draw.choice(numbers)]) * by
    with ctx.workprec(PRECISION):
        given = [Departure(abs(arb(whole(y))), arb(0)) for y in x]
        real = sum(map(Fraction.__mul__, x, w)) + added
        found = Depths(SAME, SAME).total(given, [*map(whole, w)], whole(added), abs(arb(whole(real))))
        error, size = (exact(fmpq(*map(int, (y.man_exp()[0], 1)))) * Fraction(2) ** int(y.man_exp()[1])
                       for y in (found.error, found.size))  # fmt: skip
    terms = [{a * b, *ways(a * b, FORMAT)} for a, b in zip(x, w, strict=True)] + [{added}] * (added != 0)
    ends = {y for chosen in product(*({min(t), max(t)} for t in terms)) for y in reached(chosen)}
    return max(abs(y - real) for y in ends), error, max(map(abs, ends)), size


def reached(terms):
    """The ends of what all trees make of terms."""
    if len(terms) == 1:
        return {*terms}
    found = set()
    for chosen in range(1, 2 ** (len(terms) - 1)):
        parts = [[x for i, x in enumerate(terms) if (chosen >> i & 1) == side] for side in (0, 1)]
        found |= {y for a, b in product(*map(reached, parts)) for y in ways(a + b, FORMAT)}
    return {min(found), max(found)}


@pytest.mark.parametrize("seeds", first(1, [range(12), range(12, 1500)]), ids=str)
def test_no_order_of_a_sum_is_further_off(seeds):
    for far, error, largest, size in map(of_products, seeds):
        assert far <= error and largest <= size


def below_the_normal_ones(seeds):
    """How often numbers near the smallest normal one are further off than the bound."""
    found = [of_products(seed, Fraction(2) ** (LEAST + 1)) for seed in seeds]
    return sum(far > error or largest > size for far, error, largest, size in found)


@pytest.mark.parametrize("seeds", first(1, [range(12), range(12, 1500)]), ids=str)
def test_what_is_flushed_is_no_further_off(seeds):
    assert below_the_normal_ones(seeds) == 0


def one_product():
    """What is said of the smallest normal number times 1/2, which may be flushed."""
    with ctx.workprec(PRECISION):
        return Depths(SAME, SAME).total([Departure(SAME.tiny, arb(0))], [fmpq(1, 2)], fmpq(0)).error >= SAME.tiny / 2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("+ lost * tiny *", "+ 0 * tiny *"), ("lost += max(0, n - 1)", "lost += 0"), ("abs(w) < 1 or", "False or")],
)
def test_a_fault_in_what_is_flushed_is_seen(right, wrong):
    assert one_product()
    with planted(Depths, "total", right, wrong):
        assert below_the_normal_ones(range(12)) > 0 or not one_product()


SUMS = [
    ("total", "error + u * size, size * (1 + u)", "error, size"),
    ("total", "[n - 2, *range(n - 2, -1, -1)]", "[0] * n"),
    ("total", "u * (n > 1) * last + self.storing(last * (1 + u))", "0 * last"),
]


@pytest.mark.deep
@pytest.mark.parametrize("fault", SUMS, ids=lambda x: x[2])
def test_a_fault_in_a_sum_is_seen(fault):
    with planted(Depths, *fault):
        assert any(far > error for far, error, *_ in map(of_products, range(100)))


def equal_terms(n):
    """How far left to right takes n times the same number, over u times their sum; and the bound."""
    with ctx.workprec(PRECISION):
        bound = Depths(SAME, SAME).of_many(arb(n), arb(1), n) / n * 2**P
    far = Fraction(0)
    for m in range(16, 32):
        total = x = Fraction(m, 16)
        for _ in range(n - 1):
            total = Fraction(nearest(total + x, FORMAT))
        far = max(far, abs(total - n * x) / (n * x) * 2**P)
    return far, bound


def test_many_equal_terms_are_met_half_as_often():
    """The bound is about (n + 1) / 2 roundings, not n - 1, and holds; a few terms are all that a sum has."""
    for n in (2, 3, 6, 11):
        far, bound = equal_terms(n)
        assert far <= Fraction(float(bound)) and float(bound) <= (n / 2 + 1) * (1 + 2.0**-P) ** n
    with planted(Depths, "of_many", "- (size / largest - 1) / 2", "- (size / largest - 1)"):
        assert any(far > Fraction(float(bound)) for far, bound in map(equal_terms, range(2, 12)))


# ---- means


def least_means(seed):
    """The least mean of a drawn box by all its counts and ends of weights, and what is found."""
    draw = random.Random(seed)
    weights = {t: tuple(sorted(draw.randint(1, 40) for _ in range(2))) for t in (0, 1, 2, 3)}
    values = [draw.randint(-50, 50) for _ in range(4)]
    sizes = [tuple(sorted(draw.randint(0, 3) for _ in range(2))) for _ in range(3)]
    parts = [(1, 1, (0,)), *((a, b, t) for (a, b), t in zip(sizes, [(1, 2), (2,), (3,)], strict=True))]
    found = []
    for n in product(*(range(a, b + 1) for a, b, _ in parts)):
        for chosen in product(*weights.values()):
            terms = [(k * chosen[t], values[t]) for k, (*_, tokens) in zip(n, parts, strict=True) for t in tokens]
            found.append(Fraction(sum(w * v for w, v in terms), sum(w for w, _ in terms)))
    return min(found), WeighedTokens(parts, weights, 0).least(values)


@pytest.mark.parametrize("seeds", first(1, [range(8), range(8, 400)]), ids=str)
def test_the_least_mean_of_a_box_is_that_of_an_end(seeds):
    assert all(least - 1 <= found <= least for least, found in map(least_means, seeds))


@pytest.mark.parametrize(("right", "wrong"), [("values[t] < a", "values[t] > a"), ("< 0 else low", "> 0 else low")])
def test_a_fault_in_the_least_mean_is_seen(right, wrong):
    with planted(WeighedTokens, "least", right, wrong):
        assert not all(least - 1 <= found <= least for least, found in map(least_means, range(40)))


def of_one_dimension(E, query, formats=(SAME, SAME)):
    """A model whose values are these of the tokens, and whose scores are they times the query."""
    one = [fmpq_mat([[1]])]
    numbers = {name: one for name in SHAPES} | {"E": [fmpq_mat([[whole(Fraction(x))] for x in E])]}
    return ComputedPrompts(*formats, numbers | {"W_Q": [fmpq_mat([[query]])]}, True, 4)


def of_a_mean(case):
    """How far the mean of n equal values among n + 2 is off that goes one way, by a quotient or a reciprocal; and the
    bound on it."""
    (n, v), far = case, Fraction(0)
    slots = n + 2
    model = of_one_dimension([0, v, 0, 0, 0, 0, 0, 0], 0)
    with ctx.workprec(PRECISION):
        bound = model._mean(model.values[0][0], model._weighed((0, n, 0), (0, n, 0), False)[0]).error
    for end in (min, max):
        by_a_product = {y for x in ways(Fraction(1, slots), FORMAT) for y in ways(x, FORMAT)}
        share = end(Fraction(nearest(x, FORMAT)) for x in ways(Fraction(1, slots), FORMAT) | by_a_product)
        total = x = end(ways(share * v, FORMAT))
        for _ in range(n - 1):
            total = end(ways(total + x, FORMAT))
        far = max(far, abs(total - n * v / slots))
    return far, Fraction(float(bound))


CASES = [*product(range(1, 13), [Fraction(1), Fraction(21, 16)])]


def test_a_mean_is_within_its_bound():
    assert all(far <= bound for far, bound in map(of_a_mean, CASES[::3]))


MEANS = [
    ("sums.of_many(mean * grown, largest / x.total(False) * grown, n)", "0"),
    ("(1 + share) * (1 + u * is_hard)", "arb(1)"),
]


@pytest.mark.parametrize("fault", MEANS, ids=lambda x: x[1])
def test_a_fault_in_a_mean_is_seen(fault):
    with planted(ComputedPrompts, "_weighing", *fault):
        assert any(far > bound for far, bound in map(of_a_mean, CASES))


def holds_exponentials():
    """e^-1 up to two units in the last place is between the ends, and where a token with the largest score may be
    missing, the next ones may have it."""
    model = of_one_dimension([0, 1, 2, 0, 1, 0, 0, 0], 1)
    with ctx.workprec(PRECISION):
        low, high = model._power(arb(-1))
        tops = {x.top for x in model._weighed((0, 0, 0), (1, 1, 1), True)[0]}
    value, place = Fraction(mpmath.exp(-1)._mpf_[1]) * Fraction(2) ** mpmath.exp(-1)._mpf_[2], Fraction(2) ** (-1 - P)
    return low <= (value - 2 * place) * ONE and high >= (value + 2 * place) * ONE and tops == {1, 2, 4}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("_power", "(1 - off)", "1"), ("_power", "(1 + off)", "1"),
     ("_weighed", "if scores[t].upper() >= least", "if scores[t].upper() > least")],
)  # fmt: skip
def test_a_fault_in_an_exponential_is_seen(name, right, wrong):
    assert holds_exponentials()
    with planted(ComputedPrompts, name, right, wrong):
        assert not holds_exponentials()


# ---- prompts


class Loose(LooseSteps):
    """Evaluations of a Count01 model of which each choice is drawn; or each rounding, and each sum, goes one way."""

    def __init__(self, W, skip, fmt, draw, few=None):
        self.W, self.skip, self.fmt, self.draw, self.few, self.up = W, skip, fmt, draw, few, draw.choice([None, 0, 1])

    def result(self, x):
        if self.up is None or self.draw.random() < 0.1:
            return super().result(x)
        found = ways(x, self.fmt)
        return max(found) if self.up else min(found)

    def factors(self, x):
        """In tf32 each is rounded to fewer bits, or not."""
        x = [*map(self.near, x)]
        return x if self.few is None or self.draw.random() < 0.4 else [Fraction(nearest(y, self.few)) for y in x]

    def product(self, x, W, added=None):
        x, columns = self.factors(x), [self.factors(column) for column in zip(*W, strict=True)]
        if added is not None and self.draw.random() < 0.5:
            return [self.result(self.read(self.total(c, x, [])) + b) for c, b in zip(columns, added, strict=True)]
        more = [[]] * len(columns) if added is None else [[b] for b in added]
        return [self.total(column, x, b) for column, b in zip(columns, more, strict=True)]

    def total(self, row, x, added):
        nodes = [a * b if self.draw.random() < 0.3 or a == 1 else self.result(a * b)
                 for a, b in zip(row, x, strict=True) if a * b] + [b for b in added if b]  # fmt: skip
        if len(nodes) == 1 and nodes[0] not in added:
            return self.result(nodes[0])
        self.draw.shuffle(nodes)
        if self.up is not None and self.draw.random() < 0.5:
            nodes.sort(key=abs)  # the largest first
        while len(nodes) > 1:
            nodes.append(self.result(self.read(nodes.pop()) + self.read(nodes.pop())))
        return nodes[0] if nodes else Fraction(0)

    def softmax(self, scores):
        top = max(scores)
        top = self.read(top)
        arguments = [self.result(self.read(s) - top) for s in scores]
        e = [Fraction(1) if a == 0 else self.function(mpmath.exp, [a])[0] for a in arguments]
        if self.draw.random() < 0.3:
            e = [Fraction(0) if y < Fraction(self.fmt.tiny) else y for y in e]
        total = self.total([Fraction(1)] * len(e), [self.read(y) for y in e], [])
        if self.draw.random() < 0.5:
            return [self.result(self.read(y) / total) for y in e]
        over = self.result(1 / total)
        return [self.result(self.read(y) * over) for y in e]

    def logits(self, tokens):
        x, read = [self.W["E"][0][t] for t in tokens], []
        for W_Q, W_K, W_V in zip(*(self.W[name] for name in ("W_Q", "W_K", "W_V")), strict=True):
            (q,), keys, values = (
                [self.product(y, W) for y in rows] for rows, W in (([x[-1]], W_Q), (x, W_K), (x, W_V))
            )
            scores = [self.total(*map(self.factors, (key, q)), []) for key in keys]
            read += self.product(self.softmax(scores), values)
        W_O = [row for part in self.W["W_O"] for row in part]
        stream = self.product(read, W_O, x[-1] if self.skip else None)
        return self.product(stream, self.W["W_out"][0], self.W["b_out"][0][0])


class Stored(Loose):
    """Sums that round nothing, and whose result is stored: one of those with sums in a wider format."""

    def total(self, row, x, added):
        return self.result(sum((a * b for a, b in zip(row, x, strict=True)), sum(added, Fraction(0))))


@cache
def drawn_model(seed):
    """The numbers of a small model, as fractions and as matrices: powers of two, and others."""
    draw = random.Random(seed)
    heads, d, d_h = (1, 1, 1) if seed % 3 == 0 else (draw.randint(1, 2), draw.randint(1, 2), draw.randint(1, 2))

    def matrix(rows, columns, size):
        rows = [[draw.choice([0, 1, -1, draw.randint(-15, 15) / 8, draw.randint(-31, 31) / 16]) for _ in range(columns)]
                for _ in range(rows)]  # fmt: skip
        return [[Fraction(x * size) for x in row] for row in rows]

    shapes = zip(SHAPES, [(8, d)] + [(d, d_h)] * 3 + [(d_h, d), (d, 3), (1, 3)], strict=True)
    W = {name: [matrix(*shape, draw.choice([1, 1, 0.5])) for _ in range(heads if name in SHAPES[1:5] else 1)]
         for name, shape in shapes}  # fmt: skip
    numbers = {name: [fmpq_mat([[*map(whole, row)] for row in part]) for part in parts] for name, parts in W.items()}
    return W, numbers, bool(seed % 2)


def largest_margin(model, cell, box, due):
    """The largest margin that is shown of the due class over the two others, as far as 2^-6 tells."""
    low, high, rivals = -1024, 1024, [j for j in range(3) if j != due]
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if model.proves(cell, rivals, box, fmpq(middle, 64)) else (low, middle - 1)
    return Fraction(low, 64)


def shortfall(seed, formats=(SAME, SAME), few=None, runs=12, of=Loose):
    """By how much evaluations of a prompt are below the margin shown of it, or of a box that it is in."""
    (W, numbers, skip), draw = drawn_model(seed), random.Random(seed)
    last, is_more, due = draw.choice([4, 5]), bool(seed % 2), draw.randrange(3)
    model, cell = ComputedPrompts(*formats, numbers, skip, last), PromptRegion(last, is_more, due)
    lo, m, wide = draw.randint(0, 3), draw.randint(0, 2), draw.randint(0, 1)
    box = Box(lo, lo + is_more + wide, m, m + wide, 2 * lo + is_more + m + wide)
    shown, found = largest_margin(model, cell, box, due), []
    tokens = [0, *[1] * lo, *[2] * (lo + is_more), *[3] * m, 4, *([last] if last != 4 else [])]
    for _ in range(runs):
        logits = of(W, skip, FORMAT, draw, few).logits(tokens)
        found.append(logits[due] - max(x for j, x in enumerate(logits) if j != due))
    return shown - min(found)


def worst_of(seeds, **more):
    found = []
    for seed in seeds:
        try:
            found.append(shortfall(seed, **more))
        except Refusal as refusal:
            assert refusal.exit_code == NOT_CHECKABLE
    assert len(found) > len(seeds) // 3, len(found)
    return max(found)


KINDS = {
    "one format": {},
    "fewer bits of factors": {"formats": (FEW, FEW), "few": Format("tf", 3, LEAST, 2.0**9)},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", first(1, [range(3), range(3, 400)]), ids=str)
def test_no_evaluation_is_below_the_margin_shown(seeds, kind):
    assert worst_of(seeds, **KINDS[kind]) <= 0


WIDER = {"formats": (SAME, WIDE), "of": Stored}


def test_no_evaluation_with_sums_in_a_wider_format_is_below_the_margin_shown():
    assert worst_of(range(4), **WIDER) <= 0


def totals(weight):
    """By which share a sum of 1 and equal exponentials is off, each and the sum stored; and the bound on it."""
    far, bound = Fraction(0), Fraction(0)
    model = of_one_dimension([0] * 8, 0, (SAME, WIDE))
    for n in (1, 2, 5):
        ends = int(weight * ONE)
        parts = [(1, 1, (0,)), (n, n, (1,))]
        with ctx.workprec(PRECISION):
            found = Fraction(float(model._of_total(WeighedTokens(parts, {0: (ONE, ONE), 1: (ends, ends)}, 0))))
        exact = 1 + n * weight
        off = max(abs(y - exact) for x in ways(weight, FORMAT) for y in ways(1 + n * x, FORMAT)) / exact
        far, bound = (off, found) if off - found > far - bound else (far, bound)
    return far, bound


TOTALS = [Fraction(m, 2**k) for m in range(129, 256, 14) for k in (8, 10, 12)]


def test_a_sum_of_exponentials_is_within_its_bound():
    assert all(far <= bound for far, bound in map(totals, TOTALS[::4]))
    faults = [("(once - 1) * others / (others +", "0 * others / (others +"), ("stored.upper() - low", "low - low")]
    for fault in faults:
        with planted(ComputedPrompts, "_of_total", *fault):
            assert any(far > bound for far, bound in map(totals, TOTALS))


# ---- certificates


def proved(module, precision, bounds):
    """The file of a model and its certificate."""
    weights = count01.as_bytes(module)
    return weights, json.loads(
        certify(Count01.of(module, "majority-ones", PromptDomain(*bounds)), reading_of(*precision.split(", ")))
        .about(weights)
        .to_json()
    )


def test_a_result_is_stored_within_half_a_unit_of_its_size():
    """12 is between 8 and 16, so half a unit is that of 8; the sum of exponentials is as far off as its ends are."""
    on = Depths(BinaryFormat(8, -126, 127), BinaryFormat(24, -126, 127))
    assert [float(on.storing(arb(x))) for x in (8, 12, 15.9, 16)] == [2.0**-5] * 3 + [2.0**-4]
    assert Depths(SAME, SAME).storing(arb(12)) == 0


CERTIFICATES = [
    ("bfloat16, float32", count01.documents, (None, None, 1)),
    ("float32", count01.documents, (4, 3)),
    ("float32", count01.documents, (None, None, 25)),
    ("bfloat16", count01.uniform, (4, 3)),
    ("float16", count01.uniform, (4, 3)),
    ("float16", count01.uniform, (8, 67)),
]


@pytest.mark.parametrize("number", range(len(CERTIFICATES)))
def test_what_one_bound_on_all_roundings_leaves_open_is_shown_by_boxes(number):
    """The whole margin, and no other that is far too large; without the boxes it is not checkable."""
    precision, build, bounds = CERTIFICATES[number]
    dtype = precision.split(", ")[0]
    module = build(dtype=dtype) if build is count01.uniform else build(10, dtype=dtype)
    weights, proof = proved(module, precision, bounds)
    assert outcome(weights, json.dumps(proof)) == (0, "PROVED")
    codes = [outcome(weights, json.dumps(times(proof, factor)))[0] for factor in (0.5, 1e5)]
    assert codes[0] == 0 and codes[1] in (1, NOT_CHECKABLE)
    with planted(
        ComputedPrompts, "proves", "with ctx.workprec(PRECISION):", "return False\n    with ctx.workprec(PRECISION):"
    ):
        assert outcome(weights, json.dumps(proof))[0] == NOT_CHECKABLE


@pytest.mark.parametrize(("kept", "code"), [("float32", 0), (None, 1), ("bfloat16", 1), ("p23", 1), ("words", 1)])
def test_a_wrong_input_may_keep_what_is_inside_products_in_a_wider_format(kept, code):
    """As torch's kernels of 16 bits do; every operation rounded, this prompt is right, and too few bits are none that
    are kept."""
    weights, wrong = wrong_in_16_bits()
    run = wrong["counterexample"]["run_as"]
    assert wrong["verdict"] == "REFUTED" and run["kept"] == "float32"
    changed = {name: x for name, x in run.items() if name != "kept"} | ({"kept": kept} if kept else {})
    forged = wrong | {"counterexample": wrong["counterexample"] | {"run_as": changed}}
    assert outcome(weights, json.dumps(forged))[0] == code


@cache
def wrong_in_16_bits():
    return proved(count01.documents(10, dtype="float16"), "float16", (4, 3))


def test_a_margin_without_a_logits_own_roundings_is_seen():
    with planted(ComputedPrompts, "proves", "off[cell.due] + off[j]", "0 * off[j]"):
        assert worst_of(range(9, 10)) > 0
