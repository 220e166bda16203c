"""Prompts of Count01 as a format computes them, box by box of their counts, in any order (docs/checker.md).

In a box each computed exponential lies between two ends, and means by them are quotients of forms in the counts. What
the steps behind the exponentials round is bounded by the sizes of the numbers in this box, not of all.
"""

from collections.abc import Sequence
from typing import NamedTuple

from flint import arb, ctx, fmpq, fmpq_mat

from verify.checker.ball_rows import most_of
from verify.checker.boxes import Box, Row, all_shown
from verify.checker.computed_orders import exact
from verify.checker.depths import Departure, Depths, is_power
from verify.checker.formats import ULPS, BinaryFormat
from verify.checker.prompts import EQUALS, PromptRegion
from verify.checker.reading import NOT_CHECKABLE, require

BITS, PRECISION = 256, 320  # ends are whole numbers over 2^BITS; balls have more bits
ONE = 1 << BITS
DIGITS = (1, 2, 3)

Ends = tuple[int, int]
Part = tuple[int, int, tuple[int, ...]]  # from how many to how many times these tokens are there, each of them


class WeighedTokens(NamedTuple):
    """The tokens of a box and the ends of their exponentials, where one token has the largest score."""

    parts: Sequence[Part]
    weights: dict[int, Ends]
    top: int

    def least(self, values: Sequence[int]) -> int:
        """At most every mean of the values: an a with which the least sum of all n w (v - a) is not below 0."""
        a = max(values[t] for t in self.weights)
        while True:
            above = below = 0
            for low, high, tokens in self.parts:
                chosen = [(self.weights[t][values[t] < a], values[t]) for t in tokens]
                n = high if sum(w * (v - a) for w, v in chosen) < 0 else low
                above, below = above + n * sum(w * v for w, v in chosen), below + n * sum(w for w, _ in chosen)
            if above >= a * below:
                return a
            a = above // below

    def numbers(self, at_most: bool) -> dict[int, int]:
        """How often each token is there at least, or at most."""
        return {t: sum(part[1] if at_most else part[0] for part in self.parts if t in part[2]) for t in self.weights}

    def total(self, at_most: bool) -> int:
        """The least or the largest sum of the exponentials."""
        found = sum(n * self.weights[t][at_most] for t, n in self.numbers(at_most).items())
        return max(self.weights[self.top][at_most], found)


class ComputedPrompts:
    """A model read after one token, as a format computes it. Raises: Refusal where a number may overflow."""

    def __init__(
        self, fmt: BinaryFormat, inner: BinaryFormat, numbers: dict[str, list[fmpq_mat]], skip: bool, last: int
    ) -> None:
        self.fmt, self.inner, self.last, self.sums = fmt, inner, last, Depths(fmt, inner)
        (E,), (self.W_out,), (b_out,) = (numbers[name] for name in ("E", "W_out", "b_out"))
        self.own, self.b_out = [x * int(skip) for x in E.tolist()[last]], b_out.entries()
        heads = [*zip(*(numbers[name] for name in ("W_Q", "W_K", "W_V", "W_O")), strict=True)]
        self.W_O = fmpq_mat([row for head in heads for row in head[3].tolist()])
        with ctx.workprec(PRECISION):
            read = [[self._read(E, W) for W in head[:3]] for head in heads]
            of_keys = [([[*enumerate(map(self.sums.on.factor, key))] for key in k], q[last]) for q, k, _ in read]
            self.scores = [[self.sums.on.total(key, q) for key in keys] for keys, q in of_keys]
            self.values = [[[self.sums.on.factor(x) for x in column] for column in zip(*v, strict=True)]
                           for *_, v in read]  # fmt: skip
        middles = [fmpq_mat([[exact(x) for x in row] for row in rows]).transpose() for rows in self.values]
        forms = [(V * head[3] * self.W_out).transpose().tolist() for V, head in zip(middles, heads, strict=True)]
        self.forms = [[*lines, [fmpq(0)] * 8] for lines in forms]
        own = (fmpq_mat([self.own]) * self.W_out).entries()
        self.constants = [*(b + x for b, x in zip(self.b_out, own, strict=True)), fmpq(0)]

    def _read(self, E: fmpq_mat, W: fmpq_mat) -> list[list[arb]]:
        """What each token's embedding gives."""
        columns = [
            [*enumerate(self.sums.on.weight(int(w.p) / int(w.q)) for w in column)] for column in W.transpose().tolist()
        ]
        return [[self.sums.on.total(column, [*map(arb, row)]) for column in columns] for row in E.tolist()]

    def proves(self, cell: PromptRegion, rivals: Sequence[int], box: Box, margin: fmpq) -> bool:
        """Whether the due logit is ahead of these by the margin on all prompts of a side, in every order."""
        none, classes = len(self.b_out), [cell.due, *rivals]
        pairs = [(cell.due, j) for j in rivals] + [pair for j in classes for pair in ((j, none), (none, j))]
        forms, read = {pair: self._form(*pair) for pair in pairs}, self.W_out.transpose().tolist()

        def shown(low: Row, high: Row) -> bool:
            heads = self._weighed(low, high, cell.is_more)

            def least(i: int, j: int) -> fmpq:
                constant, lines = forms[i, j]
                means = (min(x.least(line) for x in found) for found, line in zip(heads, lines, strict=True))
                return constant + fmpq(sum(means), ONE)

            gaps = {j: least(cell.due, j) - margin for j in rivals}
            if min(gaps.values()) < 0:
                return False
            y = [self._mean(row, found) for rows, found in zip(self.values, heads, strict=True) for row in rows]
            columns = zip(self.W_O.transpose().tolist(), self.own, strict=True)
            stream = [self.sums.total(y, column, own) for column, own in columns]
            most = {j: arb(-min(least(j, none), least(none, j))) for j in classes}
            off = {j: self.sums.total(stream, read[j], self.b_out[j], most[j]).error for j in classes}
            return all(arb(gap) >= off[cell.due] + off[j] for j, gap in gaps.items())

        with ctx.workprec(PRECISION):
            return all_shown(box, cell.is_more, shown)

    def _form(self, i: int, j: int) -> tuple[fmpq, list[list[int]]]:
        """One logit less another: what no token adds, and for each head what its tokens do, rounded down."""
        lines = [[floor((a - b) * ONE) for a, b in zip(head[i], head[j], strict=True)] for head in self.forms]
        return self.constants[i] - self.constants[j], lines

    def _weighed(self, low: Row, high: Row, is_more: bool) -> list[list[WeighedTokens]]:
        """Of each head the tokens of a box, one of which has the largest score."""
        fixed = [(1, 1, (t,)) for t in {0, EQUALS, self.last}]
        digits = [(1, 2), (2 if is_more else 1,), (3,)]
        parts = fixed + [(a, b, tokens) for a, b, tokens in zip(low, high, digits, strict=True) if b]
        there, sure = ({t for part in parts if part[k] for t in part[2]} for k in (1, 0))
        is_one = {t: sum(part[1] for part in parts if t in part[2]) == 1 for t in there}  # whose score is the maximum
        found = []
        for scores in self.scores:
            least = most_of(scores[t].lower() for t in sure)
            tops = [t for t in there if scores[t].upper() >= least]
            found.append([WeighedTokens(parts, {
                t: (ONE, ONE) if t == top and is_one[t] else self._power(scores[t] - scores[top]) for t in there
            }, top) for top in tops])  # fmt: skip
        return found

    def _power(self, distance: arb) -> Ends:
        """The ends of an exponential of a score less the largest one, which may be read rounded where it was kept."""
        on, off, tiny = self.sums.on, ULPS * self.inner.u, self.fmt.tiny
        x = on.result(distance.lower(), distance.upper())
        if x == 0:
            return ONE, ONE
        low, high = (x.lower().exp() * (1 - off)).lower(), (x.upper().exp() * (1 + off) + tiny * off).upper()
        found = on.result(low if low > 2 * tiny else arb(0), high)
        return max(0, floor(exact(found.lower()) * ONE)), ceiling(found)  # a ball may be wider than its ends

    def _mean(self, values: Sequence[arb], found: Sequence[WeighedTokens]) -> Departure:
        """One coordinate of what a head reads: it stands for the mean of its middle values by computed exponentials."""
        offs = [self._weighing(values, x) for x in found]
        return Departure(*(most_of(column) for column in zip(*offs, strict=True)))

    def _weighing(self, values: Sequence[arb], x: WeighedTokens) -> Departure:
        """The total, a quotient or a reciprocal and its product, products with values, and their sum."""
        fmt, sums, u, most = self.fmt, self.sums, self.inner.u, x.numbers(True)
        size = {t: values[t].abs_upper() for t in most if values[t] != 0}
        if not size:
            return Departure(arb(0), arb(0))
        n, largest = sum(most[t] for t in size), most_of(y * x.weights[t][1] for t, y in size.items())
        mean = arb(-x.least([-ceiling(size.get(t, arb(0))) for t in range(8)])) / ONE
        share = (1 + u) ** 2 * (1 + sums.stored) * (1 + sums.as_factor) / (1 - self._of_total(x)) - 1
        is_hard = not all(values[t].is_exact() and is_power(exact(values[t])) for t in size)
        grown = (1 + share) * (1 + u * is_hard)
        error = mean * (grown - 1) + sums.of_many(mean * grown, largest / x.total(False) * grown, n)
        error = error + sums.storing(mean + error) + most_of(values[t].rad() for t in size)
        lightest = {t: arb(x.weights[t][0]) / x.total(True) * values[t].abs_lower().min(arb(1)) for t in size}
        lost = [most[t] * y.max(arb(1)) for t, y in size.items() if not lightest[t] > 4 * fmt.tiny]
        has_one_sign = not lost and len({values[t] > 0 for t in size}) == 1
        error = error + fmt.tiny * (sum(lost, arb(0)) + (0 if has_one_sign else n)) * (1 + self.inner.growth(n + 2))
        require(fmt.holds(n * (mean + error)), "a mean may overflow in the format", NOT_CHECKABLE)
        return Departure((mean + error).upper(), error.upper())

    def _of_total(self, x: WeighedTokens) -> arb:
        """By which share of itself the sum of exponentials is off, each read rounded or kept; ones are exact."""
        sums, most, ends, u = self.sums, x.numbers(True), x.weights.values(), self.inner.u
        n = sum(most.values())
        require(
            self.fmt.holds(arb(2 * n)) and bool(4 * n * self.fmt.tiny < 1),
            "a softmax is too long for the format",
            NOT_CHECKABLE,
        )
        if {*ends} == {(ONE, ONE)} and n <= 2**self.inner.p:
            return self.sums.stored if n > 2**self.fmt.p else arb(0)
        others = sum(k * x.weights[t][1] for t, k in most.items() if x.weights[t] != (ONE, ONE))
        once, low, high = (1 + u) * (1 + sums.stored), arb(x.total(False)) / ONE, arb(x.total(True)) / ONE
        grown = 1 + (once - 1) * others / (others + ONE * (x.weights[x.top] == (ONE, ONE)))  # which is there
        off = grown - 1 + sums.of_many(grown, arb(max(high for _, high in ends)) / ONE / low * once, n)
        off += arb(0) if min(low for low, _ in ends) > 2 * ceiling(self.fmt.tiny) else 2 * n * self.fmt.tiny
        require(bool(off < 0.5), "a softmax is too far off in the format", NOT_CHECKABLE)
        stored = sums.on.result((low * (1 - off)).lower(), (high * (1 + off)).upper())
        return ((1 + off) * (1 + sums.stored) - 1).min((stored.upper() - low).max(high - stored.lower()) / low).upper()


def floor(x: fmpq) -> int:
    return int(x.floor())


def ceiling(x: arb) -> int:
    """At least x, over 2^BITS."""
    return -floor(-exact(x.upper()) * ONE)
