"""One layer that adds two numbers digit by digit: linear forms over all pairs, column by column (docs/checker.md)."""

from collections.abc import Iterator
from functools import cache

from flint import arb, arb_mat, fmpq, fmpq_mat

from verify.checker.adder import InSteps
from verify.checker.carried_digits import Balls, NeuronSteps, around
from verify.checker.digit_prompts import Prompt, off_terms
from verify.checker.reading import FAILS, NOT_CHECKABLE, require

BITS = 256
Cell = tuple[int, int]  # a column's sum of two digits and the carry into it
Cells = dict[Cell, int]  # a bound, over 2^BITS


class DigitColumn:
    """The answer's digit of column i (0 the last one, n the leading one), read at the digit before it or at "="."""

    def __init__(self, steps: InSteps, n: int, B: int, i: int, is_above: bool = False) -> None:
        model = self.model = steps.model
        self.steps, self.n, self.B, self.i, self.end = steps, n, B, i, _ceil if is_above else _floor
        self.layer, prompt = model.layers[0], Prompt(model, n, B, 3 * n + 1 - i)
        self.x, self.rows, self.off = prompt.x, prompt.rows, arb_mat(off_terms(steps.fmt, prompt))
        self.is_own = [int(at == prompt.query) for at, _ in self.rows]
        self.written = [(prompt.shares(head), self.x * head[2] * head[3]) for head in self.layer.heads]
        self.into = [*zip(map(tuple, self.layer.W_1.transpose().tolist()), self.layer.b_1.entries(), strict=True)]
        self.form = cache(self._form)

    def least(self, v: tuple[fmpq, ...], constant: fmpq) -> Cells:
        """The least value of (stream v) + constant over all pairs of numbers, for each sum and carry of the column.

        In a format of what is read of the stream. It is a sum of one term for each position, so that the least sum
        follows column by column, the carry being all that columns know of each other.
        """
        n, B, i, direction = self.n, self.B, self.i, fmpq_mat(len(v), 1, [*v])
        parts = [(shares, (values * direction).entries()) for shares, values in self.written]
        own, off = (self.x * direction).entries(), (self.off * arb_mat([[abs(arb(y))] for y in v])).entries()
        f: dict[int, dict[int, int]] = {}
        for r, (at, t) in enumerate(self.rows):
            term = sum((shares[r] * values[r] for shares, values in parts), arb(own[r] * self.is_own[r]))
            f.setdefault(at, {})[t] = self.end(term - off[r])
        base = self.end(arb(constant)) + f[n][B] + f[2 * n + 1][B + 1]
        pairs = [
            [min(f[n - 1 - j][d] + f[2 * n - j][s - d] for d in range(max(0, s - B + 1), min(s, B - 1) + 1))
             for s in range(2 * B - 1)] for j in range(n)
        ]  # fmt: skip
        below: dict[int, int] = {0: base}  # by the carry into a column: the least sum of all columns below
        for j in range(i):
            after: dict[int, int] = {}
            for k, so_far in below.items():
                for s, pair in enumerate(pairs[j]):
                    out = int(s + k >= B)
                    after[out] = min(after.get(out, so_far + pair), so_far + pair)
            below = after
        if i == n:
            return {(0, k): value for k, value in below.items()}
        above = [f[2 * n + 2][k] for k in (0, 1)]  # the leading digit is the carry
        for j in range(n - 1, i, -1):
            answers = f[3 * n + 2 - j]
            above = [min(x + answers[(s + k) % B] + above[int(s + k >= B)] for s, x in enumerate(pairs[j]))
                     for k in (0, 1)]  # fmt: skip
        return {(s, k): value + pairs[i][s] + above[int(s + k >= B)]
                for k, value in below.items() for s in range(2 * B - 1)}  # fmt: skip

    def prove(self, margin: fmpq) -> None:
        """Every cell's right digit is ahead of all others by the margin, times 2^BITS."""
        for cell in self.least((fmpq(0),) * self.x.ncols(), fmpq(0)):
            for other, found, on in self.ahead(cell):
                what = f"margin: column {self.i}, sum {cell[0]}, carry {cell[1]}: that over {other} does not show"
                is_false = found < margin and on is not None and self._at_most(cell, other, on) < margin
                require(found >= margin, what, FAILS if is_false else NOT_CHECKABLE)

    def _at_most(self, cell: Cell, other: int, on: tuple[int, ...]) -> int:
        """How far ahead some pair is at most, where these neurons are on for all: terms rounded up."""
        above, right = DigitColumn(self.steps, self.n, self.B, self.i, is_above=True), sum(cell) % self.B
        b_out = self.model.b_out.entries()
        return above.form(tuple(self._difference(right, other).entries()), b_out[right] - b_out[other], on)[cell]

    def _difference(self, right: int, other: int) -> fmpq_mat:
        return fmpq_mat([[row[right] - row[other]] for row in self.model.W_out.tolist()])

    def _form(self, v: tuple[fmpq, ...], constant: fmpq, on: tuple[int, ...] = ()) -> Cells:
        """The least of (stream after neurons) v + constant, where these are on and all others off."""
        gains = (self.layer.W_2 * fmpq_mat(len(v), 1, [*v])).entries()
        for a in on:
            into, b = self.into[a]
            v, constant = tuple(y + gains[a] * z for y, z in zip(v, into, strict=True)), constant + gains[a] * b
        return self.least(v, constant)

    def _between(self, cell: Cell, v: tuple[fmpq, ...], b: fmpq, on: tuple[int, ...] = ()) -> tuple[int, int]:
        """The least and the greatest."""
        return self.form(v, b, on)[cell], -self.form(tuple(-y for y in v), -b, on)[cell]

    def _stream(self, cell: Cell, on: tuple[int, ...] = ()) -> Balls:
        """What is read of each coordinate, where these neurons are on and all others off."""
        if self.steps.fmt is None:  # nothing is rounded, so that no size counts
            return [arb(0)] * self.x.ncols()
        return [_ball(*self._between(cell, tuple(v.entries()), fmpq(0), on)) for v in _units(self.x.ncols())]

    def ahead(self, cell: Cell) -> Iterator[tuple[int, fmpq, tuple[int, ...] | None]]:
        """How far a cell's right digit is at least ahead of each other one, and the neurons that are on where some pair
        attains it."""
        steps, W_out, b_out, right = self.steps, self.model.W_out, self.model.b_out.entries(), sum(cell) % self.B
        read = [self._between(cell, v, b) for v, b in self.into]
        after = NeuronSteps(steps, self.layer, self._stream(cell), [_ball(*ends) for ends in read])
        off = [*map(_ceil, after.off_z)]
        on = tuple(a for a, (low, _) in enumerate(read) if low - off[a] >= 0)
        open_ = [a for a, (low, high) in enumerate(read) if low - off[a] < 0 < high + off[a]]
        left = after.left
        if not open_:
            left = around(self._stream(cell, on), [after.lost(unit, on) for unit in _units(W_out.nrows())])
        off_logits = steps.off(left, W_out, [*map(arb, b_out)])

        def gap(other: int, on: tuple[int, ...]) -> int:
            lost = after.lost(self._difference(right, other), on) + off_logits[right] + off_logits[other]
            form = self.form(tuple(self._difference(right, other).entries()), b_out[right] - b_out[other], on)
            return form[cell] + _floor(-lost)

        for other in {*range(self.B)} - {right}:
            gains = (self.layer.W_2 * self._difference(right, other)).entries()
            harm = sum((min(fmpq(0), gains[a] * (read[a][1] + off[a])) for a in open_), fmpq(0))
            found = gap(other, on) + harm
            if len(open_) == 1:  # 0 and its reading are the two that it may be
                both = min(gap(other, on), gap(other, tuple(sorted((*on, *open_)))))
                found = max(found, fmpq(both))
            yield other, found, None if open_ or steps.fmt else on


def _units(d: int) -> list[fmpq_mat]:
    return [fmpq_mat(d, 1, [int(i == m) for i in range(d)]) for m in range(d)]


def _ball(low: int, high: int) -> arb:
    return arb(low).union(high) * arb(2) ** -BITS


def _floor(x: arb) -> int:
    """A whole number over 2^BITS that is at most x."""
    found = (x * arb(2) ** BITS).lower().floor().unique_fmpz()
    require(found is not None, "a sum whose digits do not show", NOT_CHECKABLE)
    return int(found)  # type: ignore[arg-type]


def _ceil(x: arb) -> int:
    """A whole number over 2^BITS that is at least x."""
    return -_floor(-x)
