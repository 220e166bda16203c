"""Exact orbits that go on steadily: each turn changes the state by the same vector, times one more power of a factor.

A turn is k steps, linear but for ReLUs; let x be the state, e its change in the next turn, and e_r what the steps make
of e where the ReLUs that are on stay on and the others off: e_(r+1) is A e_r, with zeros at those that are off.

Lemma. Let e_k = c e for a number c > 0, and s_n = 1 + c + .. + c^(n-1). As long as no ReLU changes its side, the state
r steps after n more turns is x_r + s_n e_r. Proof: r = 0 and n = 0 are clear, a step maps x_r + s e_r to
x_(r+1) + s e_(r+1), and x_k + s_n e_k = x + (1 + c s_n) e = x + s_(n+1) e.

So every margin, and every number that a ReLU reads, is an affine function of s_n, which grows with n, to 1 / (1 - c)
where c < 1. All of this is in fractions; only logarithms of c, and what is printed, are in balls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from flint import arb, ctx, fmpq, fmpq_mat

from verify.arithmetic.exact_reals import float_above, float_below

BITS = 1024
MOST_POWER = 1 << 12  # of a factor that is raised exactly


class AffineStep(Protocol):
    """A step in fractions: what the units read, with or without the constant, which of them are on, and logits."""

    @property
    def is_relu(self) -> bool: ...

    def read(self, h: fmpq_mat, token: int) -> fmpq_mat: ...

    def moved(self, e: fmpq_mat) -> fmpq_mat: ...

    def logits(self, h: fmpq_mat) -> list[fmpq]: ...

    def shown(self, e: fmpq_mat) -> list[fmpq]: ...


@dataclass(frozen=True)
class Form:
    """c0 + c1 s_n at step r of a turn: a margin over class `other`, or what a ReLU reads, whose side is to stay."""

    c0: fmpq
    c1: fmpq
    r: int
    other: int | None = None


@dataclass(frozen=True)
class Until:
    """The first (turn, step) at which a margin is not above 0, or from which a ReLU is on the other side.

    Where there is no `turn`, there is none for ever. `least` bounds all margins before, at `tightest`.
    """

    turn: int | None
    step: int
    least: float
    tightest: tuple[int, int]
    is_wrong: bool = False
    wrong_by: float = 0.0
    other: int | None = None


@dataclass(frozen=True)
class Steady:
    """The lemma's state, its change, the factor, and all affine forms of a turn."""

    x: fmpq_mat
    e: fmpq_mat
    factor: fmpq
    margins: list[Form]
    sides: list[Form]

    @classmethod
    def of(cls, net: AffineStep, x: fmpq_mat, token: int, due: Sequence[int]) -> Steady | None:
        """From the state x on, with the right classes after each step of a turn; None where it is not steady."""
        states = [x]
        reads = []
        for _ in due:
            reads.append(net.read(states[-1], token))
            states.append(kept(reads[-1], [y > 0 for y in reads[-1].entries()]) if net.is_relu else reads[-1])
        e = states[-1] - x
        place = next((i for i, y in enumerate(e.entries()) if y != 0), None)
        if place is None:
            return None
        margins, sides, now = list[Form](), list[Form](), e
        for r, (read, right) in enumerate(zip(reads, due, strict=True)):
            change = net.moved(now)
            if net.is_relu:
                is_on = [y > 0 or (y == 0 and c > 0) for y, c in zip(read.entries(), change.entries(), strict=True)]
                signs = [fmpq(1 if on else -1) for on in is_on]
                pairs = zip(signs, read.entries(), change.entries(), strict=True)
                sides += [Form(sign * y, sign * c, r) for sign, y, c in pairs]
                change = kept(change, is_on)
            now = change
            values, slopes = net.logits(states[r + 1]), net.shown(now)
            for j in range(len(values)):
                if j != right:
                    margins.append(Form(values[right] - values[j], slopes[right] - slopes[j], r, j))
        factor = now.entries()[place] / e.entries()[place]
        if factor <= 0 or now != e * factor:
            return None
        return cls(x, e, factor, margins, sides)

    def limit(self) -> fmpq | None:
        """What s_n never reaches; None where it grows without end."""
        return 1 / (1 - self.factor) if self.factor < 1 else None

    def reaches(self, s: fmpq, *, beyond: bool) -> int | None:
        """The first n with s_n >= s, or > s; None where there is none.

        Raises: ArithmeticError where digits do not tell.
        """
        limit = self.limit()
        if limit is not None and s >= limit:
            return None
        if s < 0 or (s == 0 and not beyond):
            return 0
        if self.factor == 1:
            return int(s.floor()) + 1 if beyond else int(s.ceil())
        with ctx.workprec(BITS):
            n = (1 + arb(s) * (arb(self.factor) - 1)).log() / arb(self.factor).log()
            found = n.ceil().unique_fmpz()
            if found is not None:
                return int(found)
            near = int(n.mid().floor().unique_fmpz() or 0)
        if not 0 <= near < MOST_POWER:
            raise ArithmeticError("the first turn is not known")
        for candidate in range(max(near - 1, 0), near + 3):
            value = self.sum(candidate)
            if value > s or (value == s and not beyond):
                return candidate
        raise ArithmeticError("the first turn is not known")

    def sum(self, n: int) -> fmpq:
        """s_n in fractions."""
        return fmpq(n) if self.factor == 1 else (self.factor**n - 1) / (self.factor - 1)

    def value(self, form: Form, n: int) -> arb:
        """A ball round a form after n turns, with the precision of the context."""
        factor = arb(self.factor)
        s = arb(n) if self.factor == 1 else (factor**n - 1) / (factor - 1)
        return arb(form.c0) + arb(form.c1) * s

    def followed(self) -> Until | None:
        """How far every margin is above 0 and every ReLU on its side; None where digits do not tell."""
        try:
            ends = [(self.reaches(form.c0 / -form.c1, beyond=True), form) for form in self.sides if form.c1 < 0]
            wrong = [(self.reaches(form.c0 / -form.c1, beyond=False), form) for form in self.margins if form.c1 < 0]
            wrong += [(0, form) for form in self.margins if form.c1 >= 0 and form.c0 <= 0]
        except ArithmeticError:
            return None
        turns = min((n for n, _ in ends if n is not None), default=None)
        failed = min(((n, form.r) for n, form in wrong if n is not None), default=None)
        if turns is not None and (failed is None or turns <= failed[0]):
            return self._until(turns, 0)
        return self._until(*(failed or (None, 0)), is_wrong=failed is not None)

    def _until(self, turn: int | None, step: int, *, is_wrong: bool = False) -> Until | None:
        least, tightest = float("inf"), (0, 0)
        with ctx.workprec(BITS):
            for form in self.margins:
                for n, low in self._lowest(form, turn, step):
                    if low < least:
                        least, tightest = low, (n, form.r)
            if not is_wrong:
                return Until(turn, step, least, tightest) if least > 0 else None
            assert turn is not None
            gaps = [(self.value(form, turn), form.other) for form in self.margins if form.r == step]
            worst, other = min(gaps, key=lambda pair: float(pair[0]))
            return Until(turn, step, least, tightest, True, min(0.0, float_above(worst)), other)

    def _lowest(self, form: Form, turn: int | None, step: int) -> list[tuple[int, float]]:
        """Where a margin is least before (turn, step), and a bound on it there."""
        last = None if turn is None else turn - (form.r >= step)
        if last is not None and last < 0:
            return []
        if form.c1 >= 0:
            return [(0, float_below(arb(form.c0)))]
        if last is not None:
            return [(last, float_below(self.value(form, last)))]
        limit = self.limit()
        assert limit is not None  # else it would be wrong some day
        return [(0, float_below(arb(form.c0 + form.c1 * limit)))]


def kept(x: fmpq_mat, is_on: Sequence[bool]) -> fmpq_mat:
    """A vector with zeros where ReLUs are off."""
    return fmpq_mat(x.nrows(), 1, [y if on else fmpq(0) for y, on in zip(x.entries(), is_on, strict=True)])
