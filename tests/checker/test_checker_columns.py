"""One layer that adds, in a format: what drawn and bad orders compute is not below what is shown of each cell."""

import math
import random
from itertools import product

import pytest
from flint import arb, arb_mat, ctx, fmpq, fmpq_mat
from models.selection import first
from test_checker_rounded_pairs import BITS, Evaluation, InOrder, near, of

from tests.planted import planted
from verify.checker import carried_digits, columns, digit_prompts
from verify.checker.adder import Adder, AdderLayer, InSteps, rounded
from verify.checker.carries import Mean
from verify.checker.formats import BinaryFormat
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.checker.roundoff import Reach, Roundoff

B, N = 2, 17
CELLS = [(1, i, cell) for i, cell in ((0, (0, 0)), (0, (1, 0)), (0, (2, 0)), (1, (0, 0)), (1, (0, 1)))]


def matrix(rows):
    return fmpq_mat([[fmpq(*float(x).as_integer_ratio()) for x in row] for row in rows])


def prompts_of(i, cell):
    """All prompts of two digits below 2 with this sum or, of the leading digit, with this carry."""
    for a, b in product(range(B), repeat=2):
        if (a + b, 0) == cell or (i == 1 and (a + b) // B == cell[1]):
            yield [a, B, b, B + 1, *([(a + b) // B] if i == 0 else [])]


def digit(on, model, tokens):
    """Logits at the last token, every step in one of the ways that the reading allows."""
    layer, x = model.layers[0], [[*map(on.result, map(float, model.embedded(t, at)))] for at, t in enumerate(tokens)]
    parts = []
    for W_Q, W_K, W_V, W_O in layer.heads:
        q, keys, values = on.affine(x[-1], W_Q), *([on.affine(row, W) for row in x] for W in (W_K, W_V))
        scores = [on.affine(q, matrix([[y] for y in key]))[0] for key in keys]
        exps = [on.exponential(on.result(s - max(scores))) for s in scores]
        total = on.total(exps)
        shares = [on.result(e / total) for e in exps]
        parts.append(on.affine(on.affine(shares, matrix(values)), W_O))
    stream = [on.total(column) for column in zip(*parts, x[-1], strict=True)]
    (b_1,), (b_out,) = ([[float(y) for y in row] for row in W.tolist()] for W in (layer.b_1, model.b_out))
    hidden = [max(0.0, z) for z in on.affine(stream, layer.W_1, b_1)]
    return on.affine(on.affine(hidden, layer.W_2, stream), model.W_out, b_out)


class InFormat(Evaluation):
    def exponential(self, x):
        return math.exp(x) * (1 + self.draw.uniform(-3, 3) * 2.0**-self.p) if x else 1.0


class LeftToRight(InOrder):
    def exponential(self, x):
        return near(math.exp(x), self.p)


def drawn(name, seed, d=3, p=3):
    """A drawn adder whose scores are of places alone: coordinate 0 has them, and no token."""
    draw = random.Random(seed)

    def number():
        x = draw.gauss(0, 1)
        return x if abs(x) > 2.0**-10 else 0.0

    def small(rows, columns, first=1.0):
        return matrix([[near(number(), BITS[name]) * (first if i == 0 else 1) for i in range(columns)]
                       for _ in range(rows)])  # fmt: skip

    by_place = [matrix([[near(draw.gauss(0, 2), 4)]] + [[0]] * (d - 1)) for _ in range(2)]
    E = small(B + 2, d, 0.0)
    positions = matrix([[near(draw.gauss(0, 1), 4)] + [near(number(), BITS[name]) for _ in range(d - 1)]
                        for _ in range(5)])  # fmt: skip
    head = (*by_place, small(d, 2), small(2, d))
    layer = AdderLayer([head], small(d, p), small(1, p), small(p, d))
    return rounded(Adder({}, True, E, positions, [layer], small(d, B), small(1, B)), Roundoff(of(name)))


def shown(model, fmt, i, cell):
    """The least that the checker has the right digit ahead of the other, and what real arithmetic has."""
    with ctx.workprec(columns.BITS + 64):
        both = [columns.DigitColumn(InSteps(model, each), 1, B, i) for each in (fmt, None)]
        return [float(arb(next(column.ahead(cell))[1]) * arb(2) ** -columns.BITS) for column in both]


def computed(model, on, i, cell):
    right = sum(cell) % B
    found = [digit(on, model, tokens) for tokens in prompts_of(i, cell)]
    return min(row[right] - row[1 - right] for row in found)


@pytest.mark.parametrize("seeds", first(1, [range(2), range(2, 60)]), ids=str)
def test_what_is_computed_is_not_below_what_is_shown(seeds):
    closest = 0.0
    for seed, name in product(seeds, BITS):
        model = drawn(name, seed)
        for _, i, cell in CELLS:
            try:
                least, real = shown(model, of(name), i, cell)
            except Refusal as refusal:
                assert refusal.exit_code == NOT_CHECKABLE
                continue
            found = min(computed(model, on, i, cell) for on in [InFormat(name, seed)] * 3)
            assert least <= found + 1e-12 and least <= real, (seed, name, i, cell)
            closest = max(closest, (real - found) / (real - least))
    assert closest > 0.02, closest


def stagnating(stage):
    """A model one of whose sums is 1 and 16 halves of its last place, each of which is lost; logit 0 reads it."""
    falling = [1.0, *[2.0**-8] * (N - 1)]
    n = N if stage == "attention" else 1
    shapes = ((N, n), (n, N), (N, N), (1, N), (N, N), (N, B))
    W_V, W_O, W_1, b_1, W_2, W_out = ([[0.0] * columns for _ in range(rows)] for rows, columns in shapes)
    W_out[0][0] = 1.0
    if stage == "attention":
        W_V, W_O = [[float(a == b) for b in range(N)] for a in range(N)], [[y, *[0.0] * (N - 1)] for y in falling]
    elif stage == "neurons":
        W_1, W_2 = [[y, *[0.0] * (N - 1)] for y in falling], [[1.0, *[0.0] * (N - 1)], *W_2[1:]]
    elif stage == "after them":
        b_1, W_2 = [[1.0] * N], [[y, *[0.0] * (N - 1)] for y in falling]
    else:
        W_out = [[y, 0.0] for y in falling]
    scores = matrix([[0.0]] * N)
    layer = AdderLayer([(scores, scores, matrix(W_V), matrix(W_O))], matrix(W_1), matrix(b_1), matrix(W_2))
    E, none = matrix([[1.0] * N] * (B + 2)), matrix([[0.0] * N] * 5)
    return Adder({}, True, E, none, [layer], matrix(W_out), matrix([[0.0] * B]))


FAULTS = {
    "attention": (columns.DigitColumn, "least", "term - off[r]", "term"),
    "neurons": (carried_digits.NeuronSteps, "lost", "abs(arb(gains[a])) * self.off_z[a]", "arb(0)"),
    "after them": (carried_digits.NeuronSteps, "lost", "(x + y)", "x"),
    "logits": (columns.DigitColumn, "ahead", "+ off_logits[right] + off_logits[other]", ""),
}


@pytest.mark.parametrize("stage", FAULTS)
def test_sums_that_stagnate_are_followed_and_a_fault_in_each_is_seen(stage):
    model, cell = stagnating(stage), (0, 0)
    least, found = shown(model, of("bfloat16"), 1, cell)[0], computed(model, LeftToRight(), 1, cell)
    assert found < shown(model, of("bfloat16"), 1, cell)[1] - 0.05 and least <= found
    with planted(*FAULTS[stage]):
        assert shown(model, of("bfloat16"), 1, cell)[0] > found


def tilted():
    """Scores 128 1/16, which is rounded to 128, and 128: the first place then weighs less in the mean."""
    rows = [[128.0, 0.0625 * (at == 0), float(at == 0)] for at in range(5)]
    by_place = matrix([[1 / 128, 1 / 128], [0, 0], [0, 0]]), matrix([[1, 0], [0, 1], [0, 0]])
    none = fmpq_mat(3, 1)
    layer = AdderLayer(
        [(*by_place, matrix([[0], [0], [1]]), matrix([[0, 0, 1]]))], none, fmpq_mat(1, 1), fmpq_mat(1, 3)
    )
    W_out = matrix([[0, 0], [0, 0], [1, 0]])
    return Adder({}, True, fmpq_mat(B + 2, 3), matrix(rows), [layer], W_out, fmpq_mat(1, B))


ELEVEN = BinaryFormat(11, -126, 127)
OF_SOFTMAX = [
    (digit_prompts.RoundedPrompt, "_moved", "(a + mean) / (1 - mean) for", "0 * a for"),
    (Roundoff, "tilts", "x + share * far", "share * far"),
]


def test_a_softmax_that_is_tilted_is_followed_and_a_fault_is_seen():
    cell, on = (0, 0), LeftToRight()
    on.p = ELEVEN.p
    (least, real), found = shown(tilted(), ELEVEN, 1, cell), computed(tilted(), on, 1, cell)
    assert least <= found < real - 0.01
    for fault in OF_SOFTMAX:
        with planted(*fault):
            assert shown(tilted(), ELEVEN, 1, cell)[0] > found


def test_an_argument_of_exp_rounds_what_scores_are_apart():
    """100 1/4 less 0, kept by both and then rounded to 100."""
    scores = Reach(arb_mat([[100.25, 0]]), arb_mat(1, 2))

    def is_covered():
        return Roundoff(of("bfloat16")).tilts(scores, [[arb(0), arb(100.25)]])[0][1] >= math.expm1(0.25)

    assert is_covered()
    with planted(Roundoff, "tilts", "share * far", "share"):
        assert not is_covered()


def test_the_stream_that_is_added_may_be_another_reading_than_the_neurons():
    """Kept 1 + 2^-8 below one, and rounded to 1 beside; then the sum with nothing is rounded once more."""
    steps = InSteps(stagnating("logits"), of("bfloat16"))
    layer = AdderLayer([], fmpq_mat(1, 1), fmpq_mat(1, 1), fmpq_mat(1, 1))

    def is_covered():
        after = carried_digits.NeuronSteps(steps, layer, [arb(1 + 2.0**-8)], [arb(0)])
        return bool(after.lost(fmpq_mat([[1]]), ()) >= 2.0**-8 + 2.0**-8)

    assert is_covered()
    for fault in ((carried_digits.NeuronSteps, "lost", "(x + y)", "y"), (InSteps, "apart", "self.fmt is None", "True")):
        with planted(*fault):
            assert not is_covered()


def test_a_sum_in_a_wider_format_may_round_a_product_twice():
    """1 x w with w of nine bits' product: first to nine bits, upwards, then to eight, upwards once more."""
    p, (x, w) = (
        8,
        max(
            ((1 + a / 128, 1 + b / 128) for a in range(64) for b in range(64)),
            key=lambda pair: abs(near(near(pair[0] * pair[1], 9), 8) - pair[0] * pair[1]) / (pair[0] * pair[1]),
        ),
    )
    moved = abs(near(near(x * w, p + 1), p) - x * w)
    model, W = stagnating("logits"), matrix([[w]])
    assert moved > 2.0**-p * x * w / (1 + 2.0**-p)  # more than one rounding does
    assert InSteps(model, of("bfloat16"), True).off([arb(x)], W, [arb(0)])[0] >= moved


FAR = 10**300  # e^FAR and e^-FAR have exponents that balls do not hold


@pytest.mark.parametrize("score", [arb(FAR), arb(0).union(FAR), arb(-FAR)], ids=["heavy", "any", "light"])
def test_a_key_whose_weight_has_no_number_is_left_out_of_no_mean(score):
    """Keys of 1 beside one of 0, which weighs as little as the lightest of them: the mean is above 9/10."""
    with ctx.workprec(columns.BITS + 64):
        empty = Mean((arb(0), arb(0)), [(arb(0), arb(0))])
        one = empty.plus(score.min(arb(0)).lower(), arb(0), [arb(0)])
        several = one
        for _ in range(10):
            several = several.plus(score, arb(0), [arb(1)])
        for ((low, high),) in (several.values, one.hull(several).values, several.hull(one).values):
            assert not high <= 0.9 and not low > 0.91


def far_beyond():
    """The mean of 2^900 at all places, less 2^900, read by logit 0, and one half besides."""
    d = 3
    none, big = fmpq_mat(d, 1), 2.0**900
    scores = matrix([[0.0], [0.0], [1.0]])
    head = (scores, scores, matrix([[1], [0], [0]]), matrix([[0, 1, 0]]))
    layer = AdderLayer([head], none, fmpq_mat(1, 1), fmpq_mat(1, d))
    positions = matrix([[big, 0, 1 + (at == 2)] for at in range(5)])
    W_out = matrix([[-1, 0], [1, 0], [0, 0]])
    return Adder({}, True, fmpq_mat(B + 2, d), positions, [layer], W_out, matrix([[0.5, 0]]))


@pytest.mark.parametrize(("model", "margin", "code"), [(far_beyond, 0.25, NOT_CHECKABLE), (tilted, 200, FAILS)])
def test_what_balls_do_not_tell_is_not_called_false(model, margin, code):
    claimed = fmpq(*margin.as_integer_ratio()) * fmpq(2) ** columns.BITS
    with ctx.workprec(columns.BITS + 64), pytest.raises(Refusal) as refused:
        columns.DigitColumn(InSteps(model(), None), 1, B, 1).prove(claimed)
    assert refused.value.exit_code == code
