"""Pairs of addition modulo P in a format, where attention is uniform: each error times its slope (docs/checker.md)."""

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

from flint import arb, arb_mat, ctx, fmpq, fmpq_mat

from verify.checker.adder import Adder
from verify.checker.formats import BinaryFormat
from verify.checker.forwards import chosen, of_embedded
from verify.checker.reading import FAILS, NOT_CHECKABLE, require
from verify.checker.roundoff import Reach, Roundoff, exact, largest

BITS = 128
MOST_TERMS = 1 << 25  # about a minute
HALF = arb(1) / 2
Row = list[arb]


class Neurons(NamedTuple):
    """What neurons read in real arithmetic and how far it is off at most; by how much what they give follows it."""

    read: Row
    off: Row
    rounded: Row  # the part of it that their own sums make

    @property
    def shares(self) -> list[tuple[arb, arb]]:
        """A ReLU gives a share of what moves it: 1, nothing, or one from 0 to 1, as its middle and by how much less."""
        both = zip(self.read, self.off, strict=True)
        return [(arb(1), arb(0)) if z > e else (arb(0), arb(0)) if z < -e else (HALF, HALF) for z, e in both]

    @property
    def sizes(self) -> Row:
        return [(z + e).upper().max(arb(0)) for z, e in zip(self.read, self.off, strict=True)]


class RoundedPairs:
    """An adder of one layer whose numbers are those of the format, read at "=" after two numbers."""

    def __init__(self, model: Adder, fmt: BinaryFormat) -> None:
        self.model, self.on, self.P, self.layer = model, Roundoff(fmt), model.b_out.ncols(), model.layers[0]
        work = self.P**3 * self.layer.W_1.nrows() * max(1, self.layer.W_1.ncols())
        require(work <= MOST_TERMS, "so many pairs are not followed in a dtype", NOT_CHECKABLE)
        self.x = of_embedded(self.on, model.E, model.positions)
        self.U, self.W_out = ((W.tolist()) for W in (arb_mat(self.layer.W_2 * model.W_out), arb_mat(model.W_out)))

    @cached_property
    def means(self) -> list[Reach]:
        """Of each head what tokens at places add to a mean of three: sizes and errors of which that has the mean."""
        on, found = Roundoff(self.on.fmt, by_rows=True), list[Reach]()
        for W_Q, W_K, W_V, _ in self.layer.heads:
            q, k, v = (on.total([(self.x, W)], []) for W in (W_Q, W_K, W_V))
            scores = on.scores(q, k)
            is_uniform = bool(largest(scores.size) == 0)
            require(is_uniform, "attention that is not uniform is not followed pair by pair", NOT_CHECKABLE)
            found.append(on.mean(v, 3, arb(0), is_plain=True))
        return found

    def exact(self, a: int, b: int) -> list[fmpq]:
        """The stream at "=" after a pair: thirds of what its tokens give."""
        x = [self.model.embedded(t, i) for i, t in enumerate((a, b, self.P))]
        mean = fmpq_mat([[sum(column, fmpq(0)) / 3 for column in zip(*x, strict=True)]])
        parts = [mean * head[2] * head[3] for head in self.layer.heads]
        return sum(parts[1:], parts[0] + int(self.model.skip) * fmpq_mat([x[2]])).entries()

    def stream(self, a: int, b: int) -> Row:
        """How far the stream at "=" is off after a pair."""
        rows, parts = [3 * a, 3 * b + 1, 3 * self.P + 2], list[tuple[Reach, fmpq_mat]]()
        for mean, head in zip(self.means, self.layer.heads, strict=True):
            size, error = (arb_mat([[sum(y, arb(0)) / 3 for y in zip(*of.tolist(), strict=True)]])
                           for of in chosen(mean, rows)[:2])  # fmt: skip
            parts.append((Reach(size, error), head[3]))
        return self.on.total(parts, [chosen(self.x, rows[2:])] * self.model.skip).error.entries()

    def rounds(self, x: Row, W: fmpq_mat, others: Sequence[Reach]) -> Row:
        """What x W and the others round, of computed numbers, which no two sums need read alike, kept or rounded."""
        return self.on.total([(self.given(x), W)], others).error.entries()

    def given(self, x: Row) -> Reach:
        fmt = self.on.fmt
        off = [fmt.u * y + fmt.tiny if y != 0 else y for y in x]
        return Reach(arb_mat([[y + e for y, e in zip(x, off, strict=True)]]), arb_mat([off]))

    def neurons(self, x: Row, off: Row) -> Neurons:
        """After a stream that is off by so much."""
        W_1, b_1, sizes = self.layer.W_1, self.layer.b_1, [*map(farthest, x, off)]
        own = self.rounds(sizes, W_1, [exact(b_1)])
        moved = arb_mat([off]) * magnitudes(W_1)
        read = (arb_mat([x]) * arb_mat(W_1) + arb_mat(b_1)).entries()
        return Neurons(read, [(e + y).upper() for e, y in zip(own, moved.entries(), strict=True)], own)

    def gaps(self, a: int, b: int) -> list[tuple[arb, arb]]:
        """For each other class how far the right one is ahead in real arithmetic, and how much of that may be lost.

        The stream moves by d, |d| <= off, and neurons by e: theirs of d W_1 + e is a share t of it. So a gap moves by
        d (D + W_1 t G) + t e G and what the sums behind round, with D and G what the stream and the neurons add to it.
        """
        x, right, skip = [*map(arb, self.exact(a, b))], (a + b) % self.P, int(self.model.skip)
        off = self.stream(a, b)
        z, others = self.neurons(x, off), [self.given([*map(farthest, x, off)])] * skip
        of_sum = self.rounds(z.sizes, self.layer.W_2, others)
        hidden = arb_mat([[y.max(arb(0)) for y in z.read]])
        y = (hidden * arb_mat(self.layer.W_2) + skip * arb_mat([x])).table()[0]
        lost = [e + skip * f for e, f in zip(of_sum, off, strict=True)]
        moved = (arb_mat([[(s + t) * e for (s, t), e in zip(z.shares, z.off, strict=True)]]) *
                 magnitudes(self.layer.W_2)).table()[0]  # fmt: skip
        sizes = [farthest(v, e + f) for v, e, f in zip(y, lost, moved, strict=True)]
        last = self.rounds(sizes, self.model.W_out, [exact(self.model.b_out)])
        logits = (arb_mat([y]) * arb_mat(self.model.W_out) + arb_mat(self.model.b_out)).entries()
        found = []
        for j in range(self.P):
            if j != right:
                less = self._lost(off, of_sum, z, right, j) + last[right] + last[j]
                found.append((logits[right] - logits[j], less.upper()))
        return found

    def _lost(self, off: Row, of_sum: Row, z: Neurons, right: int, j: int) -> arb:
        D = [row[right] - row[j] for row in self.W_out]
        G = [row[right] - row[j] for row in self.U]
        W_1, shares = self.layer.W_1.table(), z.shares
        found = sum((e * abs(v) for e, v in zip(of_sum, D, strict=True)), arb(0))
        found += sum(((s + t) * e * abs(g) for (s, t), e, g in zip(shares, z.rounded, G, strict=True)), arb(0))
        for e, v, row in zip(off, D, W_1, strict=True):
            terms = [(s * w * g, t * abs(w * g)) for (s, t), w, g in zip(shares, row, G, strict=True) if s != 0]
            slope = sum((y for y, _ in terms), self.model.skip * v)
            found += e * (abs(slope) + sum((y for _, y in terms), arb(0)))
        return found

    def prove(self, margin: float) -> None:
        """Shows half of the margin of all pairs. Raises: Refusal."""
        with ctx.workprec(BITS):
            for a, b in product(range(self.P), repeat=2):
                found = self.gaps(a, b)
                is_false = any(gap + off < margin for gap, off in found)
                is_shown = all(gap - off >= arb(margin) / 2 for gap, off in found)
                require(is_shown, f"margin: {a} + {b} does not show", FAILS if is_false else NOT_CHECKABLE)


def farthest(x: arb, off: arb) -> arb:
    return (abs(x) + off).upper()


def magnitudes(W: fmpq_mat) -> arb_mat:
    return arb_mat(W.nrows(), W.ncols(), [abs(arb(x)) for x in W.entries()])
