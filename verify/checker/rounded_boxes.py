"""Lines in a format for ever, in any order, by a box of computed numbers that a turn maps into itself.

A box has two ends for each number. A sum in a given order, each result of it rounded as it is, grows with each of its
terms: so it is at least what that order makes of the least terms, and that is exact where no order rounds there.
Where sums have a wider format, each result may first be one of that, and a matrix product may be stored before it is
added to another one, and to two biases.
"""

from collections.abc import Callable
from math import isfinite

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.computed_orders import Ends, EveryOrder, exact, scaled
from verify.checker.formats import NAMED, BinaryFormat, of_sums
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import PERIODS, StoredNetwork, due_of, logistic, positive_margin
from verify.checker.rounded import BITS, stored_network

MOST_STEPS, MOST_WORK = 20_000, 2_000_000  # steps, and these times hidden units squared
STORED = 4  # parts of a sum that may be stored, where sums have a wider format: two products and two biases

Box = list[Ends]
Rows = list[list[fmpq]]
Part = tuple[Rows, Box, list[fmpq]]  # W, x and b of W x + b


def for_ever(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks that states after `entry` tokens are in the box, that `turn` more lead back, and that all are right."""
    margin, found, period = positive_margin(c), c["boxes"], said.get("modulus", 1)
    require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
    require(said["task"] in PERIODS, "parameters: the task does not go on for ever")
    entry, turn = found["entry"], found["turn"]
    require(entry >= (0 if period > 1 else 1) and turn > 0 and turn % period == 0, f"boxes: a turn of {turn!r} tokens")
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said, may_accumulate=True)
        work = (entry + turn) * net.hidden**2 * len(net.layers)
        require(entry + turn <= MOST_STEPS and work <= MOST_WORK, "boxes: too many steps to follow", NOT_CHECKABLE)
        on, due = ComputedBoxes(net, fmt, of_sums(said, fmt)), due_of(len(net.b), said)
        state: Box = [(fmpq(0), fmpq(0))] * net.size
        for t in range(1, entry + 1):
            state = on.step(state)
            on.wins(state, due(t), margin, t)
        require(len(found["low"]) == len(found["high"]) == net.size, "boxes: has another number of ends")
        box = [(exact(arb(x)), exact(arb(y))) for x, y in zip(found["low"], found["high"], strict=True)]
        require(is_within(state, box), f"boxes: a state after {entry} tokens may be outside the box", NOT_CHECKABLE)
        after = box
        for t in range(entry + 1, entry + turn + 1):
            after = on.step(after)
            on.wins(after, due(t), margin, t)
        require(is_within(after, box), "boxes: a turn may lead out of the box", NOT_CHECKABLE)


def is_within(inner: Box, outer: Box) -> bool:
    return all(c <= a and b <= d for (a, b), (c, d) in zip(inner, outer, strict=True))


class ComputedEnds:
    """Ends between which every computed number lies; every exact one, where no format is given.

    Sums are of the format, or of a wider one.
    """

    def __init__(self, fmt: BinaryFormat | None, wider: BinaryFormat | None = None) -> None:
        self.is_exact, self.wider, self.fmt = fmt is None, wider, fmt or BinaryFormat(*NAMED["float64"])
        self.every, self.first = EveryOrder(self.fmt), EveryOrder(wider) if wider else None

    def down(self, x: fmpq) -> fmpq:
        """The least that x may be stored as."""
        return self.every.down(self.first.down(x) if self.first else x)

    def result(self, low: fmpq, high: fmpq) -> Ends:
        return (low, high) if self.is_exact else (self.down(low), -self.down(-high))

    def plus(self, x: Box, y: Box) -> Box:
        return [self.result(a + c, b + d) for (a, b), (c, d) in zip(x, y, strict=True)]

    def times(self, x: Box, y: Box) -> Box:
        corners = [[a * b for a in ends for b in others] for ends, others in zip(x, y, strict=True)]
        return [self.result(min(row), max(row)) for row in corners]

    def tanh(self, x: Box) -> Box:
        return self._increasing(lambda v: 2 * logistic(2 * v) - 1, x)

    def sigmoid(self, x: Box) -> Box:
        return self._increasing(logistic, x)

    def _increasing(self, f: Callable[[arb], arb], x: Box) -> Box:
        ends = [(f(arb(a)).lower(), f(arb(b)).upper()) for a, b in x]
        off = (lambda end, other: arb(0)) if self.is_exact else self.fmt.beyond
        return [(exact((a - off(a, b)).lower()), exact((b + off(b, a)).upper())) for a, b in ends]

    def sums(self, parts: list[Part]) -> Box:
        """Every row's sum in any order. What is a factor is rounded first, which keeps the order of numbers."""
        parts = [(W, [(self._factor(a), -self._factor(-b)) for a, b in x], b) for W, x, b in parts]
        found = []
        for i in range(len(parts[0][2])):
            products = [[(w, y) for w, y in zip(W[i], x, strict=True) if w != 0 and any(y)] for W, x, _ in parts]
            row = [term for product in products for term in product]
            added = [b[i] for _, _, b in parts if b[i] != 0]
            least, most = ([*(w * y[(w < 0) != up] for w, y in row), *added] for up in (False, True))
            columns = len(row) + len(added) + (STORED if self.wider else 0)
            size = sum((max(abs(a), abs(b)) for a, b in zip(least, most, strict=True)), fmpq(0))
            whole = (arb(size) + self.fmt.of_sum(arb(size), columns, columns)).upper()
            require(self.fmt.holds(whole), "boxes: a partial sum may overflow", NOT_CHECKABLE)
            summed = len(added) + sum(map(bool, products)), len(row)
            found.append((self._least_sum(least, *summed), -self._least_sum([-v for v in most], *summed)))
        return found

    def _factor(self, x: fmpq) -> fmpq:
        """The least that x may be as a factor."""
        if self.is_exact:
            return x
        rounded = self.fmt.closest(*scaled(self.first.down(x) if self.first else x))
        require(isfinite(rounded), "boxes: a factor may overflow", NOT_CHECKABLE)
        return exact(arb(rounded))

    def _least_sum(self, terms: list[fmpq], parts: int, products: int) -> fmpq:
        """The least that any order makes of these terms: exact, rounded one by one where they are two, or bounded.

        Each of n > 2 terms is rounded as a product, where it is no number of the format, and in at most n - 2 sums
        before the last one. In a wider format each is rounded at most n times; and of parts that are stored, at most n
        and at most four, each is in at most two sums before the last, and first rounded if it is none of the format.
        """
        terms = [v for v in terms if v != 0]  # which is added exactly
        total, size = sum(terms, fmpq(0)), sum(map(abs, terms), fmpq(0))
        units = [(int(v.p) & -int(v.p)).bit_length() - int(v.q).bit_length() for v in terms]
        unit = min(units, default=0)
        if self.is_exact or unit >= self.fmt.least and size <= fmpq(2) ** (self.fmt.p + unit):
            return total
        if len(terms) <= 2 and not self.wider:
            return self.down(sum(map(self.down, terms), fmpq(0)))
        return self.down(total - exact(self._off(terms, arb(size), parts, products).upper()))

    def _off(self, terms: list[fmpq], size: arb, parts: int, products: int) -> arb:
        """How far a sum is off before its last result is rounded; of stored ones at most `STORED` are flushed."""
        n, is_hard = len(terms), any(self._factor(v) != v for v in terms)
        if not self.wider:
            growth = self.fmt.growth(n - 2 + is_hard)
            return growth * size + 2 * n * self.fmt.tiny * (1 + growth)
        growth = self.fmt.growth(max(0, min(n, parts) - 2 + (is_hard or min(n - 1, products) > 1)))
        growth += self.wider.growth(n - 1 + is_hard) * (1 + growth)
        return growth * size + (2 * n * self.wider.tiny + STORED * self.fmt.tiny) * (1 + growth)


class ComputedBoxes(ComputedEnds):
    """The same of the states and logits of a network."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat | None, wider: BinaryFormat | None = None) -> None:
        super().__init__(fmt, wider)
        self.net = net
        self.layers = [(fractions(y.W_x), _exact(y.b_x), fractions(y.W_h), _exact(y.b_h)) for y in net.layers]
        self.V, self.b = fractions(net.V), _exact(net.b)

    def step(self, state: Box, token: int = 0) -> Box:
        """The box after one more token."""
        x, after = [(v, v) for v in _exact(self.net.reading(token).x)], list[Box]()
        parts = self.net.size // self.net.hidden // len(self.layers)
        H = self.net.hidden
        vectors = [state[i : i + H] for i in range(0, len(state), H)]
        for k, layer in enumerate(self.layers):
            after += self._layer(layer, x, vectors[parts * k : parts * (k + 1)])
            x = after[parts * k]
        return [ends for vector in after for ends in vector]

    def _layer(self, layer: tuple[Rows, list[fmpq], Rows, list[fmpq]], x: Box, own: list[Box]) -> list[Box]:
        H, (W_x, b_x, W_h, b_h) = self.net.hidden, layer

        def both(k: int) -> list[Part]:
            cut = slice(k * H, k * H + H)
            return [(W_x[cut], x, b_x[cut]), (W_h[cut], own[0], b_h[cut])]

        if self.net.kind == "rnn":
            a = self.sums(both(0))
            functions = {"relu": relu, "tanh": self.tanh}
            return [functions.get(self.net.activation, list)(a)]
        if self.net.kind == "lstm":
            i, f, o = (self.sigmoid(self.sums(both(k))) for k in (0, 1, 3))
            c = self.plus(self.times(f, own[1]), self.times(i, self.tanh(self.sums(both(2)))))
            return [self.times(o, self.tanh(c)), c]
        r, z = (self.sigmoid(self.sums(both(k))) for k in (0, 1))
        n = self.tanh(self.plus(self.sums(both(2)[:1]), self.times(r, self.sums(both(2)[1:]))))
        one = self.plus(self.times(self.plus([(fmpq(1), fmpq(1))] * H, less(z)), n), self.times(z, own[0]))
        other = self.plus(n, self.times(z, self.plus(own[0], less(n))))
        return [[(min(a, c), max(b, d)) for (a, b), (c, d) in zip(one, other, strict=True)]]

    def logits(self, state: Box) -> Box:
        return self.sums([(self.V, state[self.net.read : self.net.read + self.net.hidden], self.b)])

    def wins(self, state: Box, right: int | None, margin: arb, t: int) -> None:
        """The right class has the margin in every order."""
        require(right is not None, f"length {t}: has no right class")
        logits = self.logits(state)
        for j, (_, most) in enumerate(logits):
            gap = logits[right or 0][0] - most
            is_right = j == right or (gap > 0 and gap >= exact(margin))
            require(is_right, f"length {t}: that class {right} wins over {j} by {margin} is not shown", NOT_CHECKABLE)


def relu(x: Box) -> Box:
    return [(max(a, fmpq(0)), max(b, fmpq(0))) for a, b in x]


def less(x: Box) -> Box:
    return [(-b, -a) for a, b in x]


def _exact(x: list[arb]) -> list[fmpq]:
    return [exact(v) for v in x]


def fractions(W: arb_mat | list[list[float]]) -> Rows:
    """Stored numbers as they are."""
    return [_exact(row) for row in arb_mat(W).tolist()]
