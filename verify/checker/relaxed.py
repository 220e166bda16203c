"""Bounds on what follows an attention of several heads, with neurons and norms behind it, on a product of token sets.

With the token of the place that answers fixed, each head gives N / D, where N and D > 0 are sums of one number for each
place. A linear function of a head's numbers is such a quotient, too. Let m be the least it is on the cell, or less, so
that N - m D is at least 0 on it, and q at most 1 / D there; then

    N / D = m + (N - m D) / D >= m + q (N - m D).

So a linear function of all heads' numbers is at least one sum over the places, whose least value is found place by
place. A function of what comes later goes backwards through the stages: a neuron's coefficient takes the line below it
where it is above 0, the line above it where it is below 0, and what is left is linear in what the stage was given. Each
function is

    at least  sum of c x / 2^K  -  error / 2^K,   c and error whole, x: 1, the heads' numbers, the stages' results,

and what rounding c can do, a unit times the largest |x|, is in the error.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flint import fmpz_mat

from verify.checker.halving import CellBounds, Terms
from verify.checker.lines import BoundingLines, Ends, K, NoBound, lines
from verify.checker.one_layer import Sets
from verify.checker.whole_stages import OwnLayer, Rows, StageRows, WeighedRows, flat

D_BITS, Q_BITS = 48, 96  # of a head's weights on a cell, and of what 1 / D is over

OFF = ((0,), (0,))  # the slopes of a neuron that is off


class HeadOnCell(NamedTuple):
    """A head's weights for each token, over one power of two, and those times its numbers, each up to two units more.

    Below and above 1 / D, in units of 2^-Q_BITS.
    """

    weights: list[int]
    weighed: fmpz_mat
    below: int
    above: int


class RelaxedCell(CellBounds):
    """Bounds on one cell of one own token: the stages forwards, each function backwards.

    What holds on a cell that this is a part of holds here: functions that have one line there keep it.
    """

    def __init__(self, layer: OwnLayer, margin: int, sets: Sets, due: int, parent: CellBounds | None) -> None:
        self.layer, self.margin, self.due = layer, margin, due
        self.sets, self.pairs = sets, [(j, t) for j, chosen in enumerate(sets) for t in chosen]
        starts = [sum(map(len, sets[:j])) for j in range(len(sets) + 1)]
        self.places = [*zip(starts, starts[1:], strict=False)]
        self.totals = [1 + layer.largest * layer.width * len(layer.heads)]  # of all |x| before each stage
        self.lines, self.ranges = list[list[BoundingLines]](), list[list[list[Ends]]]()
        self.joint, self.low, self.table = list[list[int]](), dict[int, int](), dict[int, list[int]]()
        self.is_bounded = False
        known = parent if isinstance(parent, RelaxedCell) and parent.is_bounded else None
        try:
            self.heads = [*map(self._head, layer.heads)]
            for stage in layer.stages:
                self._bound(stage, known)
        except NoBound:
            return
        self.is_bounded = True

    def _head(self, head: WeighedRows) -> HeadOnCell:
        weights = [head.weights[pair] for pair in self.pairs]
        shift = sum(max(weights[a:b]) for a, b in self.places).bit_length() - D_BITS
        if shift < 2:
            raise NoBound
        weights = [w >> shift for w in weights]
        low = sum(min(weights[a:b]) for a, b in self.places)
        high = sum(max(weights[a:b]) for a, b in self.places) + 2 * len(self.places)
        if low <= 0:
            raise NoBound
        columns = zip(*(head.weighed[pair] for pair in self.pairs), strict=True)
        weighed = flat([[x >> shift for x in column] for column in columns])
        return HeadOnCell(weights, weighed, (1 << Q_BITS) // high, -((-1 << Q_BITS) // low))

    def _bound(self, stage: StageRows, known: "RelaxedCell | None") -> None:
        """The ends of a stage's arguments, lines between them, and a bound on its results."""
        s, off = len(self.lines), 2 * self.totals[-1]
        found = [*known.lines[s]] if known else list[BoundingLines]()
        ranges = [*known.ranges[s]] if known else list[list[Ends]]()
        left = [e for e in range(stage.size) if not known or not found[e].is_exact]
        new = [zip(*self._ends([rows[e] for e in left]), strict=True) for rows in stage.arguments if left]
        for e, pairs in zip(left, zip(*new, strict=True), strict=True):
            own = [(low - off, high + off) for low, high in pairs]
            ranges[e : e + 1] = [[*map(_both, own, ranges[e])] if known else own]
            found[e : e + 1] = [lines(stage.function, *(x for pair in ranges[e] for x in pair))]
        self.lines.append(found)
        self.ranges.append(ranges)
        self.totals.append(self.totals[-1] + stage.size * _size(x for line in found for x in line.results))

    def _ends(self, rows: Rows) -> tuple[list[int], list[int]]:
        n, found = len(rows), self._lowest([*rows, *([-x for x in row] for row in rows)])
        return found[:n], [-x for x in found[n:]]

    def _lowest(self, rows: Rows) -> list[int]:
        """Lower bounds, in units: backwards through the stages."""
        rows, errors = [[*row] for row in rows], [1] * len(rows)
        for s in reversed(range(len(self.lines))):
            rows = self._through(s, rows, errors)
        return [low - error for low, error in zip(self._by_heads(rows), errors, strict=True)]

    def _through(self, s: int, rows: Rows, errors: list[int]) -> Rows:
        """Functions of a stage's results as functions of what came before."""
        stage, total, left = self.layer.stages[s], self.totals[s], [row[: -self.layer.stages[s].size] for row in rows]
        on = [e for e, line in enumerate(self.lines[s]) if line != BoundingLines(OFF, (0, 0), line.results)]
        found, given = [self.lines[s][e] for e in on], [[row[e - stage.size] for e in on] for row in rows]
        ends = [[line.added[end] for line in found] for end in (0, 1)]
        for row, c in zip(left, given, strict=True):
            row[0] += sum(x * (high if x < 0 else low) for x, low, high in zip(c, *ends, strict=True)) >> K
        for a, argument in enumerate(stage.arguments if on else []):
            along = [[line.slopes[end][a] for line in found] for end in (0, 1)]
            of_all = [
                [x * (high if x < 0 else low) >> K for x, low, high in zip(c, *along, strict=True)] for c in given
            ]
            matrix, largest = flat([argument[e] for e in on]), _size(x for e in on for x in self.ranges[s][e][a])
            moved, size, n = (flat(of_all) * matrix).entries(), matrix.ncols(), len(on)
            for f, (row, of_row) in enumerate(zip(left, of_all, strict=True)):
                left[f] = [x + (int(y) >> K) for x, y in zip(row, moved[f * size : (f + 1) * size], strict=True)]
                errors[f] += n * largest + total * (2 * ((sum(map(abs, of_row)) >> K) + 1) + 1) + 1
        return left

    def _by_heads(self, rows: Rows) -> list[int]:
        """Lower bounds, in units, on functions of the heads' numbers alone."""
        size, width, found = len(self.pairs), self.layer.width, [row[0] for row in rows]
        self.joint = [[0] * size for _ in rows]
        for h, head in enumerate(self.heads):
            some = [row[1 + h * width : 1 + (h + 1) * width] for row in rows]
            numbers = [*map(int, (flat(some) * head.weighed).entries())]
            for f, of_head in enumerate(some):
                m, rest = self._least_quotient(numbers[f * size : (f + 1) * size], head.weights)
                error = 2 * len(self.places) * (sum(map(abs, of_head)) + abs(m))
                found[f] += m - (error * head.above >> Q_BITS) - 1
                self.joint[f] = [x + head.below * y for x, y in zip(self.joint[f], rest, strict=True)]
        return [x + (self._least(joint)[0] >> Q_BITS) for x, joint in zip(found, self.joint, strict=True)]

    def _least_quotient(self, numbers: list[int], weights: list[int]) -> tuple[int, list[int]]:
        """A whole m at most the least N / D of the cell, and N - m D for each token: by Newton's steps, downwards."""
        low, at, m, rest = -1, self._least(numbers)[1], 0, numbers
        while low < 0:
            m = sum(numbers[i] for i in at) // sum(weights[i] for i in at)
            rest = [x - m * w for x, w in zip(numbers, weights, strict=True)]
            low, at = self._least(rest)
        return m, rest

    def _least(self, numbers: list[int]) -> tuple[int, list[int]]:
        """The least sum of one number for each place, and where it is."""
        parts = [numbers[a:b] for a, b in self.places]
        least = [*map(min, parts)]
        return sum(least), [a + part.index(x) for part, x, (a, _) in zip(parts, least, self.places, strict=True)]

    def _gaps(self, rivals: Sequence[int], sign: int) -> Rows:
        """(logit of the right class - another) times a sign; each off by as many units as four times all |x|."""
        right, others = self.layer.logits[self.due], (self.layer.logits[c] for c in rivals)
        return [[sign * (x - y) for x, y in zip(right, other, strict=True)] for other in others]

    def least(self, rivals: Sequence[int]) -> dict[int, int]:
        if not self.is_bounded or not rivals:
            return dict.fromkeys(rivals, -1)
        off = 4 * self.totals[-1] + self.margin
        self.low = {c: low - off for c, low in zip(rivals, self._lowest(self._gaps(rivals, 1)), strict=True)}
        self.table = dict(zip(rivals, self.joint, strict=True))
        return self.low

    def is_behind(self, rivals: Sequence[int]) -> bool:
        if not self.is_bounded:
            return False
        worst = min(rivals, key=self.low.__getitem__)
        return self._lowest(self._gaps([worst], -1))[0] >= 4 * self.totals[-1]

    def terms(self, rival: int) -> Terms:
        if not self.is_bounded:
            found = [sum(head.weights[pair] for head in self.layer.heads) for pair in self.pairs]
        else:
            found = self.table[rival]
        return [
            dict(zip(chosen, found[a:b], strict=True)) for chosen, (a, b) in zip(self.sets, self.places, strict=True)
        ]


def _both(x: Ends, y: Ends) -> Ends:
    return max(x[0], y[0]), min(x[1], y[1])


def _size(numbers: Iterable[int]) -> int:
    """A whole number that no |x| is above, of numbers in units."""
    return (max(map(abs, numbers)) >> K) + 1
