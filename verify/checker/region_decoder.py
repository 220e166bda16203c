"""A decoder that reads ranges of what stands at the positions of strings with regions (docs/checker.md)."""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.ball_rows import (
    BITS,
    MOST_BITS,
    PRECISION,
    Ends,
    below,
    e_to,
    least_of,
    mean,
    most_of,
    plus,
    relu,
    repeated,
)

SHAPES = {  # of the encoder behind the attention, and of the decoder
    "E": "tokens d", "W_V": "d h", "W_O": "h d", "W_1": "d p", "b_1": "p", "W_2": "p d", "b_2": "d", "P": "R d",
    "U_Q": "d f", "U_K": "d f", "U_V": "d g", "W_out": "g classes", "b_out": "classes",
}  # fmt: skip


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
            ends = [(least_of(column), most_of(column)) for column in columns]
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
            return [most_of(column) for column in zip(*z.table(), strict=True)]

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
