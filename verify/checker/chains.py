"""Chains of thought: what each step computes from the tokens before it, in balls or in constant bits (docs/checker.md).

All arithmetics have the same methods (`computed_steps.py` has the third one). A step looks at its own token and at what
its two heads retrieve, so at up to four tokens, of which all values are tried; what other positions leak into it is in
its balls.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, reduce
from itertools import accumulate, pairwise, product
from typing import Generic, NamedTuple, Protocol, TypeVar

from flint import arb, arb_mat

from verify.checker.ball_rows import mean

N = TypeVar("N")  # a number: a ball, or a whole number over 2^s
H = TypeVar("H")  # what holds several numbers
S = TypeVar("S")  # the share of all positions that are not looked at
Row = list[N]
Column = list[tuple[int, N]]  # of one output: the weights that are not zero, and what they read
Streams = dict[tuple[int, ...], Row[N]]  # at one position, by the tokens that it depends on
MOST_ROWS = 512  # of queries or keys


class SumArithmetic(Protocol[N]):
    """What a sum of products is made of."""

    def stored(self, x: float) -> N: ...

    def times(self, x: N, w: N) -> N: ...

    def plus(self, x: N, y: N) -> N: ...


class StepArithmetic(Protocol[N, H, S]):
    """What a step of a chain of thought is made of."""

    def stored(self, x: float) -> N: ...

    def weight(self, x: float) -> N: ...

    def positive(self, x: N) -> N: ...

    def hull(self, numbers: Sequence[N]) -> N: ...

    def any_of(self, numbers: Sequence[N]) -> N: ...

    def between(self, numbers: Sequence[N]) -> H: ...

    def scores(self, queries: list[Row[N]], keys: list[Row[N]], seen: Sequence[int]) -> Iterable[Row[N]]: ...

    def total(self, column: Column[N], x: Row[N], *added: N) -> N: ...

    def mean(self, scores: Row[N], values: Row[N]) -> N: ...

    def retrieved(self, row: list[H], values: N) -> tuple[int, S]: ...

    def mixed(self, value: N, others: S, /) -> N: ...

    def number(self, x: N) -> arb: ...


class Balls:
    """Real arithmetic: every number is in its ball."""

    def __init__(self) -> None:
        self.exp = cache(lambda x: arb(x).exp())

    def stored(self, x: float) -> arb:
        return arb(x)

    weight = stored

    def times(self, x: arb, w: arb) -> arb:
        return x * w

    def plus(self, x: arb, y: arb) -> arb:
        return x + y

    def positive(self, x: arb) -> arb:
        return x.max(arb(0))

    def hull(self, numbers: Sequence[arb]) -> arb:
        return reduce(arb.union, numbers)

    any_of = between = hull

    def scores(self, queries: list[Row[arb]], keys: list[Row[arb]], seen: Sequence[int]) -> list[Row[arb]]:
        return (arb_mat(queries) * arb_mat(keys).transpose()).tolist()

    def total(self, column: Column[arb], x: Row[arb], *added: arb) -> arb:
        return from_left(self, column, x, *added)

    def mean(self, scores: Row[arb], values: Row[arb]) -> arb:
        return mean(scores, arb_mat([[v] for v in values]))[0]

    def retrieved(self, row: Row[arb], values: arb) -> tuple[int, tuple[arb, arb]]:
        """The position that is looked at, the share of all others, with e^-gap for each of them, and all values."""
        best = max(range(len(row)), key=lambda i: float(row[i].mid()))
        leak = sum((self._power(x - row[best]) for i, x in enumerate(row) if i != best), arb(0))
        low, high = leak.lower(), leak.upper()
        return best, ((low / (1 + low)).union(high / (1 + high)), values)

    def _power(self, x: arb) -> arb:
        return self.exp(float(x)) if x.is_exact() and arb(float(x)) == x else x.exp()

    def mixed(self, value: arb, others: tuple[arb, arb]) -> arb:
        """Of a share s it is v + s (w - v), which rises with v and with w and is linear in s: the ends are extreme."""
        share, values = others
        sides = [(value.lower(), values.lower()), (value.upper(), values.upper())]
        return self.hull([v + s * (w - v) for s in (share.lower(), share.upper()) for v, w in sides])

    def number(self, x: arb) -> arb:
        return x


class ChainLayer(NamedTuple, Generic[N]):
    """Columns of one head and its neurons; values are of one dimension."""

    W_Q: list[Column[N]]
    W_K: list[Column[N]]
    W_V: list[Column[N]]
    W_O: list[Column[N]]
    W_1: list[Column[N]]
    b_1: Row[N]
    W_2: list[Column[N]]
    b_2: Row[N]

    def after(self, at: StepArithmetic[N, H, S], x: Row[N], mixed: N) -> Row[N]:
        """The stream after attention and the neurons."""
        y = [at.total(column, [mixed], a) for column, a in zip(self.W_O, x, strict=True)]
        hidden = [at.positive(at.total(column, y, b)) for column, b in zip(self.W_1, self.b_1, strict=True)]
        return [at.total(column, hidden, b, a) for column, b, a in zip(self.W_2, self.b_2, y, strict=True)]


def from_left(at: SumArithmetic[N], column: Column[N], x: Sequence[N], *added: N) -> N:
    """The sum of products, taken from left to right, and of what is added last."""
    return reduce(at.plus, added, reduce(at.plus, (at.times(x[j], w) for j, w in column), at.stored(0.0)))


def applied(at: StepArithmetic[N, H, S], W: list[Column[N]], x: Row[N]) -> Row[N]:
    return [at.total(column, x) for column in W]


class Looks(NamedTuple, Generic[N, S]):
    """Of each head what each position looks at, with the others' share; between them the streams; how values mix."""

    first: dict[int, tuple[int, S]]
    streams: list[Streams[N]]
    second: dict[int, tuple[int, S]]
    mixed: Callable[[int, tuple[int, ...], S], N]


class Chain(Generic[N, H, S]):
    """Two layers on n + T - 1 positions. After the first, a stream depends on its token and on the one it looked at."""

    def __init__(
        self, at: StepArithmetic[N, H, S], E: list[Row[N]], P: list[Row[N]], layers: list[ChainLayer[N]], n: int, g: int
    ) -> None:
        self.at, self.n, self.g, self.layers, (_, self.last) = at, n, g, layers, layers
        self.embedded: list[Streams[N]] = [
            {(t,): [at.total([], [], *y) for y in zip(E[t], row, strict=True)] for t in (0, 1)} for row in P
        ]

    @cached_property
    def looks(self) -> Looks[N, S]:
        """What all positions look at, whatever the tokens are, and the streams between."""
        at, x, (first, last) = self.at, self.embedded, self.layers
        found, mixed = self._head(first, x, 0)
        streams = list[Streams[N]]()
        for p, (a, share) in found.items():
            tokens = [(t, u) for t, u in product((0, 1), repeat=2) if a != p or t == u]
            streams.append({(t, u): first.after(at, x[p][t,], mixed(a, (u,), share)) for t, u in tokens})
        return Looks(found, streams, *self._head(last, streams, self.n - 1))

    def _head(
        self, layer: ChainLayer[N], streams: list[Streams[N]], start: int
    ) -> tuple[dict[int, tuple[int, S]], Callable[[int, tuple[int, ...], S], N]]:
        """What each position from `start` on looks at, with the others' share; the value retrieved, tokens given."""
        at = self.at
        scores = self._scores(*(self._different(W, streams) for W in (layer.W_Q, layer.W_K)))
        values = [{tokens: applied(at, layer.W_V, x)[0] for tokens, x in of.items()} for of in streams]
        of_any = accumulate((at.any_of([*of.values()]) for of in values), lambda *both: at.any_of(both))
        rows = enumerate(zip(scores, of_any, strict=True))
        found = {p: at.retrieved(*both) for p, both in rows if p >= start}
        return found, lambda a, tokens, share: at.mixed(values[a][tokens], share)

    def _different(self, W: list[Column[N]], streams: list[Streams[N]]) -> list[list[Row[N]]]:
        """The queries or keys that the tokens bring to each position; of those that may be one, and of many, a hull."""
        found = [list[Row[N]]() for _ in streams]
        for rows, of in zip(found, streams, strict=True):
            for row in (applied(self.at, W, x) for x in of.values()):  # balls may differ that do not show it
                near = [i for i, other in enumerate(rows) if not any(a != b for a, b in zip(row, other, strict=True))]
                rows.append(self._hull([row, *map(rows.pop, reversed(near))]))
        if sum(map(len, found)) <= max(MOST_ROWS, len(found)):
            return found
        return [[self._hull(rows)] for rows in found]

    def _hull(self, rows: Sequence[Row[N]]) -> Row[N]:
        return [*map(self.at.hull, zip(*rows, strict=True))]

    def _scores(self, queries: list[list[Row[N]]], keys: list[list[Row[N]]]) -> Iterator[list[H]]:
        """Of each position and those up to it, the scores that any of their tokens bring."""
        ends = [*accumulate(map(len, keys), initial=0)]
        seen = [ends[p + 1] for p, of in enumerate(queries) for _ in of]
        rows = iter(self.at.scores(sum(queries, []), sum(keys, []), seen))
        for p, of in enumerate(queries):
            found = [next(rows) for _ in of]
            yield [self.at.between([x for row in found for x in row[i:j]]) for i, j in pairwise(ends[: p + 2])]

    def answers(self, p: int) -> Iterator[tuple[dict[int, int], arb]]:
        """For all tokens of the positions that matter at p: theirs, and coordinate g."""
        first, streams, second, mixed = self.looks
        a, (b, share) = first[p][0], second[p]
        places = (p, a, b, first[b][0])
        for own, other in product(streams[p], streams[b]):
            tokens = dict(zip(places, own + other, strict=True))
            if all(tokens[place] == x for place, x in zip(places, own + other, strict=True)):
                row = self.last.after(self.at, streams[p][own], mixed(b, other, share))
                yield tokens, self.at.number(row[self.g])

    def run(self, tokens: Sequence[int]) -> arb:
        """Coordinate g after all these tokens; the second layer runs where a token is written."""
        at, x = self.at, [of[token,] for of, token in zip(self.embedded, tokens, strict=False)]
        for layer in self.layers:
            queries, keys, values = ([applied(at, W, row) for row in x] for W in (layer.W_Q, layer.W_K, layer.W_V))
            of_all, scores = [v for (v,) in values], enumerate(at.scores(queries, keys, range(1, len(x) + 1)), 1)
            first = self.n if layer is self.last else 1
            x = [layer.after(at, x[n - 1], at.mean(row[:n], of_all[:n])) for n, row in scores if n >= first]
        return at.number(x[-1][self.g])
