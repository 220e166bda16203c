"""REFUTED in a format by one run: every number of the run is in the certificate, and is one that may be computed.

How the run was found plays no part. Of each result it is asked whether the reading allows it, given those before.
"""

import math
from collections.abc import Callable, Iterator

from flint import arb, arb_mat, ctx

from verify.checker import formats
from verify.checker.formats import BinaryFormat
from verify.checker.linear import first_wrong, wrong_at
from verify.checker.reading import FAILS, NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import StoredNetwork, due_of, logistic
from verify.checker.rounded import BITS, stored_network
from verify.checker.rounded_lines import ComputedLine, either
from verify.checker.rounded_operations import RoundedOperations

WIDE = BinaryFormat(*formats.NAMED["float64"])  # what is kept has its bits
FEWEST = 25  # bits of a format, of which what is kept has 2p + 2 or more; a wider one is float64, which keeps nothing
OFF = 2  # units in the last place of tanh and sigmoid
MOST_NUMBERS = 200_000

Vector = list[float]
Rows = list[Vector]
Part = tuple[Rows, Vector, Vector]  # W, x and b of W x + b
Term = tuple[float, float]  # a product


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a wrong length: one run that the reading allows answers wrongly there."""
    with ctx.workprec(BITS):
        is_first = c["counterexample"]["is_first"]
        net, fmt = stored_network(weights, said, is_run=not is_first)
        due = due_of(len(net.b), said)
        n, _, wrong = (first_wrong if is_first else wrong_at)(c, due, said, may_tie=True)
        require(is_first or c["right_to"] < n - 1, "right_to: all shorter lengths are right, and it is not the first")
        replay(net, fmt, c, due(n) or 0, wrong, [0] * n)
        either(net, fmt, lambda gaps: ComputedLine(due, gaps).right_to(c["right_to"] if is_first else 0, arb(0)))


def replay(
    net: StoredNetwork, fmt: BinaryFormat, c: LineCertificate, right: int, wrong: int, tokens: list[int]
) -> None:
    """Checks that the run of these tokens is one that the reading allows, and that its answer is the wrong one."""
    check_run(c, right, wrong, len(tokens))
    ReplayedRun(net, fmt).follow(c["run"]["numbers"], c["run"]["logits"], tokens)


def check_run(c: LineCertificate, right: int, wrong: int, n: int) -> None:
    """Checks that a run has the numbers of so many tokens, and that its answer is the wrong one."""
    rows, logits = c["run"]["numbers"], c["run"]["logits"]
    require(len(rows) == n and len(logits) > max(right, 1), f"run: must have {n} tokens, and a logit of each class")
    require(sum(map(len, rows)) <= MOST_NUMBERS, "the run is too long to follow", NOT_CHECKABLE)
    margin = min(logits[right] - y for j, y in enumerate(logits) if j != right)
    require(0 <= wrong < len(logits) and logits[wrong] == max(logits), "counterexample: another class is predicted")
    beyond = NOT_CHECKABLE if margin == -math.inf else FAILS
    require(c["margin"] == margin <= 0, f"margin: is not {margin}, that of the run", beyond)


class ReplayedRun:
    """Numbers that are read one after the other, each of which must be a result that the reading allows."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat) -> None:
        is_followed = fmt.p <= FEWEST or fmt == WIDE
        require(is_followed, "runs in such a format are not followed", NOT_CHECKABLE)
        self.net, self.fmt, self.left, self.tiny = net, fmt, iter(list[float]()), arb(2) ** fmt.least
        self.once, self.kept = RoundedOperations(fmt, fmt, False), RoundedOperations(WIDE, WIDE, False)
        self.layers = [(matrix_of(y.W_x), floats(y.b_x), matrix_of(y.W_h), floats(y.b_h)) for y in net.layers]

    def follow(self, rows: Rows, logits: Vector, tokens: list[int]) -> None:
        """Each row has the numbers of one step, from the state 0; the logits are those after the last one."""
        net, H = self.net, self.net.hidden
        state = [[0.0] * H for _ in range(net.size // H)]
        for row, token in zip(rows, tokens, strict=False):
            self.left, x, parts = iter(row), floats(net.reading(token).x), len(state) // len(net.layers)
            for k, layer in enumerate(self.layers):
                own = state[parts * k : parts * (k + 1)]
                state[parts * k : parts * (k + 1)] = self._step(layer, x, own)
                x = state[parts * k]
            require(next(self.left, None) is None, "run: a step has more numbers than it computes")
        self.left = iter(logits)
        self.sums([(matrix_of(net.V), state[-parts], floats(net.b))])
        require(next(self.left, None) is None, "run: has more logits than classes")

    def _step(self, layer: tuple[Rows, Vector, Rows, Vector], x: Vector, own: list[Vector]) -> list[Vector]:
        """The state of a layer after one more token."""
        net, H = self.net, self.net.hidden
        W_x, b_x, W_h, b_h = layer

        def both(k: int) -> list[Part]:
            cut = slice(k * H, k * H + H)
            return [(W_x[cut], x, b_x[cut]), (W_h[cut], own[0], b_h[cut])]

        if net.kind == "rnn":
            a = self.sums(both(0))
            if net.activation == "relu":
                return [self.chosen([{max(v, 0.0)} for v in a])]
            return [self.function(arb.tanh, a) if net.activation == "tanh" else a]
        if net.kind == "lstm":
            i, f, o = (self.function(logistic, self.sums(both(k))) for k in (0, 1, 3))
            g = self.function(arb.tanh, self.sums(both(2)))
            c = self.plus(self.times(f, own[1]), self.times(i, g))
            return [self.times(o, self.function(arb.tanh, c)), c]
        r, z = (self.function(logistic, self.sums(both(k))) for k in (0, 1))
        from_h = self.times(r, self.sums(both(2)[1:]))
        return [self._blended(z, self.plus(self.sums(both(2)[:1]), from_h), own[0])]

    def _blended(self, z: Vector, before: Vector, h: Vector) -> Vector:
        """(1 - z) n + z h, or n + z (h - n), with n = tanh of what is before; n is read again for the latter."""
        n, rest = self.function(arb.tanh, before), self.take(len(z))
        if all(x in self.results(1.0, 1.0, -y) for x, y in zip(rest, z, strict=True)):
            return self.plus(self.times(rest, n), self.times(z, h))
        self.are_near([arb(x).tanh() for x in before], rest)
        return self.plus(rest, self.times(z, self.plus(h, [-x for x in rest])))

    # ---- one result each

    def take(self, count: int) -> Vector:
        """The next numbers, none of which overflows where it is rounded."""
        found = [x for _, x in zip(range(count), self.left, strict=False)]
        is_whole = len(found) == count and all(type(x) is float and math.isfinite(x) for x in found)
        require(is_whole, "run: a step has fewer numbers than it computes")
        require(all(abs(self.once.tensor(x)) < math.inf for x in found), "run: a number overflows", NOT_CHECKABLE)
        return found

    def results(self, x: float, y: float, z: float) -> set[float]:
        """What x y + z may be computed as: rounded once, or kept with the bits of float64 and no fewer."""
        kept = self.kept.fused(x, y, z)
        return {self.once.fused(x, y, z)} | ({kept} if abs(kept) >= 2.0**WIDE.least else set())

    def chosen(self, allowed: list[set[float]]) -> Vector:
        """The next numbers, each of which is one of those."""
        found = self.take(len(allowed))
        require(all(x in y for x, y in zip(found, allowed, strict=True)), "run: a number is no result of its operation")
        return found

    def plus(self, x: Vector, y: Vector) -> Vector:
        return self.chosen([self.results(1.0, a, b) for a, b in zip(x, y, strict=True)])

    def times(self, x: Vector, y: Vector) -> Vector:
        return self.chosen([self.results(a, b, 0.0) for a, b in zip(x, y, strict=True)])

    def function(self, f: Callable[[arb], arb], x: Vector) -> Vector:
        """The next numbers, which are near what f is."""
        found = self.take(len(x))
        self.are_near([f(arb(a)) for a in x], found)
        return found

    def are_near(self, values: list[arb], found: Vector) -> None:
        """Numbers are within some units in the last place of what functions are; subnormal ones may be flushed."""
        for exact, y in zip(values, found, strict=True):
            mantissa, exponent = abs(exact).lower().man_exp()
            place = max(int(exponent) + int(mantissa).bit_length(), self.fmt.least + 1) - self.fmt.p  # of its last bit
            is_flushed = y == 0 and bool(abs(exact) < self.tiny)
            is_near = exact == y or bool(mantissa > 0 and abs(exact - y) <= arb(OFF) * arb(2) ** place)
            require(is_near or is_flushed, f"run: a function is off by more than {OFF} units in the last place")

    def sums(self, parts: list[Part]) -> Vector:
        """The next numbers, each of which is a sum of all terms of its row in some order; factors are of the format."""
        parts = [(W, [self.once.tensor(v) for v in x], b) for W, x, b in parts]
        found = self.take(len(parts[0][2]))
        for i, y in enumerate(found):
            terms = [([(w, v) for w, v in zip(W[i], x, strict=True) if w], b[i]) for W, x, b in parts]
            is_sum = any(y == total for total in self._totals(terms))
            require(is_sum, "run: a sum is none that is taken from left to right or sorted", NOT_CHECKABLE)
        return found

    def _totals(self, parts: list[tuple[list[Term], float]]) -> Iterator[float]:
        """Sums that the reading allows: from left to right and the parts then, and sorted, driven up or down."""
        for on in (self.once, self.kept):
            totals = list[float]()
            for terms, b in parts:
                total = 0.0
                for w, x in terms:
                    total = on.add(total, on.times(w, x))
                totals.append(on.add(total, b))
            yield totals[0] if len(totals) == 1 else on.add(*totals)
        for is_up in (True, False):
            products = [self._driven(self.kept.times(w, x), is_up) for terms, _ in parts for w, x in terms]
            rising = sorted([*products, *(b for _, b in parts)])
            for order in (rising, rising[::-1]):
                total = order[0]
                for x in order[1:]:
                    total = self._driven(self.kept.add(total, x), is_up)
                yield total

    def _driven(self, kept: float, is_up: bool) -> float:
        """The larger or the smaller of a result that is kept, and rounded.

        One half-way between two numbers is kept, as rounding it would be rounding for a second time.
        """
        near = self.once.tensor(kept)
        if near in (kept, math.inf, -math.inf):
            return near
        beyond = self.kept.fused(2.0, kept, -near)
        return kept if self.once.tensor(beyond) == beyond else max(kept, near) if is_up else min(kept, near)


def floats(x: list[arb]) -> Vector:
    return list(map(float, x))


def matrix_of(W: arb_mat) -> Rows:
    return [floats(row) for row in W.tolist()]
