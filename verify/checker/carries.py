"""Two layers that add: what layer 2 reads is built up column by column, with carries as states (docs/checker.md)."""

from collections.abc import Iterator, Sequence
from functools import cached_property, reduce
from typing import NamedTuple

from flint import arb, arb_mat, fmpq_mat

from verify.checker.adder import Adder, InSteps, answer_of, in_dtype, least_gap
from verify.checker.any_order import still_due
from verify.checker.ball_rows import least_of, most_of
from verify.checker.carried_digits import Balls, Ends, NeuronSteps, added, ahead, around, hull
from verify.checker.digit_prompts import Prompt, off_terms
from verify.checker.forwards import Head
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal


class Mean(NamedTuple):
    """A weighted mean of values so far: the ends of the weights' sum, and those of each coordinate."""

    weight: Ends
    values: list[Ends]

    def plus(self, score: arb, a: arb, values: Sequence[arb]) -> "Mean":
        """With one more key, whose weight is off by a factor of at most 1 + a, or as much less.

        A share p of the mean moves to its values, which is monotone in all that is not known.
        """
        (low, high), least, most = self.weight, score.lower().exp() / (1 + a), score.upper().exp() * (1 + a)
        of_key = arb(0).max(least.lower()), most.upper()
        shares = of_key[0] / (high + of_key[0]), of_key[1] / (low + of_key[1])
        moved = []
        for (a, b), value in zip(self.values, values, strict=True):
            c, d = value.lower(), value.upper()
            moved.append(
                (least_of(a + p * (c - a) for p in shares).lower(), most_of(b + p * (d - b) for p in shares).upper())
            )
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
        weight, *values = [(a.min(c).lower(), b.max(d).upper()) for (a, b), (c, d) in pairs]
        return Mean(weight, values)


class AdderStream:
    """What layer 1 leaves at each place, as balls: by a column's sum of two digits, all other digits being any."""

    def __init__(self, steps: InSteps, n: int, B: int) -> None:
        model = self.model = steps.model
        self.steps, self.n, self.B, self.layer = steps, n, B, model.layers[0]
        self.prompt = Prompt(model, n, B, 3 * n + 1)
        W_1, d = self.layer.W_1, self.layer.W_1.nrows()
        both = [[int(i == m) for i in range(d)] + [W_1[m, a] for a in range(W_1.ncols())] for m in range(d)]
        self.read = fmpq_mat(both)  # the stream itself, and what the neurons read of it
        self.grown = arb_mat([[abs(arb(y)) for y in row] for row in both])  # and what errors of the stream do to both
        self.own = (self.prompt.x * self.read).tolist()
        self.written = [(self.prompt.x * head[2] * head[3] * self.read).tolist() for head in self.layer.heads]

    def at(self, query: int, column: int | None) -> list[Balls]:
        """The stream at a place for each sum of a column's digits; without one, for each token that stands there."""
        rows = self.prompt.rows
        prompt = Prompt(self.model, self.n, self.B, query)
        heads, off = [prompt.shares(head) for head in self.layer.heads], off_terms(self.steps.fmt, prompt)
        off = (arb_mat(off) * self.grown).tolist()
        terms: dict[int, list[Balls]] = {}
        for r, (at, _) in enumerate(rows):
            if at > query:
                break
            term = [arb(x) if at == query else arb(0) for x in self.own[r]]
            for shares, written in zip(heads, self.written, strict=True):
                term = [x + shares[r] * y if y else x for x, y in zip(term, written[r], strict=True)]
            terms.setdefault(at, []).append(around(term, off[r]))
        if column is None:
            kinds = [[x] for x in terms.pop(query)]
        else:
            one, other = terms.pop(self.n - 1 - column), terms.pop(2 * self.n - column)
            kinds = [[added(one[a], other[s - a]) for a in fits(s, self.B)] for s in range(2 * self.B - 1)]
        rest = reduce(added, map(hull, terms.values()), [arb(0)] * self.read.ncols())
        return [self._after_neurons(added(rest, hull(found))) for found in kinds]

    def _after_neurons(self, found: Balls) -> Balls:
        d, b_1 = self.layer.W_1.nrows(), [*map(arb, self.layer.b_1.entries())]
        return NeuronSteps(self.steps, self.layer, found[:d], added(found[d:], b_1)).left

    @cached_property
    def query(self) -> list[list[Balls]]:
        """Where the answer of each column is due."""
        return [self.at(3 * self.n + 1 - i, i if i < self.n else None) for i in range(self.n + 1)]

    @cached_property
    def keys(self) -> list[list[Balls]]:
        """At each place; at the second digit of a column by the column's sum."""
        n, known = self.n, {3 * self.n + 1 - i: x for i, x in enumerate(self.query)}
        return [known.get(q) or self.at(q, 2 * n - q if n < q <= 2 * n else None) for q in range(3 * n + 2)]

    @cached_property
    def sizes(self) -> arb_mat:
        """How large it is at each place."""
        return arb_mat([[abs(x).upper() for x in hull(kinds)] for kinds in self.keys])


def fits(s: int, B: int) -> range:
    """The digits that another one adds up to s with."""
    return range(max(0, s - B + 1), min(s, B - 1) + 1)


class ReadByHead:
    """The means that a head of layer 2 takes."""

    def __init__(self, head: Head, stream: AdderStream) -> None:
        self.stream, self.n, self.B, self.W_Q = stream, stream.n, stream.B, arb_mat(head[0])
        self.tilts, self.off = stream.steps.head(head, stream.sizes)
        K, V = arb_mat(head[1]), arb_mat(head[2])
        self.keys = [[((arb_mat([x]) * K).transpose(), (arb_mat([x]) * V).entries()) for x in of] for of in stream.keys]
        self.nothing = Mean((arb(0), arb(0)), [(arb(0), arb(0))] * V.ncols())

    def at(self, i: int) -> list[Mean | None]:
        """The mean where column i's answer is due, for each carry into the column.

        A column below stops a carry, passes it on or makes one, by its sum. A key may be what it likes elsewhere.
        """
        n, mean, q = self.n, self.nothing, arb_mat([hull(self.stream.query[i])]) * self.W_Q
        tilts = self.tilts[3 * n + 1 - i]

        def after(state: Mean, key: tuple[arb_mat, Balls], place: int) -> Mean:
            return state.plus((q * key[0])[0, 0], tilts[place], key[1])

        for place in {*range(3 * n + 2 - i)} - {2 * n - j for j in range(i)}:
            first, *rest = (after(mean, key, place) for key in self.keys[place])
            mean = reduce(Mean.hull, rest, first)
        states: list[Mean | None] = [mean, None]
        for j in range(i):
            found: list[Mean | None] = [None, None]
            for carry, state in enumerate(states):
                for s, key in enumerate(self.keys[2 * n - j]):
                    out = int(s + carry >= self.B)
                    found[out] = found[out] if state is None else after(state, key, 2 * n - j).hull(found[out])
            states = found
        return [None if state is None else state.off_by(self.off) for state in states]


def prove_two_layers(steps: InSteps, n: int, B: int, margin: float) -> None:
    """Every column, sum of digits and carry has the margin: the right digit's logit is so far above all others."""
    least = arb(still_due(margin, 0.0, steps.fmt is not None))
    for (i, s, carry), found in digits(steps, n, B):
        if not found >= least:
            model, off = in_dtype(steps.model, steps.fmt)
            is_false = any(gap + off < arb(margin) for gap in gaps(model, n, B, i, s, carry))
            what = f"margin: column {i}, sum {s}, carry {carry} do not show"
            raise Refusal(what, FAILS if is_false else NOT_CHECKABLE)


def digits(steps: InSteps, n: int, B: int) -> Iterator[tuple[tuple[int, int, int], arb]]:
    """How far each column's right digit is at least above all others, for each sum of digits and carry into it."""
    stream, heads = AdderStream(steps, n, B), steps.model.layers[1].heads
    read, W_O = (
        [ReadByHead(head, stream) for head in heads],
        fmpq_mat([row for head in heads for row in head[3].tolist()]),
    )
    for i in range(n + 1):
        for carry, found in enumerate(zip(*(head.at(i) for head in read), strict=True)):
            means = [ends for mean in found if mean is not None for ends in mean.values]
            for s, x in enumerate(stream.query[i]) if None not in found else ():
                right = carry if i == n else (s + carry) % B
                yield (i, s, carry), ahead(steps, x, means, W_O, right)


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
