"""Many turns at once of a line that creeps in a format, in pieces (docs/checker.md).

A turn is k computed steps. From a number z, with T the exact turn and X_q the computed state after q turns,
X_(q+1) = T(z) + J (X_q - z) + e, where J are derivatives somewhere on a box of all these states, and |e| is at most
what roundings add on it. So each number c of the state has d' = phi d + m for d = c - z_c, where m is T(z)_c - z_c and
what the other numbers' distances from z, and e, add to it. After q turns d is the first one times q factors, and the
sum of q changes, each times the factors of the turns after it: it lies between what it is for the least and the
greatest phi and m. Pieces of turns follow each other.
"""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

from flint import arb, arb_mat

from verify.checker.arguments import first_shown
from verify.checker.computed_creeps import ComputedCreeps, widened
from verify.checker.corners import CornerBox, box_of, identity, image
from verify.checker.creeping import PERIODS_OF_TURN
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.recurrent import Vector, point, step
from verify.checker.rounded import rounding_of_step
from verify.checker.rounded_lines import is_wrong

PIECES = (64, 512)  # in which turns are taken, the second where the first does not show
WIDENINGS, WIDER = 12, 2.0**-4  # of a box of a piece's states, and by which share
MOST_WORK = 300_000  # steps, times numbers of the state to the power of three: up to half a minute


class Piece(NamedTuple):
    """A number z, how far the state may be from it at first, and each number's factor and change in a turn."""

    z: Vector
    far: Vector
    numbers: list[tuple[arb, arb]]

    def between(self, first: int, last: int) -> CornerBox:
        """A box of the states after so many turns."""
        low, high = Vector(), Vector()
        for z, far, (factor, change) in zip(self.z, self.far, self.numbers, strict=True):
            (few, one), (many, other) = (_powers(abs(factor), q) for q in (first, last))
            a, b, away = change.lower(), change.upper(), far * one.max(other)
            if not factor >= 0:  # a change may come with either sign
                b, few = abs(change).upper(), many
                a = -b
            low.append((z - away + a * (many if a < 0 else few)).lower())
            high.append((z + away + b * (many if b > 0 else few)).upper())
        require(all(y.is_finite() for y in low + high), "a number of the state has no bound", NOT_CHECKABLE)
        return CornerBox(low, high)


def _powers(x: arb, q: int) -> tuple[arb, arb]:
    """1 + x + .. + x^(q - 1), and x^q: those of n give those of 2 n, and of n + 1."""
    total, power = arb(0), arb(1)
    for bit in f"{q:b}":
        total, power = total * (1 + power), power * power
        if bit == "1":
            total, power = total * x + 1, power * x
    return total, power


class CreepingLine:
    """What is computed after so many tokens, by turns of `period` tokens or a few times as many."""

    def __init__(self, on: ComputedCreeps, period: int) -> None:
        self.on, self.period, self.left = on, period, MOST_WORK

    def right_to(self, n: int) -> None:
        """The right class wins after each of n tokens."""
        self._tried(lambda k, pieces: self._after(n, k, pieces, is_judged=True))

    def wrong_at(self, n: int, right: int, margin: float, wrong: int) -> None:
        """It does not after n tokens, by the margin; `wrong` does, where it is not -1."""

        def argument(k: int, pieces: int) -> None:
            box, where = self._after(n, k, pieces, is_judged=False), f"length {n}"
            is_wrong(lambda j: self.on.gaps(box, j, where), right, margin, wrong, where)

        self._tried(argument)

    def _tried(self, argument: Callable[[int, int], object]) -> None:
        """Raises: Refusal where an answer is another, or nothing shows with any of these turns and pieces."""
        first_shown(partial(argument, self.period * n, pieces) for pieces, n in product(PIECES, PERIODS_OF_TURN))

    def _spend(self, steps: int) -> None:
        self.left -= steps * self.on.net.size**3
        require(self.left >= 0, "turns take too many steps", NOT_CHECKABLE)

    def _after(self, n: int, k: int, pieces: int, *, is_judged: bool) -> CornerBox:
        """The states after n tokens; where it is judged, the right class wins after each."""
        t, size = 1 + (n - 1) % k, 1
        box, most = self._steps(box_of([arb(0)] * self.on.net.size), 0, t, is_judged), max(1, n // k // pieces)
        while t < n:
            q = min(size, (n - t) // k)
            try:
                piece = self._piece(box, k, q)
            except Refusal:
                require(q > 1, f"turns of {k} tokens after {t} do not stay in a box", NOT_CHECKABLE)
                size = q // 2
                continue
            if is_judged:
                self._win(piece, t, k, q)
            last, there = self._steps(piece.between(q - 1, q - 1), t, k, False), piece.between(q, q)
            box = CornerBox([*map(arb.max, last.low, there.low)], [*map(arb.min, last.high, there.high)])
            t, size = t + k * q, min(2 * q, most)
        return box

    def _steps(self, box: CornerBox, t: int, k: int, is_judged: bool) -> CornerBox:
        if is_judged:
            return self.on.after(box, t, k)
        for _ in range(k):
            box = self.on.step(box)
        return box

    def _win(self, piece: Piece, t: int, k: int, q: int) -> None:
        """The right class wins after each token of q turns after t tokens; they are halved where that does not show."""
        todo = [(0, q - 1)]
        while todo:
            first, last = todo.pop()
            self._spend(k)
            try:
                self.on.after(piece.between(first, last), t + k * first, k)
            except Refusal as error:
                if error.exit_code != NOT_CHECKABLE or first == last:
                    raise
                todo += [((first + last) // 2 + 1, last), (first, (first + last) // 2)]

    def _piece(self, start: CornerBox, k: int, q: int) -> Piece:
        """q turns from a box. Raises: Refusal where no box is found that holds the states before each of them."""
        net, box = self.on.net, start
        z = ahead = [y.mid() for y in start.hull]
        for _ in range(k):
            ahead = step(net, point(ahead)).value
        far = _farthest(start, z)
        for _ in range(WIDENINGS):
            slope, off = self._turned(box, k)
            widths, numbers = _farthest(box, z), list[tuple[arb, arb]]()
            for c, own in enumerate(off):
                beside = sum((abs(slope[c, j]) * w for j, w in enumerate(widths) if j != c), own)
                numbers.append((slope[c, c], ahead[c] - z[c] + arb(0, beside.upper())))
            found = Piece(z, far, numbers)
            reach = found.between(0, q - 1)
            if box.holds(reach):
                return found
            both = _union(box, reach)
            box = widened(both, [(WIDER * (b - a)).upper() for a, b in zip(*both, strict=True)])
        raise Refusal(f"{q} turns of {k} tokens do not stay in a box", NOT_CHECKABLE)

    def _turned(self, box: CornerBox, k: int) -> tuple[arb_mat, Vector]:
        """The derivatives of a turn on a box that holds exact and computed states, and what its roundings add up to."""
        net, slope, off = self.on.net, identity(self.on.net.size), [arb(0)] * self.on.net.size
        self._spend(k)
        for _ in range(k):
            (exact, J), computed, own = image(net, box), self.on.step(box), rounding_of_step(net, box.hull, self.on.fmt)
            apart = [(d - a).max(b - c) for a, b, c, d in zip(*exact, *computed, strict=True)]
            own = [e.min(y).upper() for e, y in zip(own, apart, strict=True)]
            off = [(e + sum((abs(J[i, j]) * y for j, y in enumerate(off)), arb(0))).upper() for i, e in enumerate(own)]
            box, slope = _union(exact, computed), J * slope
        return slope, off


def _union(x: CornerBox, y: CornerBox) -> CornerBox:
    return CornerBox([*map(arb.min, x.low, y.low)], [*map(arb.max, x.high, y.high)])


def _farthest(box: CornerBox, z: Vector) -> Vector:
    return [(y - a).max(b - y).upper() for a, b, y in zip(*box, z, strict=True)]
