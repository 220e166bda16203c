"""Strings with regions, and a decoder that reads ranges of what stands at their positions (docs/checker.md)."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from itertools import pairwise, product
from typing import NamedTuple

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.reading import NOT_CHECKABLE, UNREADABLE, WORDS, read_tiles, require, rows_of

ZERO, ONE, OPEN, CLOSE, BOS = range(5)
TOKENS = "01[]"
VALID = re.compile(r"[01]*(?:\[[01]*\][01]*)*")
FEW, SHORT = 3000, 10
BITS, PRECISION, MOST_BITS = 256, 384, 1 << 13
SHAPES = {  # of the encoder behind the attention, and of the decoder
    "E": "tokens d", "W_V": "d h", "W_O": "h d", "W_1": "d p", "b_1": "p", "W_2": "p d", "b_2": "d", "P": "R d",
    "U_Q": "d f", "U_K": "d f", "U_V": "d g", "W_out": "g classes", "b_out": "classes",
}  # fmt: skip

Ends = tuple[int, int]  # whole numbers over 2^BITS, or a weight's over its own power of two


class Strings(NamedTuple):
    """The valid strings of `shortest` to N tokens with `fewest` to R regions, with that many zeros where it is said."""

    N: int
    R: int
    fewest: int = 0
    shortest: int = 0
    zeros: int | None = None

    @property
    def most(self) -> int:
        """The largest number of regions that fits."""
        return min(self.R, (self.N - (self.zeros or 0)) // 2)

    def number(self) -> int:
        """For each length and number of regions: the places of the delimiters, then the digits."""
        found = 0
        for M, n in product(range(self.fewest, self.most + 1), range(self.shortest, self.N + 1)):
            digits = n - 2 * M
            if digits >= 0:
                of_digits = 1 << digits if self.zeros is None else math.comb(digits, self.zeros)
                found += math.comb(n, 2 * M) * of_digits
        return found

    @property
    def in_words(self) -> str:
        regions = f"exactly {self.R}" if self.fewest == self.R else f"{self.fewest} to {self.R}"
        of_zeros = "" if self.zeros is None else f", {self.zeros} zeros"
        return f"valid strings of length {self.shortest} to {self.N}, {regions} regions{of_zeros}"

    @property
    def are_few(self) -> bool:
        """Whether they are run one by one where cells do not show the margin."""
        return self.N <= SHORT and self.number() <= FEW

    @property
    def shortest_ones(self) -> "Strings":
        """These, or the shortest of them, as long as they are few."""
        lengths = (self._replace(N=n) for n in range(min(self.N, SHORT), 0, -1))
        return next((few for few in lengths if few.are_few), self._replace(N=0))

    def has(self, text: str) -> bool:
        is_counted = self.zeros is None or text.count("0") == self.zeros
        is_long = self.shortest <= len(text) <= self.N and self.fewest <= text.count("[") <= self.R
        return is_counted and is_long and VALID.fullmatch(text) is not None

    def every(self) -> Iterator[str]:
        words = (product(TOKENS, repeat=n) for n in range(self.shortest, self.N + 1))
        return filter(self.has, ("".join(word) for listed in words for word in listed))


def counts(text: str, prompts: int) -> list[int]:
    """The ones of each region, 0 where there is none."""
    found = [region.count("1") for region in re.findall(r"\[([01]*)\]", text)]
    return (found + [0] * prompts)[:prompts]


def read_shapes(
    data: bytes, shapes: dict[str, str], flags: Sequence[str] = ()
) -> tuple[dict[str, fmpq_mat], dict[str, int], str]:
    """Each tensor as a matrix of fractions, the sizes that its shapes name, the flags among them, and the dtype."""
    tensors, _ = read_tiles(data, {"BOOL": 1})
    require({*tensors} == {*shapes, *flags}, "the file holds no such model", UNREADABLE)
    (stored, *_), *_ = (tensors[name] for name in shapes)
    sizes: dict[str, int] = {}
    for name in flags:
        found = tensors.pop(name)
        require(found[:2] == ("BOOL", []) and found[2] in (b"\0", b"\1"), f"{name} is no flag", UNREADABLE)
        sizes[name] = found[2] == b"\1"
    matrices = {}
    for name, (dtype, shape, raw) in tensors.items():
        named = shapes[name].split()
        is_right = dtype == stored and dtype in WORDS and len(shape) == len(named) and min([1, *shape]) > 0
        is_right = is_right and all(sizes.setdefault(x, n) == n for x, n in zip(named, shape, strict=True))
        require(is_right, f"{name} of shape {shape} does not fit {named}", UNREADABLE)
        rows, columns = ([1, 1, *shape])[-2:]
        (row,) = rows_of(name, dtype, [rows * columns], raw)
        matrices[name] = fmpq_mat(rows, columns, [fmpq(*x.as_integer_ratio()) for x in row])
    return matrices, sizes, WORDS[stored][0]


class RegionDecoder:
    """What prompts read of positions, of each of which the attention's output is known."""

    def __init__(self, W: dict[str, fmpq_mat]) -> None:
        with ctx.workprec(PRECISION):
            self.W, self.exact = {name: arb_mat(x) for name, x in W.items()}, W
            looked = W["U_K"] * (W["P"] * W["U_Q"]).transpose()
            seen_by = fmpq_mat([[*a, *b] for a, b in zip(looked.table(), W["U_V"].table(), strict=True)])
            of_all = (seen_by, W["W_2"] * seen_by, W["b_2"] * seen_by)
            self.seen_by, self.gains, self.constant = (arb_mat(x) for x in of_all)
        self.R, self.g, self.classes = W["P"].nrows(), W["W_out"].nrows(), W["b_out"].ncols()
        self.lines = [*zip(*W["W_out"].table(), W["b_out"].table()[0], strict=True)]
        self.is_staircase = self.g == 1 and _is_staircase(self.lines)

    def before(self, own: arb_mat, points: arb_mat) -> tuple[arb_mat, arb_mat]:
        """The stream and the neurons of the feed-forward layer, at outputs of the attention."""
        x = own + points * self.W["W_O"]
        return x, plus(x * self.W["W_1"], self.W["b_1"])

    def ranges(self, own: arb_mat, points: arb_mat) -> list[Ends]:
        """The ends of the scores of all prompts, and of the values, where the output is in the hull of these points.

        A neuron is affine in the output, so its ends over the hull are those at the points. One that is at least 0
        there adds an affine term, one that is at most 0 nothing, and any other one its gain times a number from 0 to
        its largest.
        """
        with ctx.workprec(PRECISION):
            x, z = self.before(repeated(own, points.nrows()), points)
            lows, highs = ([arb(0)] * self.gains.ncols() for _ in range(2))
            for i in range(z.ncols()):
                column = [z[c, i] for c in range(z.nrows())]
                if all(y >= 0 for y in column):
                    continue
                for c in range(z.nrows()):
                    z[c, i] = arb(0)
                top = reduce(arb.max, column, arb(0))
                added = [self.gains[i, j] * top for j in range(self.gains.ncols())]
                lows = [x + y.min(arb(0)) for x, y in zip(lows, added, strict=True)]
                highs = [x + y.max(arb(0)) for x, y in zip(highs, added, strict=True)]
            columns = zip(*(plus(x * self.seen_by, self.constant) + z * self.gains).table(), strict=True)
            ends = [(reduce(arb.min, column), reduce(arb.max, column)) for column in columns]
            return [(below(a + x), -below(-b - y)) for (a, b), x, y in zip(ends, lows, highs, strict=True)]

    def weights(self, scores: Sequence[Ends]) -> list[Ends]:
        """Ends of e^score over one power of two and one power of e: that of the largest score."""
        top, bottom = max(high for _, high in scores), min(low for low, _ in scores)
        bits = BITS + min(3 * ((top - bottom) >> BITS) // 2, MOST_BITS)
        with ctx.workprec(bits + 64):
            return [(max(0, below(e_to(low - top), bits)), -below(-e_to(high - top), bits)) for low, high in scores]

    def tops(self, own: arb_mat, points: arb_mat) -> list[arb]:
        """The largest numbers of neurons before ReLU, where the output is in the hull of these points."""
        with ctx.workprec(PRECISION):
            _, z = self.before(repeated(own, points.nrows()), points)
            return [reduce(arb.max, column) for column in zip(*z.table(), strict=True)]

    def shows(
        self, k: int, box: Sequence[Ends], margin: fmpq, lost: Callable[[Sequence[Ends]], list[fmpq]] | None = None
    ) -> bool:
        """Whether class k leads all others by the margin, wherever in the box the attention's output is.

        Logits are off by what is `lost` of the box, and then all are compared.
        The difference of two logits is affine, so least at a corner. On a staircase whoever is ahead of its neighbours
        is ahead of all: the steps beyond them come later.
        """
        if k >= self.classes:
            return False
        is_near, off = self.is_staircase and lost is None, lost(box) if lost else [fmpq(0)] * self.classes
        near = range(max(0, k - 1), min(self.classes, k + 2)) if is_near else range(self.classes)
        ends = self._fed([(fmpq(low, 1 << BITS), fmpq(high, 1 << BITS)) for low, high in box])
        for j in near:
            *slopes, rest = (a - b for a, b in zip(self.lines[k], self.lines[j], strict=True))
            least = sum((a * (low if a > 0 else high) for a, (low, high) in zip(slopes, ends, strict=True)), rest)
            if j != k and least - off[j] - off[k] < margin:
                return False
        return True

    def _fed(self, ends: list[tuple[fmpq, fmpq]]) -> list[tuple[fmpq, fmpq]]:
        """The ends after the neurons of the decoder, where it has any: each between its own."""
        if "W_3" not in self.exact:
            return ends
        W_3, b_3, W_4, b_4 = (self.exact[name].table() for name in ("W_3", "b_3", "W_4", "b_4"))
        read = [_span(ends, column, b) for column, b in zip(zip(*W_3, strict=True), b_3[0], strict=True)]
        on = [(max(low, fmpq(0)), max(high, fmpq(0))) for low, high in read]
        added = [_span(on, column, b) for column, b in zip(zip(*W_4, strict=True), b_4[0], strict=True)]
        return [(a + x, b + y) for (a, b), (x, y) in zip(ends, added, strict=True)]

    def gaps(self, own: arb_mat, points: arb_mat, due: Sequence[int]) -> list[list[arb]]:
        """For each prompt (due logit) - (each other one) of one string, at the precision that is set."""
        x, z = self.before(own, points)
        x = plus(x + relu(z) * self.W["W_2"], self.W["b_2"])
        queries, values = self.W["P"] * self.W["U_Q"], x * self.W["U_V"]
        scores = queries * (x * self.W["U_K"]).transpose()
        z = arb_mat([mean(row, values) for row in scores.table()])
        if "W_3" in self.W:
            z = plus(z + relu(plus(z * self.W["W_3"], self.W["b_3"])) * self.W["W_4"], self.W["b_4"])
        read = plus(z * self.W["W_out"], self.W["b_out"])
        return [[row[k] - y for j, y in enumerate(row) if j != k] for row, k in zip(read.table(), due, strict=True)]


def _span(ends: Sequence[tuple[fmpq, fmpq]], slopes: Sequence[fmpq], constant: fmpq) -> tuple[fmpq, fmpq]:
    """The ends of an affine form of numbers between ends."""
    terms = [sorted((a * low, a * high)) for a, (low, high) in zip(slopes, ends, strict=True)]
    return sum((x for x, _ in terms), constant), sum((y for _, y in terms), constant)


def _is_staircase(lines: Sequence[tuple[fmpq, ...]]) -> bool:
    """Whether slopes go one way, and so do the places where each line meets the next."""
    rises = [b - a for (a, _), (b, _) in pairwise(lines)]
    if not (all(x > 0 for x in rises) or all(x < 0 for x in rises)):
        return False
    breaks = [(a - b) / rise for ((_, a), (_, b)), rise in zip(pairwise(lines), rises, strict=True)]
    return all(x < y if rises[0] > 0 else x > y for x, y in pairwise(breaks))


class Bag(NamedTuple):
    """Positions of a set of strings: `always` there; of `more`, the first ones up to any; of each of `counted` so many
    of any of its kinds; and up to `room` of any that are `free`."""

    always: list[int]
    more: list[list[int]]
    counted: list[tuple[int, list[int]]]
    free: list[int]
    room: int

    @classmethod
    def of_cell(cls, kinds: Sequence[tuple[int, int]], strings: Strings, r: int, low: int, high: int, k: int) -> "Bag":
        """The positions of all strings with low to high regions and k ones in region r."""
        at, zeros = {kind: i for i, kind in enumerate(kinds)}, strings.zeros
        always = [i for (t, m), i in at.items() if t == BOS or t in (OPEN, CLOSE) and m <= 2 * low]
        more = [[at[OPEN, 2 * M - 1], at[CLOSE, 2 * M]] for M in range(low + 1, high + 1)]
        digits = [(t, m) for t, m in kinds if t in (ZERO, ONE) and m <= 2 * high and (t, m) != (ONE, 2 * r - 1)]
        counted = [(k, [at[ONE, 2 * r - 1]])] if k else []
        counted += [(zeros, [at[x] for x in digits if x[0] == ZERO])] if zeros else []
        free = [at[x] for x in digits if zeros is None or x[0] == ONE]
        return cls(always, more, counted, free, strings.N - 2 * low - (zeros or 0) - k)

    def lowest(self, weights: Sequence[Ends], values: Sequence[int]) -> int:
        """A bound below all weighted means of the values, the largest one in whole numbers.

        With every weight in its ends, sum of w (v - a) >= 0 says that the mean is at least a, and each position adds
        least at an end of its weight. Where it is below 0, the mean of the bag that shows it is the next a.
        """
        a = max(values)
        while True:
            total, size = self._least(weights, values, a)
            if total >= 0:
                return a
            a += total // size

    @property
    def kinds(self) -> set[int]:
        """Those that its positions may have."""
        listed = [i for group in (*self.more, *(kinds for _, kinds in self.counted)) for i in group]
        return {*self.always, *listed, *(self.free if self.room else [])}

    def most(self, kinds: set[int]) -> int:
        """How many positions are of these kinds at most."""
        found = sum(i in kinds for i in (*self.always, *(i for group in self.more for i in group)))
        found += sum(n for n, listed in self.counted if kinds & {*listed})
        return found + self.room * bool(kinds & {*self.free})

    def fewest(self, kinds: set[int]) -> int:
        """How many positions are of these kinds at least."""
        return sum(i in kinds for i in self.always) + sum(n for n, listed in self.counted if {*listed} <= kinds)

    def _least(self, weights: Sequence[Ends], values: Sequence[int], a: int) -> Ends:
        """The least sum of w (v - a), and the sum of w there."""

        def term(i: int) -> Ends:
            (low, high), v = weights[i], values[i] - a
            return (low * v, low) if v >= 0 else (high * v, high)

        fixed = [(1, term(i)) for i in self.always]
        fixed += [(n, min(map(term, kinds))) for n, kinds in self.counted if n]
        fixed += [(self.room, min([(0, 0), *map(term, self.free)]))] * (self.room > 0)
        found = least = (sum(n * x for n, (x, _) in fixed), sum(n * w for n, (_, w) in fixed))
        for group in self.more:
            added = [*map(term, group)]
            found = found[0] + sum(x for x, _ in added), found[1] + sum(w for _, w in added)
            least = min(least, found)
        return least


def mean(scores: Sequence[arb], values: arb_mat, numbers: Sequence[int] | None = None) -> list[arb]:
    """The rows of values, each so many times, weighed by e^score."""
    top = reduce(arb.max, (x.mid() for x in scores)).mid()
    weights = arb_mat([[(x - top).exp() * n for x, n in zip(scores, numbers or [1] * len(scores), strict=True)]])
    total = sum(weights.table()[0], arb(0))
    return [x / total for x in (weights * values).table()[0]]


def plus(x: arb_mat, row: arb_mat) -> arb_mat:
    return x + repeated(row, x.nrows())


def repeated(row: arb_mat, times: int) -> arb_mat:
    return arb_mat(row.table() * times)


def relu(x: arb_mat) -> arb_mat:
    return arb_mat([[y.max(arb(0)) for y in row] for row in x.table()])


def below(x: arb, bits: int = BITS) -> int:
    """The largest whole number over 2^bits that is at most x."""
    found = (x * arb(2) ** bits).lower().floor().unique_fmpz()
    require(found is not None, "a number is too large to be compared", NOT_CHECKABLE)
    return int(found or 0)


def e_to(whole: int) -> arb:
    return (arb(whole) / arb(2) ** BITS).exp()
