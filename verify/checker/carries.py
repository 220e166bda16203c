"""Two layers that add: what layer 2 reads is built up column by column, with carries as states (docs/checker.md)."""

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import NamedTuple

from flint import arb, arb_mat, fmpq_mat

from verify.checker.adder import Adder, answer_of, in_steps, least_gap
from verify.checker.any_order import still_due
from verify.checker.columns import Prompt
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import AdderSteps, Head
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal
from verify.checker.roundoff import rows_hull

Balls = list[arb]
Ends = tuple[arb, arb]


class Mean(NamedTuple):
    """A weighted mean of values so far: the ends of the weights' sum, and those of each coordinate."""

    weight: Ends
    values: list[Ends]

    def plus(self, score: arb, a: arb, values: Sequence[arb]) -> "Mean":
        """With one more key, whose weight is off by a share of at most a.

        A share p of the mean moves to its values, which is monotone in all that is not known.
        """
        (low, high), least, most = self.weight, score.lower().exp() * (1 - a), score.upper().exp() * (1 + a)
        of_key = least.lower(), most.upper()
        shares = of_key[0] / (high + of_key[0]), of_key[1] / (low + of_key[1])
        moved = []
        for (a, b), value in zip(self.values, values, strict=True):
            c, d = value.lower(), value.upper()
            moved.append((_least([a + p * (c - a) for p in shares]), -_least([-b - p * (d - b) for p in shares])))
        return Mean(((low + of_key[0]).lower(), (high + of_key[1]).upper()), moved)

    def off_by(self, errors: Sequence[arb]) -> "Mean":
        """What is computed of it."""
        return Mean(
            self.weight, [((a - x).lower(), (b + x).upper()) for (a, b), x in zip(self.values, errors, strict=True)]
        )

    def hull(self, other: "Mean | None") -> "Mean":
        """Whatever either of both may be."""
        if other is None:
            return self
        pairs = zip([self.weight, *self.values], [other.weight, *other.values], strict=True)
        weight, *values = [(_least([a, c]), -_least([-b, -d])) for (a, b), (c, d) in pairs]
        return Mean(weight, values)


class AdderStream:
    """What layer 1 leaves at each place, as balls: by a column's sum of two digits, all other digits being any."""

    def __init__(self, model: Adder, steps: AdderSteps, n: int, B: int) -> None:
        self.model, self.n, self.B, self.layer = model, n, B, model.layers[0]
        off = steps.stream.tolist()
        self.off = [rows_hull(arb_mat(off[q :: 3 * n + 2])).entries() for q in range(3 * n + 2)]
        self.prompt = Prompt(model, n, B, 3 * n + 1)
        W_1, d = self.layer.W_1, self.layer.W_1.nrows()
        both = [[int(i == m) for i in range(d)] + [W_1[m, a] for a in range(W_1.ncols())] for m in range(d)]
        self.read = fmpq_mat(both)  # the stream itself, and what the neurons read of it
        self.own = (self.prompt.x * self.read).tolist()
        self.written = [(self.prompt.x * head[2] * head[3] * self.read).tolist() for head in self.layer.heads]

    def at(self, query: int, column: int | None) -> list[Balls]:
        """The stream at a place for each sum of a column's digits; without one, for each token that stands there."""
        rows = self.prompt.rows
        heads = [Prompt(self.model, self.n, self.B, query).shares(head) for head in self.layer.heads]
        terms: dict[int, list[Balls]] = {}
        for r, (at, _) in enumerate(rows):
            if at > query:
                break
            term = [arb(x) if at == query else arb(0) for x in self.own[r]]
            for shares, written in zip(heads, self.written, strict=True):
                term = [x + shares[r] * y if y else x for x, y in zip(term, written[r], strict=True)]
            terms.setdefault(at, []).append(term)
        if column is None:
            kinds = [[x] for x in terms.pop(query)]
        else:
            one, other = terms.pop(self.n - 1 - column), terms.pop(2 * self.n - column)
            kinds = [[added(one[a], other[s - a]) for a in fits(s, self.B)] for s in range(2 * self.B - 1)]
        rest = reduce(added, map(hull, terms.values()), [arb(0)] * self.read.ncols())
        return [self._after_neurons(query, added(rest, hull(found))) for found in kinds]

    def _after_neurons(self, query: int, found: Balls) -> Balls:
        """What is computed of it in any order."""
        d = self.layer.W_1.nrows()
        z = [max_0(x + b) for x, b in zip(found[d:], self.layer.b_1.entries(), strict=True)]
        more = (arb_mat([z]) * arb_mat(self.layer.W_2)).entries() if z else [arb(0)] * d
        return [x + arb(0, off.upper()) for x, off in zip(added(found[:d], more), self.off[query], strict=True)]

    @cached_property
    def query(self) -> list[list[Balls]]:
        """Where the answer of each column is due."""
        return [self.at(3 * self.n + 1 - i, i if i < self.n else None) for i in range(self.n + 1)]

    @cached_property
    def keys(self) -> list[list[Balls]]:
        """At each place; at the second digit of a column by the column's sum."""
        n, known = self.n, {3 * self.n + 1 - i: x for i, x in enumerate(self.query)}
        return [known.get(q) or self.at(q, 2 * n - q if n < q <= 2 * n else None) for q in range(3 * n + 2)]


def fits(s: int, B: int) -> range:
    """The digits that another one adds up to s with."""
    return range(max(0, s - B + 1), min(s, B - 1) + 1)


class ReadByHead:
    """The means that a head of layer 2 takes."""

    def __init__(self, head: Head, off: tuple[arb, Balls], stream: AdderStream) -> None:
        self.stream, self.n, self.B, self.W_Q = stream, stream.n, stream.B, arb_mat(head[0])
        self.tilt, self.off = off
        K, V = arb_mat(head[1]), arb_mat(head[2])
        self.keys = [[((arb_mat([x]) * K).transpose(), (arb_mat([x]) * V).entries()) for x in of] for of in stream.keys]
        self.nothing = Mean((arb(0), arb(0)), [(arb(0), arb(0))] * V.ncols())

    def at(self, i: int) -> list[Mean | None]:
        """The mean where column i's answer is due, for each carry into the column.

        A column below stops a carry, passes it on or makes one, by its sum. A key may be what it likes elsewhere.
        """
        n, mean, q = self.n, self.nothing, arb_mat([hull(self.stream.query[i])]) * self.W_Q

        def after(state: Mean, key: tuple[arb_mat, Balls]) -> Mean:
            return state.plus((q * key[0])[0, 0], self.tilt, key[1])

        for place in {*range(3 * n + 2 - i)} - {2 * n - j for j in range(i)}:
            first, *rest = (after(mean, key) for key in self.keys[place])
            mean = reduce(Mean.hull, rest, first)
        states: list[Mean | None] = [mean, None]
        for j in range(i):
            found: list[Mean | None] = [None, None]
            for carry, state in enumerate(states):
                for s, key in enumerate(self.keys[2 * n - j]):
                    out = int(s + carry >= self.B)
                    found[out] = found[out] if state is None else after(state, key).hull(found[out])
            states = found
        return [None if state is None else state.off_by(self.off) for state in states]


def prove_two_layers(model: Adder, fmt: BinaryFormat | None, n: int, B: int, margin: float) -> None:
    """Every column, sum of digits and carry has the margin: the right digit's logit is so far above all others."""
    model, steps = in_steps(model, fmt)
    stream, least = AdderStream(model, steps, n, B), arb(still_due(margin, steps.off, fmt is not None))
    heads = [ReadByHead(head, off, stream) for head, off in zip(model.layers[1].heads, steps.heads, strict=True)]
    W_O = fmpq_mat([row for head in model.layers[1].heads for row in head[3].tolist()])
    for i in range(n + 1):
        for carry, found in enumerate(zip(*(head.at(i) for head in heads), strict=True)):
            means = [ends for mean in found if mean is not None for ends in mean.values]
            for s, x in enumerate(stream.query[i]) if None not in found else ():
                right = carry if i == n else (s + carry) % B
                if not ahead(model, x, means, W_O, right) >= least:
                    is_false = any(gap < least for gap in gaps(model, n, B, i, s, carry))
                    what = f"margin: column {i}, sum {s}, carry {carry} do not show"
                    raise Refusal(what, FAILS if is_false else NOT_CHECKABLE)


def gaps(model: Adder, n: int, B: int, i: int, s: int, carry: int) -> Iterator[arb]:
    """How far the right digit of column i is ahead where the lowest column, or the nearest one, decides the carry."""
    for decides in {0, max(i - 1, 0)}:
        pairs = [(B - 1, 0)] * n
        pairs[decides] = (B - 1, carry) if carry else (0, 0)
        pairs[i : i + 1] = [(min(s, B - 1), s - min(s, B - 1))] * (i < n)
        a, b = zip(*pairs[::-1], strict=True)
        answer = answer_of(a, b, B)
        row = model.logits([*a, B, *b, B + 1, *answer[:-1]]).tolist()[3 * n + 1 - i]
        yield least_gap(row, answer[n - i])


def ahead(model: Adder, x: Balls, means: list[Ends], W_O: fmpq_mat, right: int) -> arb:
    """How far the right logit is at least above all others, of x + means W_O.

    Neurons that are on make it affine in the means, and so least at one end of each.
    """
    layer, W_out, found = model.layers[-1], model.W_out, list[arb]()
    stream = arb_mat([x]) + arb_mat([[a.union(b) for a, b in means]]) * arb_mat(W_O)
    z = added((stream * arb_mat(layer.W_1)).entries(), [arb(b) for b in layer.b_1.entries()])
    for other in {*range(W_out.ncols())} - {right}:
        direction = fmpq_mat([[W_out[m, right] - W_out[m, other]] for m in range(W_out.nrows())])
        gains, gap = (layer.W_2 * direction).entries(), arb(model.b_out[0, right] - model.b_out[0, other])
        for a, (gain, y) in enumerate(zip(gains, z, strict=True)):
            if y >= 0:
                direction += gain * fmpq_mat([[layer.W_1[m, a]] for m in range(len(x))])
            gap += gain * (arb(layer.b_1[0, a]) if y >= 0 else max_0(y))
        of_means = zip(means, (W_O * direction).entries(), strict=True)
        gap += (arb_mat([x]) * arb_mat(direction))[0, 0]
        found.append(sum((_least([g * a, g * b]) for (a, b), g in of_means), gap))
    return _least(found)


def max_0(x: arb) -> arb:
    """ReLU of all numbers of a ball."""
    return x if x >= 0 else arb(0) if x <= 0 else arb(0).union(x.upper())


def added(x: Sequence[arb], y: Sequence[arb]) -> Balls:
    return [a + b for a, b in zip(x, y, strict=True)]


def hull(found: Sequence[Balls]) -> Balls:
    """Whatever any of them may be."""
    return [reduce(arb.union, column) for column in zip(*found, strict=True)]


def _least(found: Sequence[arb]) -> arb:
    return min(x.lower() for x in found)
