"""Chains of thought: what each step computes from the tokens before it, in balls or in constant bits (docs/checker.md).

All arithmetics have the same methods (`computed_steps.py` has the third one). A step looks at its own token and at what
its two heads retrieve, so at up to four tokens, of which all values are tried; what other positions leak into it is in
its balls.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache, reduce
from itertools import product
from typing import Any, NamedTuple

from flint import arb, arb_mat

from verify.checker.reading import NOT_CHECKABLE, require

Row = list[Any]
Column = list[tuple[int, Any]]  # of one output: the weights that are not zero, and what they read


class Balls:
    """Real arithmetic: every number is in its ball."""

    def __init__(self) -> None:
        self.exp = cache(lambda x: arb(x).exp())

    def stored(self, x: float) -> arb:
        return arb(x)

    def times(self, x: arb, w: arb) -> arb:
        return x * w

    def plus(self, x: arb, y: arb) -> arb:
        return x + y

    def positive(self, x: arb) -> arb:
        return x.max(arb(0))

    def hull(self, numbers: Sequence[arb]) -> arb:
        return reduce(arb.union, numbers)

    def scores(self, queries: list[Row], keys: list[Row]) -> list[Row]:
        found: list[Row] = (arb_mat(queries) * arb_mat(keys).transpose()).tolist()
        return found

    def total(self, column: Column, x: Row, *added: arb) -> arb:
        found: arb = from_left(self, column, x, *added)
        return found

    def mean(self, scores: Row, values: Row) -> arb:
        top = max(float(s.mid()) for s in scores)
        weights = [(s - top).exp() for s in scores]
        return sum((w * v for w, v in zip(weights, values, strict=True)), arb(0)) / sum(weights, arb(0))

    def retrieved(self, row: Row) -> tuple[int, arb]:
        """The position that is looked at, and up to which share all others are: at most e^-gap for each of them."""
        best = max(range(len(row)), key=lambda i: float(row[i].mid()))
        leak = sum((self._power(x - row[best]) for i, x in enumerate(row) if i != best), arb(0))
        return best, arb(0).union(leak / (1 + leak))

    def _power(self, x: arb) -> Any:
        top = x.upper()
        return self.exp(float(top)) if arb(float(top)) == top else top.exp()

    def mixed(self, value: arb, share: arb, others: arb) -> arb:
        return value + share * (others - value)

    def number(self, x: arb) -> arb:
        return x


class Bits:
    """Constant-bit arithmetic: whole numbers over 2^s, rounded after every operation, ties to the smaller magnitude."""

    def __init__(self, s: int) -> None:
        self.one, self.largest = 1 << s, int(4**s - 1)
        self.is_alive = cache(lambda j: bool((arb(j) / self.one).exp() * 2 * self.one > 1))

    def _rounded(self, x: int, over: int) -> int:
        size: int = min((2 * abs(x) + over - 1) // (2 * over), self.largest)
        return size if x >= 0 else -size

    def stored(self, x: float) -> int:
        exact = Fraction(x) * self.one
        return self._rounded(exact.numerator, exact.denominator)

    def times(self, x: int, w: int) -> int:
        return self._rounded(x * w, self.one)

    def plus(self, x: int, y: int) -> int:
        found: int = max(-self.largest, min(self.largest, x + y))
        return found

    def positive(self, x: int) -> int:
        return max(x, 0)

    def hull(self, numbers: Sequence[int]) -> int:
        require(len({*numbers}) == 1, "scores depend on tokens, which is not checked", NOT_CHECKABLE)
        return numbers[0]

    def scores(self, queries: list[Row], keys: list[Row]) -> Iterator[Row]:
        for i, query in enumerate(queries):
            read = [(j, w) for j, w in enumerate(query) if w]
            yield [self.total(read, key) for key in keys[: i + 1]]

    def total(self, column: Column, x: Row, *added: int) -> int:
        found: int = from_left(self, column, x, *added)
        return found

    def retrieved(self, row: Row) -> tuple[int, int]:
        """The one position whose exponential is not rounded to 0: its share is then exactly 1."""
        alive = [i for i, x in enumerate(row) if self.is_alive(x)]
        require(len(alive) == 1, "a step looks at no position, or at several", NOT_CHECKABLE)
        return alive[0], 0

    def mixed(self, value: int, share: int, others: int) -> int:
        return value

    def number(self, x: int) -> arb:
        return arb(x) / self.one


class ChainLayer(NamedTuple):
    """Columns of one head and its neurons; values are of one dimension."""

    W_Q: list[Column]
    W_K: list[Column]
    W_V: list[Column]
    W_O: list[Column]
    W_1: list[Column]
    b_1: Row
    W_2: list[Column]
    b_2: Row

    def after(self, at: Any, x: Row, mixed: Any) -> Row:
        """The stream after attention and the neurons."""
        y = [at.total(column, [mixed], a) for column, a in zip(self.W_O, x, strict=True)]
        hidden = [at.positive(at.total(column, y, b)) for column, b in zip(self.W_1, self.b_1, strict=True)]
        return [at.total(column, hidden, b, a) for column, b, a in zip(self.W_2, self.b_2, y, strict=True)]


def from_left(at: Any, column: Column, x: Row, *added: Any) -> Any:
    """The sum of products, taken from left to right, and of what is added last."""
    return reduce(at.plus, added, reduce(at.plus, (at.times(x[j], w) for j, w in column), at.stored(0.0)))


def applied(at: Any, W: list[Column], x: Row) -> Row:
    return [at.total(column, x) for column in W]


class Chain:
    """Two layers on n + T - 1 positions. After the first, a stream depends on its token and on the one it looked at."""

    def __init__(self, at: Any, E: list[Row], P: list[Row], layers: Sequence[ChainLayer], n: int, g: int) -> None:
        self.at, self.n, self.g, self.layers, (first, self.last) = at, n, g, layers, layers
        x: list[dict[tuple[int, ...], Row]] = [
            {(t,): [at.total([], [], *y) for y in zip(E[t], row, strict=True)] for t in (0, 1)} for row in P
        ]
        self.embedded = x
        self.first, mixed = self._head(first, x, 0)
        self.streams: list[dict[tuple[int, ...], Row]] = []
        for p, (a, share) in enumerate(self.first):
            tokens = [(t, u) for t, u in product((0, 1), repeat=2) if a != p or t == u]
            self.streams.append({(t, u): first.after(at, x[p][t,], mixed(a, (u,), share)) for t, u in tokens})
        self.second, self.mixed = self._head(self.last, self.streams, n - 1)

    def _head(self, layer: ChainLayer, streams: list[dict[tuple[int, ...], Row]], start: int) -> Any:
        """What each position looks at, with the others' share, and the value that it retrieves, tokens given."""
        at = self.at
        sides = [[[*map(at.hull, zip(*(applied(at, W, x) for x in of.values()), strict=True))] for of in streams]
                 for W in (layer.W_Q, layer.W_K)]  # fmt: skip
        values = [{tokens: applied(at, layer.W_V, x)[0] for tokens, x in of.items()} for of in streams]
        scores = enumerate(at.scores(*sides))
        found = [at.retrieved(row[: p + 1]) if p >= start else (p, at.stored(0.0)) for p, row in scores]
        of_any = [v for of in values for v in of.values()]
        others = reduce(arb.union, of_any) if of_any and isinstance(of_any[0], arb) else 0
        return found, lambda a, tokens, share: at.mixed(values[a][tokens], share, others)

    def answers(self, p: int) -> Iterator[tuple[dict[int, int], arb]]:
        """For all tokens of the positions that matter at p: theirs, and coordinate g."""
        a, (b, share) = self.first[p][0], self.second[p]
        places = (p, a, b, self.first[b][0])
        for own, other in product(self.streams[p], self.streams[b]):
            tokens = dict(zip(places, own + other, strict=True))
            if all(tokens[place] == x for place, x in zip(places, own + other, strict=True)):
                row = self.last.after(self.at, self.streams[p][own], self.mixed(b, other, share))
                yield tokens, self.at.number(row[self.g])

    def run(self, tokens: Sequence[int]) -> arb:
        """Coordinate g after all these tokens, in balls."""
        at, x = self.at, [of[token,] for of, token in zip(self.embedded, tokens, strict=False)]
        for layer in self.layers:
            queries, keys, values = ([applied(at, W, row) for row in x] for W in (layer.W_Q, layer.W_K, layer.W_V))
            of_all, scores = [v for (v,) in values], enumerate(at.scores(queries, keys), 1)
            x = [layer.after(at, x[n - 1], at.mean(row[:n], of_all[:n])) for n, row in scores]
        found: arb = at.number(x[-1][self.g])
        return found
