"""A decoder as a format computes it, on strings of tokens: balls that hold whatever any order of the sums makes.

Each operation is taken of balls, and its result widened by what rounding it can do (docs/checker.md).
"""

from collections.abc import Sequence
from functools import cache

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.ball_rows import mean, most_of
from verify.checker.decoder import Decoder, Tensors, activated, affine, placed
from verify.checker.formats import BinaryFormat, as_factors
from verify.checker.layer_norm import ULPS, LayerNormRoundings
from verify.checker.reading import NOT_CHECKABLE, require
from verify.checker.roundoff import FLUSHED, Roundoff


class ComputedDecoder(LayerNormRoundings, Decoder):
    """The decoder in a format. Raises: Refusal where a number may overflow."""

    def __init__(self, data: bytes, fmt: BinaryFormat, tables: object = None) -> None:
        super().__init__(data, tables)
        self.fmt, self.exact = fmt, {name: Roundoff(fmt).rounded(x) for name, x in self.exact.items()}
        self.factors = {name: as_factors(fmt, arb_mat(x)) for name, x in self.exact.items()}
        self.sizes, self.marks = ({name: of(x) for name, x in self.factors.items()} for of in (_magnitudes, _marks))
        self.differences = cache(self._differences)
        self.growth = cache(fmt.growth)

    # ---- sums

    def _affine(self, x: arb_mat, W: Tensors, name: str, bias: str, stream: arb_mat | None = None) -> arb_mat:
        """One sum, in any order, of products, the bias and the stream; a sum of one term of these two is that term."""
        x = as_factors(self.fmt, x)
        found = affine(x, W | {name: self.factors[name]}, name, bias, stream)
        off = self._off(x, name, bias, stream)
        both = zip(found.table(), off, strict=True)
        return arb_mat([[y + arb(0, e) for y, e in zip(*rows, strict=True)] for rows in both])

    def _off(self, x: arb_mat, name: str, bias: str, stream: arb_mat | None = None) -> list[list[arb]]:
        sizes = (_magnitudes(x) * self.sizes[name]).table()
        terms = (_marks(x) * self.marks[name]).table()
        others = [] if stream is None else [stream.table()]
        others += [self.sizes[bias].table() * x.nrows()] if bias in self.sizes else []
        found = []
        for i, (row, counts) in enumerate(zip(sizes, terms, strict=True)):
            found.append([self._of_sum(y, int(n.unique_fmpz() or 0), [part[i][j] for part in others])
                          for j, (y, n) in enumerate(zip(row, counts, strict=True))])  # fmt: skip
        return found

    def _of_sum(self, size: arb, products: int, others: Sequence[arb] = ()) -> arb:
        """How far a sum is off whose products are together of this size."""
        more = [y for y in others if y != 0 or not y.is_exact()]
        n = products + len(more)
        if products == 0 and n < 2:
            return arb(0)
        total = sum((abs(y) for y in more), size).upper()
        off = self.growth(n + 1) * total + (2 * n + 6) * self.fmt.tiny * (1 + self.growth(n + 1))
        self._hold(total + off)
        return off.upper()

    def _placed(self, x: arb_mat, W: Tensors, shift: int) -> arb_mat:
        if self.pe == "spe":
            require(shift + x.nrows() <= 2**self.fmt.p, "positions are rounded in the format", NOT_CHECKABLE)
        found = placed(self.pe, x, W, shift)
        if self.pe not in ("ape", "sine"):
            return found
        rows = zip(found.table(), x.table(), W["W_pos"].table()[shift : shift + x.nrows()], strict=True)
        return arb_mat([[y + arb(0, self._of_sum(arb(0), 0, both)) for y, *both in zip(*row, strict=True)]
                        for row in rows])  # fmt: skip

    # ---- attention

    def _summed(self, x: arb_mat, W: arb_mat) -> list[arb]:
        """A pair that is turned: a sum of two products."""
        sizes, terms = _magnitudes(x) * _magnitudes(W), _marks(x) * _marks(W)
        rows = zip((x * W).table()[0], sizes.table()[0], terms.table()[0], strict=True)
        return [y + arb(0, self._of_sum(size, int(n.unique_fmpz() or 0))) for y, size, n in rows]

    def _scores(self, q: arb_mat, k: arb_mat) -> arb_mat:
        """Divided by the rounded root, or times its reciprocal: four more roundings."""
        q, turned, root = as_factors(self.fmt, q), as_factors(self.fmt, k).transpose(), arb(q.ncols()).sqrt()
        sizes, terms = (_magnitudes(q) * _magnitudes(turned)).table(), (_marks(q) * _marks(turned)).table()
        found = (q * turned).table()
        return arb_mat([[self._divided(x, self._of_sum(size, int(n.unique_fmpz() or 0)), root)
                         for x, size, n in zip(*row, strict=True)]
                        for row in zip(found, sizes, terms, strict=True)])  # fmt: skip

    def _divided(self, x: arb, off: arb, root: arb) -> arb:
        y = (x + arb(0, off)) / root
        if x == 0 and off == 0:
            return y
        return y + arb(0, (abs(y) * self.growth(4) + 8 * self.fmt.tiny * (1 + abs(x))).upper())

    def _mean(self, scores: Sequence[arb], values: arb_mat) -> list[arb]:
        """Of values weighed by e^score: each weight is off by a share, their sums and quotients round, and what
        underflows in a weight or a share is little beside the largest weight, which is 1."""
        fmt, values = self.fmt, as_factors(self.fmt, values)
        if len(scores) == 1:
            return [*values.table()[0]]
        n, top = len(scores), most_of(abs(x).upper() for x in scores)
        is_plain = bool(top == 0) and n <= 2**fmt.p  # all weights are 1
        moved = arb(0) if is_plain else self.growth(2) * 2 * top + 4 * fmt.tiny + 2 * (ULPS * fmt.u + self.growth(3))
        g = arb(0) if is_plain else self.growth(n + 1)
        require(bool(moved < 0.25) and bool(g < 0.25), "a softmax is too far off in the format", NOT_CHECKABLE)
        wide, rows = [x + arb(0, moved.upper()) for x in scores], values.table()
        first = [x.mid() for x in rows[0]]
        found = mean(wide, arb_mat([[x - y for x, y in zip(row, first, strict=True)] for row in rows]))
        sizes = mean(wide, _magnitudes(values))
        share = (1 + 2 * g) * (1 + self.growth(3)) * (1 + (arb(2) ** -fmt.factors if fmt.factors else 0)) - 1
        out = []
        for x, y, size, column in zip(found, first, sizes, zip(*rows, strict=True), strict=True):
            most = most_of(abs(v).upper() for v in column)
            if most == 0:
                out.append(arb(0))
                continue
            off = (share + self.growth(n + 1) * (1 + share) ** 2) * size
            off += FLUSHED * n * fmt.tiny * (2 + most)
            self._hold(4 * n * (1 + most) + off)
            out.append(x + y + arb(0, off.upper()))
        return out

    # ---- LayerNorm

    def _normal(self, x: arb_mat, W: Tensors, name: str) -> arb_mat:
        if not self.norm:
            return x
        out = []
        for row in x.table():
            of, found = self._spread(row), []
            for y, size, a, b in zip(row, of.sizes, *self._gain(W, name), strict=True):
                moved = (y - of.centre + arb(0, of.off)) * of.inverse * a + b
                found.append(moved + arb(0, self._rounded(of, size, a, b)))
            out.append(found)
        return arb_mat(out)

    def _gain(self, W: Tensors, name: str) -> tuple[list[arb], list[arb]]:
        return W[f"{name}.weight"].table()[0], W[f"{name}.bias"].table()[0]

    def _active(self, z: arb_mat) -> arb_mat:
        found = activated(self.activation, z)
        if self.activation == "relu":
            return found
        share, tiny = (ULPS * self.fmt.u + self.growth(2)) * (1 + self.growth(2)), 4 * self.fmt.tiny
        self._hold(2 * most_of(abs(x).upper() for x in z.entries()))
        return arb_mat([[y + arb(0, (share * abs(x) + tiny).upper()) for x, y in zip(*rows, strict=True)]
                        for rows in zip(z.table(), found.table(), strict=True)])  # fmt: skip

    # ---- the readout

    def _differences(self, k: int) -> tuple[arb_mat, arb_mat, fmpq_mat]:
        """Columns of W_U that are read for (logit k) - (each logit): of the stream, centred, and their sums."""
        U, d = self.exact["W_U"].tolist(), self.exact["W_U"].nrows()
        rows = [[row[k] - y for y in row] for row in U]
        weight = self.exact["norm.weight"].tolist()[0] if self.norm else [fmpq(1)] * d
        scaled = [[x * a for x in row] for row, a in zip(rows, weight, strict=True)]
        sums = [sum(column) * int(self.norm) for column in zip(*scaled, strict=True)]
        centred = [[x - total / d for x, total in zip(row, sums, strict=True)] for row in scaled]
        return arb_mat(fmpq_mat(rows)), arb_mat(fmpq_mat(centred)), fmpq_mat([sums])

    def _gaps(self, x: arb_mat, W: Tensors, due: Sequence[int | None]) -> list[list[arb]]:
        """Two logits of one row share its mean and its divisor, so that these move their difference alone."""
        normal, found = self._normal(x, W, "norm"), list[list[arb]]()
        read = as_factors(self.fmt, normal)
        apart = [[b.rad() - a.rad() for a, b in zip(*rows, strict=True)]
                 for rows in zip(normal.table(), read.table(), strict=True)]  # fmt: skip
        off = (arb_mat(self._off(read, "W_U", "b_U")) + _magnitudes(read) * _radii(self.factors["W_U"])).table()
        for row, k, lost, local in zip(x.table(), due, off, apart, strict=True):
            if k is None:
                found.append([])
                continue
            plain, centred, sums = self.differences(k)
            gaps = (arb_mat([row]) * centred).table()[0]
            if self.norm:
                of, (weight, bias) = self._spread(row), self._gain(W, "norm")
                local = [e + self._rounded(of, *parts) for e, *parts in zip(local, of.sizes, weight, bias, strict=True)]
                moved = (arb_mat([bias]) * plain).table()[0]
                gaps = [(g + arb(0, of.off) * arb(s)) * of.inverse + b
                        for g, s, b in zip(gaps, sums.tolist()[0], moved, strict=True)]  # fmt: skip
            wide = (arb_mat([local]) * _magnitudes(plain)).table()[0]
            of_b = W["b_U"].table()[0] if "b_U" in W else [arb(0)] * len(gaps)
            found.append([g + of_b[k] - of_b[j] + arb(0, (e + lost[k] + lost[j]).upper())
                          for j, (g, e) in enumerate(zip(gaps, wide, strict=True)) if j != k])  # fmt: skip
        return found


def _magnitudes(x: arb_mat | fmpq_mat) -> arb_mat:
    """What no number exceeds."""
    return arb_mat([[abs(arb(y)).upper() for y in row] for row in x.table()])


def _radii(x: arb_mat) -> arb_mat:
    return arb_mat([[y.rad() for y in row] for row in x.table()])


def _marks(x: arb_mat | fmpq_mat) -> arb_mat:
    """1 where a number may be other than 0."""
    return arb_mat([[0 if y == 0 else 1 for y in row] for row in x.table()])
