"""Bounds on what follows an attention of several heads, with neurons and norms behind it, on a product of token sets.

With the token of the place that answers fixed, each head gives N / D, where N and D > 0 are sums of one number for each
place. For any m, and any zeta and delta with |1 / D - zeta| <= delta on the cell,

    N / D = m + zeta (N - m D) + e,   |e| <= delta |N - m D|.

So a linear function of all heads' numbers is one sum over the places, and an error of second order. A function of what
comes later goes backwards through the stages: a neuron's coefficient takes the line below it where it is above 0, the
line above it where it is below 0, and what is left is linear in what the stage was given. Each function is

    at least  sum of c x / 2^K  -  error / 2^K,   c and error whole, x: 1, the heads' numbers, the stages' results,

and what rounding c can do, a unit times the largest |x|, is in the error.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flint import fmpz_mat

from verify.checker.halving import CellBounds, Terms
from verify.checker.lines import K, Lines, NoBound, lines
from verify.checker.one_layer import Sets
from verify.checker.whole_stages import OwnLayer, Rows, StageRows, WeighedRows, flat

Z = 32  # bits of 1 / D


class HeadOnCell(NamedTuple):
    """m, N - m D for each number and token, zeta, delta over 2^Z, and how far off an entry may be, in units."""

    middle: list[int]
    centred: fmpz_mat
    zeta: int
    delta: int
    error: int


class RelaxedCell(CellBounds):
    """Bounds on one cell of one own token: the stages forwards, each function backwards."""

    def __init__(self, layer: OwnLayer, margin: int, sets: Sets, due: int) -> None:
        self.layer, self.margin, self.due = layer, margin, due
        self.sets, self.pairs = sets, [(j, t) for j, chosen in enumerate(sets) for t in chosen]
        starts = [sum(map(len, sets[:j])) for j in range(len(sets) + 1)]
        self.places = [*zip(starts, starts[1:], strict=False)]
        self.totals = [1 + layer.largest * layer.width * len(layer.heads)]  # of all |x| before each stage
        self.lines, self.largest = list[list[Lines]](), list[list[int]]()
        self.joint, self.table = list[int](), dict[int, list[int]]()
        try:
            self.heads = [*map(self._head, layer.heads)]
            for stage in layer.stages:
                self._bound(stage)
            self.is_bounded = True
        except NoBound:
            self.is_bounded = False

    def _head(self, head: WeighedRows) -> HeadOnCell:
        weights = [head.weights[pair] for pair in self.pairs]
        shift = sum(max(weights[a:b]) for a, b in self.places).bit_length() - K
        if shift < 2:
            raise NoBound
        weights = [w >> shift for w in weights]
        off, n = 2 * len(self.places), self.layer.largest
        low = sum(min(weights[a:b]) for a, b in self.places) - off
        high = sum(max(weights[a:b]) for a, b in self.places) + off
        if low <= 0:
            raise NoBound
        least, most = (1 << K + Z) // high, -((-1 << K + Z) // low)
        zeta, middle, rows = (least + most) // 2, list[int](), list[int]()
        for column in zip(*(head.weighed[pair] for pair in self.pairs), strict=True):
            numbers = [x >> shift for x in column]
            total = sum(min(numbers[a:b]) + max(numbers[a:b]) for a, b in self.places)
            m = max(-n << K, min(n << K, (total << K) // (low + high)))
            middle.append(m)
            rows += [x - (m * w >> K) for x, w in zip(numbers, weights, strict=True)]
        centred = fmpz_mat(self.layer.width, len(self.pairs), rows)
        return HeadOnCell(middle, centred, zeta, max(most - zeta, zeta - least), 3 + 2 * n)

    def _bound(self, stage: StageRows) -> None:
        """The ends of a stage's arguments, lines between them, and a bound on its results."""
        off, arguments = 2 * self.totals[-1], list[list[tuple[int, int]]]()
        for rows in stage.arguments:
            low, high = self._ends(rows)
            arguments.append([(a - off, b + off) for a, b in zip(low, high, strict=True)])
        found = [lines(stage.function, *(x for pair in pairs for x in pair)) for pairs in zip(*arguments, strict=True)]
        self.lines.append(found)
        self.largest.append([_size(x for pair in pairs for x in pair) for pairs in arguments])
        self.totals.append(self.totals[-1] + stage.size * _size(x for line in found for x in line.results))

    def _ends(self, rows: Rows) -> tuple[list[int], list[int]]:
        if not self.lines:
            return self._by_heads(rows)
        n, found = len(rows), self._lowest([*rows, *([-x for x in row] for row in rows)])
        return found[:n], [-x for x in found[n:]]

    def _lowest(self, rows: Rows) -> list[int]:
        """Lower bounds, in units: backwards through the stages."""
        rows, errors = [[*row] for row in rows], [1] * len(rows)
        for s in reversed(range(len(self.lines))):
            rows = self._through(s, rows, errors)
        return [low - error for low, error in zip(self._by_heads(rows)[0], errors, strict=True)]

    def _through(self, s: int, rows: Rows, errors: list[int]) -> Rows:
        """Functions of a stage's results as functions of what came before."""
        stage, found, left = self.layer.stages[s], self.lines[s], list[list[int]]()
        n, total = stage.size, self.totals[s]
        slopes: list[Rows] = [[] for _ in stage.arguments]
        for row in rows:
            given = [*zip(row[-n:], found, strict=True)]
            left.append(row[:-n])
            left[-1][0] += sum(c * line.added[c < 0] for c, line in given) >> K
            for a, of_all in enumerate(slopes):
                of_all.append([c * line.slopes[c < 0][a] >> K for c, line in given])
        for of_all, matrix, largest in zip(slopes, stage.matrices, self.largest[s], strict=True):
            moved, size = (flat(of_all) * matrix).entries(), matrix.ncols()
            for f, (row, of_row) in enumerate(zip(left, of_all, strict=True)):
                left[f] = [x + (int(y) >> K) for x, y in zip(row, moved[f * size : (f + 1) * size], strict=True)]
                errors[f] += n * largest + total * (2 * ((sum(map(abs, of_row)) >> K) + 1) + 1) + 1
        return left

    def _by_heads(self, rows: Rows) -> tuple[list[int], list[int]]:
        """Lower and upper bounds, in units, on functions of the heads' numbers alone."""
        size, width = len(self.pairs), self.layer.width
        constants = [row[0] << K + Z for row in rows]
        errors, joint = [0] * len(rows), None
        for h, head in enumerate(self.heads):
            some = [row[1 + h * width : 1 + (h + 1) * width] for row in rows]
            table = flat(some) * head.centred
            joint = table * head.zeta if joint is None else joint + table * head.zeta
            numbers = [*map(int, table.entries())]
            for f, row in enumerate(some):
                constants[f] += sum(c * m for c, m in zip(row, head.middle, strict=True)) << Z
                off = len(self.places) * head.error * sum(map(abs, row))
                low, high = self._sums(numbers, f * size)
                errors[f] += head.delta * (max(-low, high) + off) + head.zeta * off
        assert joint is not None, "there is a head"
        numbers = [*map(int, joint.entries())]
        self.joint = numbers
        low_, high_ = list[int](), list[int]()
        for f, (constant, error) in enumerate(zip(constants, errors, strict=True)):
            low, high = self._sums(numbers, f * size)
            low_.append(constant + low - error >> K + Z)
            high_.append(-(-(constant + high + error) >> K + Z))
        return low_, high_

    def _sums(self, numbers: list[int], start: int) -> tuple[int, int]:
        """The least and the greatest sum of one number for each place."""
        parts = [numbers[start + a : start + b] for a, b in self.places]
        return sum(map(min, parts)), sum(map(max, parts))

    def _gaps(self, rivals: Sequence[int], sign: int) -> Rows:
        """(logit of the right class - another) times a sign; each off by as many units as four times all |x|."""
        right, others = self.layer.logits[self.due], (self.layer.logits[c] for c in rivals)
        return [[sign * (x - y) for x, y in zip(right, other, strict=True)] for other in others]

    def least(self, rivals: Sequence[int]) -> dict[int, int]:
        if not self.is_bounded or not rivals:
            return dict.fromkeys(rivals, -1)
        off = 4 * self.totals[-1] + self.margin
        found = {c: low - off for c, low in zip(rivals, self._lowest(self._gaps(rivals, 1)), strict=True)}
        size = len(self.pairs)
        self.table = {c: self.joint[f * size : (f + 1) * size] for f, c in enumerate(rivals)}
        return found

    def is_behind(self, rivals: Sequence[int]) -> bool:
        if not self.is_bounded:
            return False
        return max(self._lowest(self._gaps(rivals, -1))) >= 4 * self.totals[-1]

    def terms(self, rival: int) -> Terms:
        if not self.is_bounded:
            found = [sum(head.weights[pair] for head in self.layer.heads) for pair in self.pairs]
        else:
            found = self.table[rival]
        return [
            dict(zip(chosen, found[a:b], strict=True)) for chosen, (a, b) in zip(self.sets, self.places, strict=True)
        ]


def _size(numbers: Iterable[int]) -> int:
    """A whole number that no |x| is above, of numbers in units."""
    return (max(map(abs, numbers)) >> K) + 1
