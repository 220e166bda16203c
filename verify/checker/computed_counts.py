"""Histogram models as a format computes them, part by part of the inputs, in any order of evaluation (docs/checker.md).

Every number lies between two ends, for a query token, its count and sets from which the other tokens come. What a
hidden neuron may be as a factor are few numbers of the format, which are tried one by one.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from math import prod
from typing import NamedTuple

from flint import arb, ctx, fmpq

from verify.checker.any_order import HALF, half_of
from verify.checker.computed_orders import Ends, EveryOrder, exact
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import Numbers
from verify.checker.mathematics import BITS
from verify.checker.reading import NOT_CHECKABLE, Weights, require

MOST_PARTS = 1 << 11  # of all inputs
MOST_VALUES = 64  # of neurons that are tried, all together
ZERO: Ends = (fmpq(0), fmpq(0))

Slots = tuple[tuple[tuple[int, ...], int], ...]  # keys, and in how many slots one of them is
Row = Sequence[Ends]


class InputPart(NamedTuple):
    """Inputs with a token k times, once at a position, and other tokens from sets."""

    position: int
    t: int
    k: int
    others: Slots

    def halves(self) -> list["InputPart"]:
        """By how many slots of a set hold tokens of its first half; none where all tokens are known."""
        i = next((i for i, (tokens, _) in enumerate(self.others) if len(tokens) > 1), None)
        if i is None:
            return []
        tokens, n = self.others[i]
        first, second = tokens[: len(tokens) // 2], tokens[len(tokens) // 2 :]
        ways = [tuple(part for part in ((first, m), (second, n - m)) if part[1]) for m in range(n + 1)]
        return [self._replace(others=self.others[:i] + way + self.others[i + 1 :]) for way in ways]


class ComputedCounts:
    """What a format makes of a model's steps. Raises: Refusal where a number may overflow."""

    def __init__(self, fmt: BinaryFormat, w: Weights, W: Numbers) -> None:
        self.on, self.first_count, self.divisor, said = (
            EveryOrder(fmt),
            w.first_count,
            w.divisor,
            w.repeated["parameters"],
        )
        self.T, self.L, self.is_softmax = W["E"].nrows(), said["L"], said.get("model", "").endswith("+sftm")
        rows = {name: [[(x, x) for x in row] for row in M.tolist()] for name, M in W.items()}
        self.x = rows["E"] + rows.get("e_BOS", [])
        self.by = {name: [*zip(*M, strict=True)] for name, M in rows.items()}
        self.b_1, self.b_2, self.is_linear = rows["b_1"][0], rows["b_2"][0], "A" in W
        if self.is_linear:
            self.scores = rows["A"]
        else:
            queries, keys = (self._read(self.x, self.by[name]) for name in ("W_Q", "W_K"))
            self.scores = [[*map(self._divided, row)] for row in self._read(queries[: self.T], keys)]
        self.weights, self.least = cache(self._weights), cache(self._least)

    def _read(self, rows: Iterable[Row], columns: Sequence[Row], bias: Row = ()) -> list[list[Ends]]:
        """Rows times columns; a bias is one more term of the sums, in which it may come last."""
        read = [[*map(self.on.factor, row)] for row in rows]
        added = bias or [ZERO] * len(columns)
        return [[self.on.total([*((self.on.times(*pair), 1) for pair in zip(x, column, strict=True)), (b, 1)])
                 for column, b in zip(columns, added, strict=True)] for x in read]  # fmt: skip

    def _divided(self, score: Ends) -> Ends:
        """A score over a root, or times its reciprocal."""
        if self.divisor == 1:
            return score
        root = self.on.root(self.divisor)
        return _hull([self.on.over(score, root), self.on.times(score, self.on.over((fmpq(1), fmpq(1)), root))])

    def _weights(self, row: int, slots: Slots) -> dict[int, Ends]:
        """Of keys in these slots, as factors. The maximum of all scores is one number for all of them."""
        scores, on = self.scores[row], self.on
        there = {s for keys, _ in slots for s in keys}
        if not self.is_softmax:
            return {s: on.factor(scores[s]) for s in there}
        top = max(min(scores[s][0] for s in keys) for keys, _ in slots), max(scores[s][1] for s in there)
        powers = {s: on.power(on.result(scores[s][0] - top[1], scores[s][1] - top[0])) for s in there}
        total = on.total([(_hull([powers[s] for s in keys]), n) for keys, n in slots])
        return {s: on.factor(on.over(e, total)) for s, e in powers.items()}

    def _mixed(self, part: InputPart) -> Iterator[tuple[list[tuple[int, Ends]], int]]:
        """Tokens and weights of which one is in a slot, and in how many slots."""
        place, t, k, others = part
        if not self.is_linear:
            slots = (((t,), k), *(((s,), 1) for s in range(self.T, len(self.x))), *others)
            weights = self.weights(t, slots)
            yield from (([(s, weights[s]) for s in tokens], n) for tokens, n in slots)
            return
        weights = self.weights(place, tuple(((j,), 1) for j in range(self.L)))
        elsewhere = {weights[j] for j in weights if j != place}
        yield [(t, weights[place])], 1
        yield from (([(s, w) for s in tokens for w in elsewhere], n) for tokens, n in (((t,), k - 1), *others) if n)

    def gap(self, part: InputPart) -> fmpq:
        """At most (right logit) - (largest other one) of all inputs of a part, whatever the order."""
        mixed, on, x = [*self._mixed(part)], self.on, list[Ends]()
        for i, own in enumerate(self.x[part.t]):
            terms = [(_hull([on.times(w, on.factor(self.x[s][i])) for s, w in ways]), n) for ways, n in mixed]
            x.append(on.total([*terms, (own, 1)]))
        z = self._read([x], self.by["W_1"], self.b_1)[0]
        return self.least(tuple(on.factor((max(a, fmpq(0)), max(b, fmpq(0)))) for a, b in z), self._right(part.k))

    def _right(self, k: int) -> int:
        return k % 2 if self.first_count is None else k - self.first_count

    def _least(self, h: Row, right: int) -> fmpq:
        """Of all values of neurons that are factors: each of them, where they are few, or the ends of a form."""
        values = [self.on.numbers(x, MOST_VALUES) for x in h]
        if prod(map(len, values)) > MOST_VALUES:
            return self._of_form(h, right)
        found = self._read([[(y, y) for y in row] for row in product(*values)], self.by["W_2"], self.b_2)
        return min(row[right][0] - max(y for c, (_, y) in enumerate(row) if c != right) for row in found)

    def _of_form(self, h: Row, right: int) -> fmpq:
        """A difference of logits is linear in the neurons, and each logit is off by what its sum rounds."""
        fmt, lines = self.on.fmt, [*zip(self.by["W_2"], self.b_2, strict=True)]
        sizes = [
            sum((abs(w) * y for (w, _), (_, y) in zip(column, h, strict=True)), abs(b)) for column, (b, _) in lines
        ]
        off = [exact(fmt.of_sum(arb(size), len(h) + 1, len(h) + 1)) for size in sizes]
        is_held = all(size + e <= self.on.largest for size, e in zip(sizes, off, strict=True))
        require(is_held, "a logit may overflow in the format", NOT_CHECKABLE)
        column, (b, _) = lines[right]
        found = list[fmpq]()
        for c, (other, (less, _)) in enumerate(lines):
            slopes = [w - v for (w, _), (v, _) in zip(column, other, strict=True)]
            ends = (min(n * x, n * y) for n, (x, y) in zip(slopes, h, strict=True))
            found += [sum(ends, b - less) - off[right] - off[c]] * (c != right)
        return min(found)

    def shown(self, due: Sequence[float]) -> list[fmpq]:
        """What is shown of the margin of each count: at least what is due. Raises: Refusal where it is not."""
        rows, left = dict[tuple[Ends, tuple[Ends, ...]], int](), MOST_PARTS
        for place in range(self.L if self.is_linear else 1):
            row = self.scores[place]
            rows.setdefault((row[place], tuple(sorted(row[:place] + row[place + 1 :]))), place)
        require(self.T > 1, "a model of one token is not followed", NOT_CHECKABLE)
        found = []
        for k, least in enumerate(due, 1):
            parts, gaps = (
                [InputPart(place, t, k, self._others(t, k)) for place in rows.values() for t in range(self.T)],
                list[fmpq](),
            )
            while parts:
                part, left = parts.pop(), left - 1
                require(left > 0, f"more than {MOST_PARTS} parts of inputs", NOT_CHECKABLE)
                gaps.append(self.gap(part))
                if gaps[-1] < exact(arb(least)):
                    gaps.pop()
                    where = f"position, token, count {[(part.position, part.t, k)]}"
                    require(bool(part.halves()), f"{where}: what roundings may do is too much", NOT_CHECKABLE)
                    parts += part.halves()
            found.append(min(gaps))
        return found

    def _others(self, t: int, k: int) -> Slots:
        tokens = tuple(s for s in range(self.T) if s != t)
        return ((tokens, self.L - k),) if k < self.L else ()


def shown_by_parts(
    fmt: BinaryFormat, inner: BinaryFormat, w: Weights, W: Numbers, margins: Sequence[float]
) -> list[str]:
    """Shows half of the margin of each count. Returns what is left of them on trust. Raises: Refusal.

    Sums in a format with 2p + 2 bits or more are those of the format itself, each result kept.
    """
    is_followed = fmt.factors is None and (inner == fmt or inner.p >= 2 * fmt.p + 2)
    require(is_followed, "sums in this format are not followed", NOT_CHECKABLE)
    with ctx.workprec(BITS + 64):
        found = ComputedCounts(fmt, w, W).shown([half_of(m) for m in margins])
        return [HALF] * any(x < exact(arb(m)) for x, m in zip(found, margins, strict=True))


def _hull(numbers: Sequence[Ends]) -> Ends:
    return min(x for x, _ in numbers), max(y for _, y in numbers)
