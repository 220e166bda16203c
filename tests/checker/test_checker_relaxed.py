"""What rounding does to the bounds of cells: no least difference of logits is above the true one, in fractions."""

import itertools
import random
from fractions import Fraction

import pytest
from flint import arb
from models.selection import every

from tests.planted import planted
from verify.checker.arrays import FLOAT, Array
from verify.checker.lines import K
from verify.checker.relaxed import RelaxedCell
from verify.checker.stages import AffineNumbers, Stage, StagesAfterAttention
from verify.checker.whole_stages import WEIGHT_BITS, OwnLayer, StageRows, WeighedRows

FUNCTIONS = {"relu": lambda x: max(x, 0), "square": lambda x: x * x, "product": lambda x, y: x * y}


class DrawnLayer:
    """Stages of any sizes after some heads, and the numbers that their whole ones stand for: up to two units above."""

    def __init__(self, rng):
        self.rng, self.places, self.largest = rng, rng.choice((2, 3)), rng.choice((1, 5, 1 << 20))
        self.pairs = [(j, t) for j in range(self.places) for t in range(2)]
        self.values, heads, width = list[dict](), list[WeighedRows](), rng.choice((1, 2))
        for _ in range(rng.choice((1, 2))):
            alike = [rng.randrange(1, 1 << WEIGHT_BITS) for _ in range(self.places)]
            is_alike = rng.random() < 0.7  # the weights of all tokens at a place, so that nothing is of second order
            weights = {
                (j, t): alike[j] if is_alike else rng.randrange(1, 1 << WEIGHT_BITS - rng.choice((0, 9)))
                for j, t in self.pairs
            }
            rows = {pair: [self.largest * Fraction(rng.choice((0, 1, -1, rng.uniform(-1, 1)))) for _ in range(width)]
                    for pair in self.pairs}  # fmt: skip
            weighed = {pair: [int(w * x // 1) for x in rows[pair]] for pair, w in weights.items()}
            heads.append(WeighedRows(weights, weighed))
            self.values.append(rows)
        self.sources = 1 + len(heads) * width
        self.stages, self.true = list[StageRows](), list[list]()
        for _ in range(rng.choice((0, 1, 2))):
            function, size = rng.choice([*FUNCTIONS]), rng.choice((1, 2))
            drawn = [self.rows(size) for _ in range(1 + (function == "product"))]
            self.stages.append(StageRows(function, size, [rows for rows, _ in drawn]))
            self.true.append([true for _, true in drawn])
            self.sources += size
        logits, self.logits = self.rows(2)
        self.layer = OwnLayer(self.stages, dict(enumerate(logits)), heads, width, self.largest)

    def rows(self, size):
        """Whole numbers of units, and what they are."""
        rng, stages = self.rng, sum(stage.size for stage in self.stages)
        scales = [1 << rng.choice((10, K // 2, K, K + 32)) for _ in range(2)]  # of the heads' numbers and of the stages
        each = [*scales[:1] * (self.sources - stages), *scales[1:] * stages]
        rows = [[rng.choice((0, 1, 1)) * rng.randint(-scale, scale) for scale in each] for _ in range(size)]
        above = rng.choice(((0,), (2,), (0, 2)))
        return rows, [[Fraction(x + rng.choice(above), 1 << K) for x in row] for row in rows]

    def gap(self, tokens):
        """The difference of the two logits on one input."""
        x = [Fraction(1)]
        for head, values in zip(self.layer.heads, self.values, strict=True):
            pairs = [*enumerate(tokens)]
            total = sum(head.weights[pair] for pair in pairs)
            columns = zip(*(values[pair] for pair in pairs), strict=True)
            x += [sum(head.weights[p] * y for p, y in zip(pairs, column, strict=True)) / total for column in columns]
        for stage, arguments in zip(self.stages, self.true, strict=True):
            given = [[sum(map(Fraction.__mul__, row, x)) for row in rows] for rows in arguments]
            x += [FUNCTIONS[stage.function](*each) for each in zip(*given, strict=True)]
        right, other = (sum(map(Fraction.__mul__, row, x)) for row in self.logits)
        return (right - other) * (1 << K)


def bounds_hold(seed):
    """Whether a cell's bound is below all that is on it, and what is behind is so; None where there is no bound."""
    rng = random.Random(seed)
    drawn = DrawnLayer(rng)
    sets = tuple(rng.choice(((0,), (1,), (0, 1))) for _ in range(drawn.places))
    parent = RelaxedCell(drawn.layer, 0, ((0, 1),) * drawn.places, 0, None) if rng.random() < 0.3 else None
    cell = RelaxedCell(drawn.layer, 0, sets, 0, parent)
    low, gaps = cell.least([1])[1], [*map(drawn.gap, itertools.product(*sets))]
    if not cell.is_bounded:
        return None
    return low <= min(gaps) and (not cell.is_behind([1]) or max(gaps) <= 0)


def test_bounds_hold_whatever_is_rounded():
    found = [*map(bounds_hold, range(100))]
    assert False not in found and found.count(True) > 50


ROUNDINGS = [
    ("_by_heads", "(sum(map(abs, of_head)) + abs(m))", "abs(m)"),
    ("_by_heads", "(sum(map(abs, of_head)) + abs(m))", "sum(map(abs, of_head))"),
    ("_by_heads", "error * head.above", "error * head.below"),
    ("_by_heads", "x + head.below * y", "x + head.above * y"),
    ("_least_quotient", "low < 0", "False"),
    ("_bound", "2 * self.totals[-1]", "0"),
    ("_through", "n * largest +", ""),
    ("_through", "total * (2 * ((sum(map(abs, of_row)) >> K) + 1) + 1)", "0"),
    ("_through", "2 * ((sum(map(abs, of_row)) >> K) + 1)", "0"),
    ("least", "4 * self.totals[-1]", "0"),
    ("is_behind", ">= 4 * self.totals[-1]", ">= -4 * self.totals[-1]"),
    ("_through", "high if x < 0 else low) >> K for", "low if x < 0 else high) >> K for"),
]


@pytest.mark.parametrize("name, right, wrong", every(4, ROUNDINGS))
def test_a_rounding_that_is_forgotten_shows(name, right, wrong):
    with planted(RelaxedCell, name, right, wrong):
        seeds = range(1200, 1300) if name == "_bound" else range(500)  # which is seldom all that counts
        assert False in map(bounds_hold, seeds)


def is_below_a_far_head():
    """Whether a bound is below the least gap, where one head is at its least, which is 0, and the other far above."""
    largest, weights = 1 << 20, dict.fromkeys([(0, 0), (0, 1), (1, 0)], (1 << WEIGHT_BITS) - 1)
    values = [{(0, 0): 0, (0, 1): largest, (1, 0): 0}, {(0, 0): largest // 2, (0, 1): 0, (1, 0): 0}]
    heads = [WeighedRows(weights, {pair: [w * of_head[pair]] for pair, w in weights.items()}) for of_head in values]
    layer = OwnLayer([], {0: [0, 1 << K + 32, 1 << K + 32], 1: [0, 0, 0]}, heads, 1, largest)
    return RelaxedCell(layer, 0, ((0, 1), (0,)), 0, None).least([1])[1] <= largest << K + 30  # a quarter


def test_weights_may_be_more_than_their_first_bits():
    """So 1 / D may be less, which only a head shows whose quotient is far above the least one."""
    assert is_below_a_far_head()
    with planted(RelaxedCell, "_head", "+ 2 * len(self.places)", "+ 0 * len(self.places)"):
        assert not is_below_a_far_head()


def test_a_coefficient_that_is_not_told_from_zero_is_followed():
    """Balls that hold 0 and other numbers are neither equal to 0 nor different from it; NaN is neither."""
    column = [arb(0), arb(0, 1), arb("nan"), arb(0), arb(2)]
    rows = [[arb(0)], [arb(0, 1e-60)], [arb(0)], [arb(0)]]
    argument, output = (AffineNumbers(Array(FLOAT, (1,), [[arb(0)]]), Array(FLOAT, (1,), x))
                        for x in (rows, [[x] for x in column]))  # fmt: skip
    after = object.__new__(StagesAfterAttention)
    after.output, after.stages = output, [Stage("relu", [argument], 4, 1)]
    assert after.needed([0]) == {1, 2, 4}
    with planted(StagesAfterAttention, "needed", "not row[e].is_zero()", "row[e] != 0"):
        assert after.needed([0]) == {4}
