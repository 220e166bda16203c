"""Models that count, in integers: one input exactly, and the margins over all inputs (docs/checker.md)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cmp_to_key
from itertools import accumulate
from math import isqrt
from typing import Protocol

from flint import arb, ctx, fmpq, fmpz, fmpz_mat

from verify.checker.reading import NOT_CHECKABLE, Refusal, Weights

BITS = 192  # of rounded weights, where floats claim margins with 53; what they leave undecided is not accepted
FINEST = 1 << 60  # units of numbers of which what is rounded is taken off
MOST_BITS = 1 << 17  # for the sign of one sum of exponentials

Interval = tuple[int, int]
Sum = dict[int, int]  # basis number -> coefficient, never zero
# token; what is mixed in any case (weight, token); groups of equal slots (how many, weight of each token there)
Query = tuple[int, tuple[tuple[Interval, int], ...], tuple[tuple[int, tuple[Interval, ...]], ...]]


class RoundedForms(Protocol):
    """What may be taken off linear forms of computed numbers."""

    def slopes(self, right: int, other: int, slopes: Sequence[int]) -> list[int]:
        """Of (logit of right - the other), by what is left of each neuron and of D."""

    def costs(self, t: int, u: Sequence[int], n: Mapping[int, int]) -> tuple[list[int], int]:
        """Of a form of token t, so many times each pre-activation: by the token in a slot, of lin for each unit of
        its weight, and in any case."""


class Model:
    """Numbers over a power of two, `one`: V = E W_1 and b_1 over its square, and scores over `unit`.

    D counts as one more neuron, the last one, that is always on and writes b_2.
    """

    roundings: RoundedForms | None = None

    def __init__(self, weights: Weights, margins: Sequence[float], finest: int = 1) -> None:
        parameters, numbers = weights.repeated["parameters"], weights.matrices | {"margins": [[*margins]]}
        one = self.one = max(
            finest, *(x.as_integer_ratio()[1] for rows in numbers.values() for row in rows for x in {*row})
        )
        self.T, self.L, self.first_count = len(numbers["E"]), parameters["L"], weights.first_count
        self.is_linear, self.is_softmax = "A" in numbers, parameters.get("model", "").endswith("+sftm")
        x, of_x = _whole(numbers["E"] + numbers.get("e_BOS", []))
        W_1, of_W_1 = _whole(numbers["W_1"])
        self.V = [[v * (one**2 // (of_x * of_W_1)) for v in row] + [0] for row in _integers(x * W_1)]
        self.columns = [[*column] for column in zip(*self.V, strict=True)]
        m = {name: _over(numbers[name], one) for name in ("b_1", "W_2", "b_2", "margins")}
        self.biases = [b * one for b in m["b_1"][0]] + [one**2]
        self.W_2, self.margins = m["W_2"] + m["b_2"], m["margins"][0]
        self.need = int(not any(self.margins))  # without a margin a difference must be above zero
        self.classes, self.inputs = range(len(m["b_2"][0])), fmpz(self.T) ** self.L
        if self.is_linear:
            self.scores, self.unit, self.scale = _over(numbers["A"], one), one, 1
        else:
            (W_Q, of_Q), (W_K, of_K) = _whole(numbers["W_Q"]), _whole(numbers["W_K"])
            self.scores = _integers(x * W_Q * (x * W_K).transpose())
            self.unit, self.scale = of_x**2 * of_Q * of_K, weights.divisor  # its square root divides the scores
        if (root := isqrt(self.scale)) ** 2 == self.scale:
            self.unit, self.scale = root * self.unit, 1
        self.bits = (
            BITS if self.is_softmax or self.scale > 1 or finest > 1 else 0
        )  # nothing is rounded where all is rational
        D = isqrt(self.scale * (self.unit << self.bits) ** 2)
        self.D = (0, 0) if self.is_softmax else (D, D + (self.scale > 1))  # what is in it beside the weights

    def right(self, count: int) -> int:
        """The right class."""
        return count % 2 if self.first_count is None else count - self.first_count

    def basis(self, key: int, bits: int) -> arb:
        """The positive number that a key stands for: e^score, or without softmax 1 (key 0) or sqrt(d)."""
        with ctx.workprec(bits):
            root = arb(self.scale).sqrt()
            return (arb(key) / self.unit / root).exp() if self.is_softmax else root if key else arb(1)

    def sign(self, x: Sum) -> int:
        """The exact sign: the basis numbers are linearly independent, so zero shows in the coefficients."""
        signs, bits = {(c > 0) - (c < 0) for c in x.values()}, 32
        if len(signs) < 2:
            return sum(signs)
        top = max(x) if self.is_softmax else 0
        while (bits := 2 * bits) <= MOST_BITS:
            with ctx.workprec(bits):
                ball = sum((c * self.basis(key - top, bits) for key, c in x.items()), arb(0))
            if ball > 0 or ball < 0:
                return 1 if ball > 0 else -1
        raise Refusal(f"the sign of a sum of exponentials does not show within {MOST_BITS} bits", NOT_CHECKABLE)

    def compare(self, x: Sum, y: Sum, factor: float | Fraction = 1) -> int:
        """The sign of x - factor y."""
        m, n = factor.as_integer_ratio()
        return self.sign(_sum([(x, n), (y, -m)]))

    def judge(self, tokens: Sequence[int], position: int) -> tuple[list[int], Sum, Sum]:
        """The classes whose logit is largest, and exactly: (right logit - largest other, if there is one) D, and D."""
        t, V, context = tokens[position], self.V, [*tokens, *range(self.T, len(self.V))]
        scores = self.scores[position] if self.is_linear else [self.scores[t][s] for s in context]
        terms = [({key: 1} if self.is_softmax else {0: key}, s) for key, s in zip(scores, context, strict=True)]
        D = _sum((weight, 1) for weight, _ in terms) if self.is_softmax else {int(self.scale > 1): self.unit}
        hidden = [_sum([(D, V[t][i] + b), *((w, V[s][i]) for w, s in terms)]) for i, b in enumerate(self.biases)]
        on = [(z, row) for z, row in zip(hidden, self.W_2, strict=True) if self.sign(z) > 0]
        logits = [_sum((z, row[c]) for z, row in on) for c in self.classes]
        right, order = self.right(tokens.count(t)), cmp_to_key(self.compare)
        largest, others = max(logits, key=order), logits[:right] + logits[right + 1 :]
        winners = [c for c in self.classes if self.compare(logits[c], largest) == 0]
        margin = _sum([(logits[right], 1), (max(others, key=order, default={}), -1)])
        return winners, margin, _sum([(hidden[-1], self.one)])

    def exact_ratio(self, x: Sum, D: Sum) -> str | None:
        """x / D as a certificate writes it: a rational and a multiple of sqrt(d); with exponentials only zero."""
        if self.is_softmax or not x:
            return None if x else "0"
        ((own, c),) = D.items()
        rational, root = fmpq(x.get(own, 0), c), fmpq(x.get(1 - own, 0), c * self.scale)
        parts = [str(rational)] * (rational != 0) + [f"{root}*sqrt({self.scale})"] * (root != 0)
        return " + ".join(parts).replace("+ -", "- ")

    def weight(self, score: int) -> Interval:
        """Integers around a mixing weight, over unit 2^bits, or over 2^bits where it is e^score, of a score below 0."""
        if not self.is_softmax:
            return score << self.bits, score << self.bits
        with ctx.workprec(2 * BITS):
            ball = self.basis(score, BITS) * 2**BITS  # a power of e is above zero, and so is their sum D
            return max(0, int(ball.lower().floor().unique_fmpz())), int(ball.upper().ceil().unique_fmpz())

    def queries(self) -> dict[Query, int]:
        """Every token at every position; positions of lin that mix alike up to their order are looked at once."""
        found, weight = dict[Query, int](), cache(self.weight)
        for position in range(self.L if self.is_linear else 1):
            for t in range(self.T):
                scores = self.scores[position if self.is_linear else t]
                top = max(scores) if self.is_softmax else 0
                weights = [weight(score - top) for score in scores]
                if self.is_linear:
                    slots = sorted(weights[:position] + weights[position + 1 :])
                    groups = [(slots.count(x), (x,) * self.T) for x in sorted({*slots})]
                    fixed = [(weights[position], t)]
                else:
                    groups = [(self.L - 1, tuple(weights[: self.T]))]
                    fixed = [(weights[s], s) for s in (t, *range(self.T, len(weights)))]
                found.setdefault((t, tuple(fixed), tuple(groups)), position)
        return found

    def slopes(self, right: int, other: int) -> list[int]:
        """Of (logit of right - the other), by each neuron and by D."""
        found = [row[right] - row[other] for row in self.W_2]
        return self.roundings.slopes(right, other, found) if self.roundings else found

    def costs(self, t: int, u: Sequence[int], n: Mapping[int, int]) -> tuple[list[int], int]:
        """What roundings may take off a form: nothing in real arithmetic."""
        return self.roundings.costs(t, u, n) if self.roundings else ([0] * len(self.V), 0)

    def least(self, q: Query, u: list[int], bias: int, n: Mapping[int, int]) -> list[int]:
        """Lower bounds on D (u_t + bias) + (sum of weight u_s over what is mixed) over all inputs, for k = 1..L.

        These are so many times D times each pre-activation as n says, of which roundings take something off.

        For one k a slot that does not hold t does best with one token, and the k - 1 slots hold t that gain least.
        """
        t, fixed, groups = q
        lost, always = self.costs(t, u, n)
        rest, gains = u[t] + bias, list[int]()
        if self.is_softmax:  # D is the sum of the weights
            u = [x + rest for x in u]
        if self.is_linear:  # what is taken off is a share of the weights, which then are not below 0
            u, lost = [x - y for x, y in zip(u, lost, strict=True)], [0] * len(u)
        base = rest * self.D[rest < 0] + sum(u[s] * weight[u[s] < 0] - lost[s] for weight, s in fixed) - always
        is_read = any(u)  # D without softmax is the same for all slots
        for slots, weights in groups:
            terms = [x * weight[x < 0] - y for x, weight, y in zip(u, weights, lost, strict=False)]
            terms = terms if is_read or self.roundings else [0] * self.T
            own, term = terms.pop(t), min(terms)
            base += slots * term
            gains += [own - term] * slots
        return list(accumulate(sorted(gains), initial=base))

    def open_cells(self) -> Iterator[tuple[int, int, int]]:
        """Positions, tokens and own counts k at which this argument does not show the margin that is claimed for k."""
        found = [(q, position, self._ranges(q)) for q, position in self.queries().items()]
        for k in range(1, self.L + 1):
            columns = zip(*(ranges[k - 1] for *_, ranges in found), strict=True)
            if self._is_shown(None, k, [(min(x for x, _ in column), max(y for _, y in column)) for column in columns]):
                continue  # between the ends of all ranges together, so at every token
            for q, position, ranges in found:
                if not self._is_shown(q, k, ranges[k - 1]):
                    yield position, q[0], k

    def _ranges(self, q: Query) -> list[list[Interval]]:
        """Between which numbers D times each pre-activation lies, for each own count; the last is D."""
        forms = [*enumerate(zip(self.columns, self.biases, strict=True))]
        low = [self.least(q, u, b, {i: 1}) for i, (u, b) in forms]
        minus_high = [self.least(q, [-x for x in u], -b, {i: 1}) for i, (u, b) in forms]
        return [[(x[k], -y[k]) for x, y in zip(low, minus_high, strict=True)] for k in range(self.L)]

    def _is_shown(self, q: Query | None, k: int, ranges: list[Interval]) -> bool:
        on = [i for i, (x, y) in enumerate(ranges) if x >= 0 and y > 0]
        undecided = [i for i, (x, y) in enumerate(ranges) if x < 0 < y]
        others = [c for c in self.classes if c != self.right(k)]
        return all(self._is_ahead(q, k, c, on, undecided, ranges) for c in others)

    def _is_ahead(
        self, q: Query | None, k: int, c: int, on: list[int], undecided: list[int], ranges: list[Interval]
    ) -> bool:
        """D (logit of k - logit c - margin of k) >= 0: a linear form, in which an undecided neuron may be zero.

        Of several of them each is anything from 0 to its largest value.
        """
        slopes = self.slopes(self.right(k), c)
        slope = {i: slopes[i] for i in on + undecided}
        slope[len(ranges) - 1] -= self.margins[k - 1]  # of D
        cases, harm = [on] + [on + undecided] * any(slope[i] < 0 for i in undecided), 0
        if len(undecided) > 1:
            cases, harm = [on], sum(min(0, slope[i] * ranges[i][1]) for i in undecided)
        for chosen in cases:
            alone = sum(slope[i] * ranges[i][slope[i] < 0] for i in chosen) + harm
            if alone < self.need:  # one neuron at a time does not show it
                if q is None:
                    return False
                u = [sum(slope[i] * self.columns[i][s] for i in chosen) for s in range(len(self.V))]
                bias = sum(slope[i] * self.biases[i] for i in chosen)
                if self.least(q, u, bias, {i: slope[i] for i in chosen})[k - 1] + harm < self.need:
                    return False
        return True


def _sum(terms: Iterable[tuple[Sum, int]]) -> Sum:
    total: Sum = {}
    for x, factor in terms:
        for key, c in x.items():
            total[key] = total.get(key, 0) + factor * c
    return {key: c for key, c in total.items() if c}


def _over(rows: list[list[float]], one: int) -> list[list[int]]:
    """What numbers are over a power of two."""
    ratios = {x: x.as_integer_ratio() for row in rows for x in {*row}}
    whole = {x: m * (one // n) for x, (m, n) in ratios.items()}
    return [[whole[x] for x in row] for row in rows]


def _whole(rows: list[list[float]]) -> tuple[fmpz_mat, int]:
    """Numbers over the smallest power of two that will do, and this power."""
    one = max(x.as_integer_ratio()[1] for row in rows for x in {*row})
    return fmpz_mat(_over(rows, one)), one


def _integers(matrix: fmpz_mat) -> list[list[int]]:
    return [[int(x) for x in row] for row in matrix.tolist()]
