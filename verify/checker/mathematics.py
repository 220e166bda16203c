"""The histogram models in integers: one input exactly, and the margins over all inputs (docs/checker.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache, cmp_to_key
from itertools import accumulate
from math import isqrt
from typing import NamedTuple

from flint import arb, ctx, fmpq, fmpz_mat

from verify.checker.reading import NOT_CHECKABLE, Refusal, Scaled, Weights, scaled

BITS = 192  # of rounded weights, where floats claim margins with 53; what they leave undecided is not accepted
MOST_BITS = 1 << 17  # for the sign of one sum of exponentials

Interval = tuple[int, int]
Sum = dict[int, int]  # basis number -> coefficient


class Query(NamedTuple):
    """Token t at a position: the weights of what is there in any case, and of the slots, in groups of equal ones."""

    position: int
    t: int
    fixed: list[tuple[Interval, int]]  # weight, token
    groups: list[tuple[int, Interval, list[Interval]]]  # slots, weight of t there, weights of the other tokens there


class Model:
    """Integers for V = E W_1 and b_1 (over 2^v), for scores (over 2^u), for W_2, b_2 and claimed margins (over 2^a)."""

    def __init__(self, weights: Weights, margins: Sequence[float]) -> None:
        m, parameters = weights.matrices, weights.parameters
        self.T, self.L, self.first_count = parameters["T"], parameters["L"], weights.first_count
        self.is_linear, self.is_softmax = "A" in m, parameters["model"].endswith("+sftm")
        (E, e_BOS), shift = _aligned(m["E"], m.get("e_BOS", ([], 0)))
        x = E + e_BOS, shift
        (self.V, (self.b_1,)), self.v = _aligned(_product(x, m["W_1"]), m["b_1"])
        # D counts as one more neuron, the last one, that is always on
        self.columns = [[*column] for column in zip(*self.V, strict=True)] + [[0] * len(self.V)]
        self.biases = [*self.b_1, 1]
        (self.W_2, (self.b_2,), (self.margins,)), self.a = _aligned(m["W_2"], m["b_2"], scaled(margins, self.L))
        self.scores, self.u = m["A"] if self.is_linear else _product(_product(x, m["W_Q"]), _product(x, m["W_K"]), True)
        self.scale = 1 if self.is_linear else parameters["d"]  # its square root divides the scores
        self.root = isqrt(self.scale) if isqrt(self.scale) ** 2 == self.scale else None
        D = isqrt(self.scale << 2 * (self.u + (0 if self.root else BITS)))
        self.D = D, D if self.root else D + 1  # without softmax, over the same power of two as the weights

    def basis(self, key: int, bits: int) -> arb:
        """The positive number that a key stands for: e^score, or without softmax 1 (key 0) or sqrt(d)."""
        with ctx.workprec(bits):
            root = arb(self.scale).sqrt()
            return (arb(key) / arb(2) ** self.u / root).exp() if self.is_softmax else root if key else arb(1)

    def sign(self, x: Sum) -> int:
        """The exact sign: the basis numbers are linearly independent, so zero shows in the coefficients."""
        signs, bits = {(c > 0) - (c < 0) for c in x.values() if c}, 32
        if len(signs) < 2:
            return sum(signs)
        top = max(x) if self.is_softmax else 0
        while (bits := 2 * bits) <= MOST_BITS:
            with ctx.workprec(bits):
                ball = sum((c * self.basis(key - top, bits) for key, c in x.items()), arb(0))
            if ball > 0 or ball < 0:
                return 1 if ball > 0 else -1
        raise Refusal(f"the sign of a sum of exponentials does not show within {MOST_BITS} bits", NOT_CHECKABLE)

    def compare(self, x: Sum, y: Sum, factor: float = 1) -> int:
        """The sign of x - factor y."""
        m, n = factor.as_integer_ratio()
        return self.sign({key: n * x.get(key, 0) - m * y.get(key, 0) for key in x | y})

    def judge(self, tokens: Sequence[int], position: int) -> tuple[list[int], Sum | None, Sum]:
        """The counts whose logit is largest, and exactly: (right logit - largest other) D, if there is one, and D."""
        t, context = tokens[position], [*tokens, *range(self.T, len(self.V))]
        scores = self.scores[position] if self.is_linear else [self.scores[t][s] for s in context]
        terms = [({key: 1} if self.is_softmax else {0: key}, s) for key, s in zip(scores, context, strict=True)]
        constant = {0: self.root << self.u} if self.root else {1: 1 << self.u}
        D = _sum((weight, 1) for weight, _ in terms) if self.is_softmax else constant
        rest = [x + b for x, b in zip(self.V[t], self.b_1, strict=True)]
        hidden = [_sum([(D, r), *((weight, self.V[s][i]) for weight, s in terms)]) for i, r in enumerate(rest)]
        on = [(z, row) for z, row in zip(hidden, self.W_2, strict=True) if self.sign(z) > 0]
        logits = [_sum([(D, b << self.v), *((z, row[c]) for z, row in on)]) for c, b in enumerate(self.b_2)]
        right = tokens.count(t) - self.first_count
        order = cmp_to_key(self.compare)
        largest, others = max(logits, key=order), logits[:right] + logits[right + 1 :]
        winners = [c + self.first_count for c, logit in enumerate(logits) if self.compare(logit, largest) == 0]
        margin = _sum([(logits[right], 1), (max(others, key=order), -1)]) if others else None
        return winners, margin, {key: c << self.a + self.v for key, c in D.items()}

    def exact_ratio(self, x: Sum, D: Sum) -> str | None:
        """x / D as a certificate writes it: a rational and a multiple of sqrt(d); with exponentials only zero."""
        if self.is_softmax or not any(x.values()):
            return None if any(x.values()) else "0"
        if self.root:
            return str(fmpq(x.get(0, 0), D[0]))
        rational, root = fmpq(x.get(1, 0), D[1]), fmpq(x.get(0, 0), D[1] * self.scale)
        parts = [str(rational)] * (rational != 0) + [f"{root}*sqrt({self.scale})"] * (root != 0)
        return " + ".join(parts).replace("+ -", "- ")

    def weight(self, score: int) -> Interval:
        """Integers around a mixing weight: over 2^u, or over 2^BITS where it is a power of e, or 2^(u + BITS)."""
        if not self.is_softmax:
            return (score, score) if self.root else (score << BITS, score << BITS)
        with ctx.workprec(2 * BITS):  # a score of at most 0
            ball = self.basis(score, BITS) * 2**BITS
            return int(ball.lower().floor().unique_fmpz()), int(ball.upper().ceil().unique_fmpz())

    def queries(self) -> Iterator[Query]:
        """Every token at every position; positions of lin that mix alike up to their order are looked at once."""
        T, L, seen, weight = self.T, self.L, set(), cache(self.weight)
        for position in range(L if self.is_linear else 1):
            for t in range(T):
                scores = self.scores[position if self.is_linear else t]
                weights = [weight(score - (max(scores) if self.is_softmax else 0)) for score in scores]
                if not self.is_linear:
                    fixed = [(weights[t], t), *zip(weights[T:], range(T, T + 1), strict=False)]
                    yield Query(position, t, fixed, [(L - 1, weights[t], weights[:t] + weights[t + 1 : T])])
                    continue
                slots = sorted(weights[:position] + weights[position + 1 :])
                if (t, weights[position], *slots) not in seen:
                    seen.add((t, weights[position], *slots))
                    groups = [(slots.count(x), x, [x] * (T - 1)) for x in sorted(set(slots))]
                    yield Query(position, t, [(weights[position], t)], groups)

    def least(self, q: Query, u: list[int], bias: int) -> list[int]:
        """Lower bounds on D (u_t + bias) + (sum of weight u_s over what is mixed) over all inputs, for k = 1..L.

        For one k a slot that does not hold t does best with one token, and the k - 1 slots hold t that gain least.
        """
        rest, gains = u[q.t] + bias, []
        if self.is_softmax:  # D is the sum of the weights
            u = [x + rest for x in u]
        base = sum((_least(u[s], weight) for weight, s in q.fixed), 0 if self.is_softmax else _least(rest, self.D))
        others = u[: q.t] + u[q.t + 1 : self.T]
        for n, own, weights in q.groups:
            term = min([x * weight[x < 0] for x, weight in zip(others, weights, strict=True)])
            base += n * term
            gains += [_least(u[q.t], own) - term] * n
        return list(accumulate(sorted(gains), initial=base))

    def open_cells(self) -> Iterator[tuple[Query, int]]:
        """The queries and own counts k at which this argument does not show the margin that is claimed for k."""
        for q in self.queries():
            low = [self.least(q, u, b) for u, b in zip(self.columns, self.biases, strict=True)]
            minus_high = [self.least(q, [-x for x in u], -b) for u, b in zip(self.columns, self.biases, strict=True)]
            for k in range(1, self.L + 1):
                ranges = [(x[k - 1], -y[k - 1]) for x, y in zip(low, minus_high, strict=True)]
                on = [i for i, (x, y) in enumerate(ranges[:-1]) if x >= 0 and y > 0] + [len(ranges) - 1]
                undecided = [i for i, (x, y) in enumerate(ranges[:-1]) if x < 0 < y]
                others = [c for c in range(len(self.b_2)) if c != k - self.first_count]
                if len(undecided) > 1 or not all(self._is_ahead(q, k, c, on, undecided, ranges) for c in others):
                    yield q, k

    def _is_ahead(self, q: Query, k: int, c: int, on: list[int], undecided: list[int], ranges: list[Interval]) -> bool:
        """D (logit of k - logit c - margin of k) >= 0: a linear form, in which an undecided neuron may be zero."""
        r = k - self.first_count
        slope = {i: self.W_2[i][r] - self.W_2[i][c] for i in on[:-1] + undecided}
        slope[on[-1]] = (self.b_2[r] - self.b_2[c] - self.margins[k - 1]) << self.v  # of D
        for chosen in [on] + [on + undecided] * any(slope[i] < 0 for i in undecided):
            if sum(slope[i] * ranges[i][slope[i] < 0] for i in chosen) < 0:  # one neuron at a time does not show it
                u = [sum(slope[i] * self.columns[i][s] for i in chosen) for s in range(len(self.V))]
                if self.least(q, u, sum(slope[i] * self.biases[i] for i in chosen))[k - 1] < 0:
                    return False
        return True


def _sum(terms: Iterable[tuple[Sum, int]]) -> Sum:
    total: Sum = {}
    for x, factor in terms:
        for key, c in x.items():
            total[key] = total.get(key, 0) + factor * c
    return total


def _least(x: int, weight: Interval) -> int:
    return x * weight[x < 0]


def _aligned(*matrices: Scaled) -> tuple[list[list[list[int]]], int]:
    """The same numbers over one power of two."""
    most = max(shift for _, shift in matrices)
    return [[[x << most - shift for x in row] for row in rows] for rows, shift in matrices], most


def _product(a: Scaled, b: Scaled, transposed: bool = False) -> Scaled:
    right = fmpz_mat(b[0]).transpose() if transposed else fmpz_mat(b[0])
    return [[int(x) for x in row] for row in (fmpz_mat(a[0]) * right).tolist()], a[1] + b[1]
