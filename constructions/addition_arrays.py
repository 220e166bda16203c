"""Adding two numbers digit by digit, most significant digit first: the carry comes from attention alone.

E describes trained models in terms of base functions and carries and gives no weights; these are ours.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np

from constructions.adder.arrays import zero_adder
from constructions.adder.digits import Digits
from constructions.errors import BadInput, NotKnown
from constructions.model_arrays import LARGEST, UNITS, Array, LayerArrays, ModelArrays

DIGIT, SUM, CARRY = 0, 1, 2  # directions of the stream: a token's digit, and what attention finds out
HEADS = (1, 2)


def one_head(*, n: int, B: int = 10, dtype: str = "float64") -> ModelArrays:
    """One layer, one head, two ReLUs: attention reads U = sum_j<=i (d_j + e_j) B^(j-i), the digit is floor(U) mod B.

    Claim: W-E4.1 (ours). The answer's column i weighs column j <= i with B^(j-i); "+" has digit 0 and takes
    the rest, so that all weights sum to 4. U is a multiple of B^-i. Two ReLUs subtract B from B - B^-n on; the
    margin is B^-n / 2 up to the rounding of the scores (j - i) ln B, which are one stored number each.
    Shapes: d = n + 4, d_h = n + 2, d_v = 1, p = 2.
    Raises: NotKnown where B^(n+1) - 1 has more bits than the dtype.
    """
    sums = Digits(n, B)
    check_exact(B ** (n + 1), dtype, f"n={n}: the step at B needs the stored number 1 - B^(n+1)")
    columns, answers = _lanes(sums, first=SUM + 1)
    model = _model(sums, d=answers + 1, d_h=n + 2, p=(2,), dtype=dtype)
    step = B**n
    _attend(model.blocks[0], 0, sums, columns, answers, _lower_sums(sums, own=True), SUM, 4)
    W_1, b_1, W_2 = model.blocks[0].W_1, model.blocks[0].b_1, model.blocks[0].W_2
    W_1[SUM] = float(step)
    b_1[0], b_1[1] = float(1 - B * step), float(-B * step)
    W_2[0, SUM], W_2[1, SUM] = -B, B
    model.W_out[SUM] = np.arange(B)
    model.b_out[:] = _numbers([c * (-Fraction(1, 2) + Fraction(1, 2 * step)) - Fraction(c * c, 2) for c in range(B)])
    return model.rounded()


def two_heads(*, n: int, B: int = 10, dtype: str = "float64") -> ModelArrays:
    """One layer, two heads, four ReLUs: steps turn the lower columns' sum into the carry, and the margin is 1/2.

    Claim: W-E4.2 (ours). One head reads s = d_i + e_i, the other L = sum_j<i (d_j + e_j) B^(j-i) (at the leading
    column all of U_(n-1), which is compared with B instead of 1). Where s = B - 1 a second step wraps B to 0.
    Both steps lie in the middle of the gap B^-(n-1) below 1 (or B), so that scores, weights and sums may be off by a
    part of it, as they are in float32 at n = 5. What is made small where it decides: the stream holds s - (B - 1) and
    L - 1, slopes are powers of two, and each step is the difference of two neurons in a direction of its own.
    Shapes: d = n + 7, d_h = n + 2, d_v = 1, p = 4.
    Raises: NotKnown where the steepest reading has more bits than the dtype.
    """
    sums = Digits(n, B)
    gap = Fraction(1, B ** (n - 1))
    wrap_slope = 1 << math.ceil(math.log2(Fraction(5, 4) / gap))
    carry_slope = 2 * wrap_slope  # the leading column's sum is B times as large where it decides, and so its error
    check_exact(4 * B * wrap_slope, dtype, f"n={n}: a neuron reads numbers up to {4 * B * wrap_slope}")
    carried, wrapped = CARRY + 1, CARRY + 2
    columns, answers = _lanes(sums, first=wrapped + 1)
    model = _model(sums, d=answers + 1, d_h=n + 2, p=(4,), heads=2, dtype=dtype)
    layer = model.blocks[0]
    _attend(layer, 0, sums, columns, answers, _own_sum(sums, 0), SUM, 2)
    _attend(layer, 1, sums, columns, answers, _lower_sums(sums, own=False), CARRY, 4)
    for i in range(n + 1):
        slope, step = (carry_slope, B) if i == n else (wrap_slope, 1)
        model.positions[sums.query(i), SUM] = 1 - B
        model.positions[sums.query(i), CARRY] = float((gap - Fraction(1, slope)) / 2 - step)
    layer.W_1[CARRY] = [carry_slope, carry_slope, wrap_slope, wrap_slope]
    layer.W_1[SUM, 2:] = wrap_slope
    layer.W_1[columns[n], 2:] = -2 * B * wrap_slope  # nothing to wrap in the leading column
    layer.b_1[:] = [1, 0, 1, 0]
    layer.W_2[:2, carried], layer.W_2[2:, wrapped] = [1, -1], [1, -1]
    c = np.arange(float(B))
    model.W_out[SUM], model.W_out[carried], model.W_out[wrapped] = c, c, -B * c
    model.b_out[:] = c * (B - 1) - c * c / 2
    return model.rounded()


def two_layers(*, n: int, B: int = 10, dtype: str = "float64") -> ModelArrays:
    """Two layers of one head: a column generates a carry, propagates or stops it; the nearest that decides does.

    Claim: W-E4.3 (ours). Layer 1 adds up every column, at its second digit and where the answer is due, and three
    ReLUs say whether the sum is B - 1 or at least B. In layer 2 column i looks for the nearest column below whose
    sum is not B - 1: scores fall by 8 a column, and by far more where the sum is B - 1. All weights are small
    integers and halves, so no bit depends on n; the margin is about 1/2.
    Shapes: d = n + 8, d_h = n + 4, d_v = 1, p = 3 + 2.
    Raises: NotKnown where the scores, up to 24 n + 120, have more bits than the dtype.
    """
    sums = Digits(n, B)
    fall, far = 8, 8 * (n + 2) + 24  # `far` is the least that counts as never
    check_exact(3 * far, dtype, f"n={n}: scores are integers up to {3 * far}")
    passes, makes, carry, column_0 = 2, 3, 4, 5
    columns, answers = _lanes(sums, first=column_0)
    second = answers + 1
    model = _model(sums, d=second + 1, d_h=n + 4, p=(3, 2), dtype=dtype)
    first_layer, layer = model.blocks
    _attend(first_layer, 0, sums, columns, answers, _own_sum(sums, 0), SUM, 2)
    for j in range(n):
        model.positions[sums.second(j), second] = 1
    first_layer.W_1[SUM] = 1
    first_layer.b_1[:] = [2 - B, 1 - B, -B]
    first_layer.W_2[:, passes] = [1, -2, 1]
    first_layer.W_2[:, makes] = [0, 1, -1]
    for i in range(n + 1):
        layer.W_Q[0, columns[i], :n] = [fall * (j - i) if j < i else -2 * far for j in range(n)]
        layer.W_Q[0, columns[i], n] = far - fall * (i + 1)
        layer.W_K[0, columns[i], i] = 1
    for slot, lane, score in ((n + 1, answers, -2 * far), (n + 2, passes, -far), (n + 3, second, far)):
        layer.W_Q[0, answers, slot], layer.W_K[0, lane, slot] = score, 1
    layer.W_V[0, makes, 0], layer.W_O[0, 0, carry] = 1, 1
    layer.W_1[SUM], layer.W_1[carry] = 2, 2
    layer.b_1[:] = [1.5 - 2 * B, 0.5 - 2 * B]
    layer.W_2[:, SUM] = [-B, B]
    model.W_out[SUM], model.W_out[carry] = np.arange(B), np.arange(B)
    model.b_out[:] = _numbers([-Fraction(c * c, 2) for c in range(B)])
    return model.rounded()


def lookahead(k: int = 2, *, n: int, B: int = 10, dtype: str = "float64") -> ModelArrays:
    """E's scheme: base add on the own column, and carries from the k columns below, one head for each column.

    Claim: E-4. Head m reads the sum of column i - m. Carry 1 (make carry, use carry) and sum 9 passed on k - 1
    times are one comparison: the k columns make a carry iff sum_m s_(i-m) B^(k-m) >= B^k. A carry from further below
    is not seen, which is the scheme's error. E has k = 2, three heads.
    Shapes: d = n + 4, d_h = n + 2, heads = k + 1, d_v = 1, p = 2.
    Raises: BadInput for k < 0; NotKnown where B^(k+1) has more bits than the dtype.
    """
    if k < 0:
        raise BadInput(f"lookahead={k}: must be a number of columns, zero or more")
    sums = Digits(n, B)
    check_exact(2 * B ** (k + 2), dtype, f"lookahead={k}: the weights are integers up to B^(k+2)")
    columns, answers = _lanes(sums, first=SUM + 1)
    model = _model(sums, d=answers + 1, d_h=n + 2, p=(2,), heads=k + 1, dtype=dtype)
    step = B**k
    layer = model.blocks[0]
    for m in range(k + 1):
        _attend(layer, m, sums, columns, answers, _own_sum(sums, m), SUM, 2 * B ** (k - m))
    layer.W_1[SUM] = 1
    layer.b_1[0], layer.b_1[1] = 1 - B * step, -B * step
    layer.W_2[0, SUM], layer.W_2[1, SUM] = -B * step, B * step
    model.W_out[SUM] = np.arange(B)
    model.b_out[:] = _numbers([Fraction(c * (1 - step), 2) - Fraction(c * c * step, 2) for c in range(B)])
    return model.rounded()


def check_exact(number: int, dtype: str, what: str) -> None:
    """Raises NotKnown for an integer that the dtype cannot hold next to its neighbours.

    >>> check_exact(10**8, "float32", "a weight of 10^8 is needed")
    Traceback (most recent call last):
    constructions.errors.NotKnown: a weight of 10^8 is needed, which float32 does not hold exactly. Use --layers 2,
    fewer digits, or a wider --dtype.
    """
    if number * Fraction(UNITS[dtype]) > 1 or number > LARGEST[dtype]:
        raise NotKnown(
            f"{what}, which {dtype} does not hold exactly. Use --layers 2, fewer digits, or a wider --dtype."
        )


def _model(sums: Digits, *, d: int, d_h: int, p: tuple[int, ...], heads: int = 1, dtype: str) -> ModelArrays:
    """A model with digits and columns embedded: one direction for each column, shared by all its tokens."""
    model = zero_adder(
        tokens=sums.tokens, length=sums.length, classes=sums.B, d=d, heads=heads, d_h=d_h, p=p, dtype=dtype
    )
    columns, answers = _lanes(sums, first=d - (sums.n + 2) - (len(p) - 1))
    model.E[: sums.B, DIGIT] = np.arange(sums.B)
    model.positions[sums.n, columns[sums.n]] = 1  # "+" stands for the column that no number has
    for j in range(sums.n):
        model.positions[sums.first(j), columns[j]] = model.positions[sums.second(j), columns[j]] = 1
    for i in range(sums.n + 1):
        model.positions[sums.query(i), columns[i]] = model.positions[sums.query(i), answers] = 1
    return model


def _lanes(sums: Digits, first: int) -> tuple[range, int]:
    """The directions of columns 0..n, and the one that marks where an answer is due."""
    return range(first, first + sums.n + 1), first + sums.n + 1


def _attend(
    layer: LayerArrays,
    head: int,
    sums: Digits,
    columns: range,
    answers: int,
    scores: list[list[float]],
    lane: int,
    scale: int,
) -> None:
    """Fills in a head: column i gives `scores[i][j]` to column j (j = n is "+"), and far less to answers.

    The digits' average is written to `lane`, `scale` times.
    """
    never = _never(sums)
    for i, row in enumerate(scores):
        layer.W_Q[head, columns[i], : sums.n + 1] = row
        layer.W_K[head, columns[i], i] = 1
    layer.W_Q[head, columns[0] : columns[-1] + 1, sums.n + 1] = -never
    layer.W_K[head, answers, sums.n + 1] = 1
    layer.W_V[head, DIGIT, 0], layer.W_O[head, 0, lane] = 1, scale


def _lower_sums(sums: Digits, *, own: bool) -> list[list[float]]:
    """Scores ln B^(j-i) for j <= i, or j < i; "+" gets the rest of a total weight of 4.

    Without its own column the leading one weighs with B^(j-(n-1)): it reads U of the column below.
    """
    rows = []
    for i in range(sums.n + 1):
        top = i if own else min(i, sums.n - 1)
        seen = range(sums.n) if i == sums.n else range(i + 1 if own else i)
        rest = 4 - sum((2 * Fraction(sums.B) ** (j - top) for j in seen), start=Fraction(0))
        scores = [_log(Fraction(sums.B) ** (j - top)) if j in seen else -_never(sums) for j in range(sums.n)]
        rows.append([*scores, _log(rest)])
    return rows


def _own_sum(sums: Digits, m: int) -> list[list[float]]:
    """Scores 0 for column i - m and nothing else; where there is none, for "+"."""
    rows = []
    for i in range(sums.n + 1):
        target = i - m if 0 <= i - m < sums.n else sums.n
        rows.append([0.0 if j == target else -_never(sums) for j in range(sums.n + 1)])
    return rows


def _never(sums: Digits) -> float:
    """A score so far below 0 that all such keys together weigh less than 2^-20 B^-(n+1)."""
    return float(math.ceil((sums.n + 2) * math.log(sums.B) + math.log(sums.length) + 14))


def _log(x: Fraction) -> float:
    """ln x, rounded once."""
    with localcontext() as context:
        context.prec = 60
        return float((Decimal(x.numerator) / Decimal(x.denominator)).ln())


def _numbers(values: list[Fraction]) -> Array:
    return np.array([float(x) for x in values])
