"""Boxes of states of a recurrent network, step by step, from its values at their corners (docs/checker.md).

One step after a box each number is least at a corner of the box, where the signs of its derivatives over the box are
known, and is taken over the whole width of a number where a sign is not: going there from any state of the box, along
the other numbers, the one that is computed only falls. So ends of boxes are known to all bits, of balls to thirty of
their width.
"""

from collections.abc import Callable
from typing import NamedTuple

from flint import arb, arb_mat

from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, require
from verify.checker.recurrent import StoredNetwork, Vector, on_box, point, step

REST = 2.0**-320  # what a number at rest changes by in a turn, at most
STILL, MOVING = 2.0**-300, 2.0**-200  # how much wider boxes are than numbers at rest, and than others

Due = Callable[[int], int | None]


class CornerBox(NamedTuple):
    """The least and the greatest of each number of the state, exactly."""

    low: Vector
    high: Vector

    @property
    def hull(self) -> Vector:
        return [a.union(b) for a, b in zip(self.low, self.high, strict=True)]

    def holds(self, other: "CornerBox") -> bool:
        ends = zip(self.low, other.low, other.high, self.high, strict=True)
        return all(a <= b and c <= d for a, b, c, d in ends)


def box_of(x: Vector) -> CornerBox:
    return CornerBox([y.lower() for y in x], [y.upper() for y in x])


def identity(n: int) -> arb_mat:
    return arb_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])


def slopes(net: StoredNetwork, x: Vector) -> arb_mat:
    """The derivatives of a step at all states that balls hold, a row for each number after it."""
    eye = [[arb(int(i == j)) for j in range(net.size)] for i in range(net.size)]
    rows = step(net, on_box(x, eye, [y.mid() for y in x], [arb(y.rad()) for y in x])).slope
    assert rows is not None
    return arb_mat(rows)


def image(net: StoredNetwork, box: CornerBox) -> tuple[CornerBox, arb_mat]:
    """A box that holds all states one step after those of a box, and the derivatives on it."""
    hull, low, high = box.hull, Vector(), Vector()
    slope = slopes(net, hull)
    for i in range(net.size):
        ends = [(slope[i, j], *number) for j, number in enumerate(zip(*box, hull, strict=True))]
        least = [a if s >= 0 else b if s <= 0 else y for s, a, b, y in ends]
        greatest = [b if s >= 0 else a if s <= 0 else y for s, a, b, y in ends]
        low.append(step(net, point(least)).value[i].lower())
        high.append(step(net, point(greatest)).value[i].upper())
    require(all(y.is_finite() for y in low + high), "a number of the state has no bound", NOT_CHECKABLE)
    return CornerBox(low, high), slope


def turned(net: StoredNetwork, box: CornerBox, k: int) -> tuple[list[CornerBox], arb_mat]:
    """The boxes after 1..k steps, and the derivatives of all of them together."""
    boxes, slope = list[CornerBox](), identity(net.size)
    for _ in range(k):
        box, own = image(net, box)
        boxes, slope = [*boxes, box], own * slope
    return boxes, slope


def win(net: StoredNetwork, boxes: list[CornerBox], t: int, due: Due, least: arb) -> None:
    """The right class wins by `least`, and by more than 0, on the first of the boxes, after t tokens, and on each a
    token later.
    """
    for later, box in enumerate(boxes):
        right = due(t + later)
        require(right is not None, f"length {t + later}: has no right class")
        for j, (low, high) in gaps(net, box, right or 0).items():
            if not (low >= least and low > 0):
                is_wrong = bool(high < least) or bool(high <= 0)
                what = f"length {t + later}: the right class is not shown to win over {j} by {float(least)}"
                raise Refusal(what, FAILS if is_wrong else NOT_CHECKABLE)


def gaps(net: StoredNetwork, box: CornerBox, right: int) -> dict[int, tuple[arb, arb]]:
    """The least and the greatest of (right logit) - (each other) on a box."""
    read, found = slice(net.read, net.read + net.hidden), {}
    for j in range(len(net.b)):
        if j == right:
            continue
        low = high = net.b[right] - net.b[j]
        for m, (a, b) in enumerate(zip(box.low[read], box.high[read], strict=True)):
            v = net.V[right, m] - net.V[j, m]
            low, high = low + (v * a if v > 0 else v * b), high + (v * b if v > 0 else v * a)
        found[j] = low.lower(), high.upper()
    return found


def around(net: StoredNetwork, x: Vector, y: Vector) -> CornerBox:
    """A box that holds x and y, and is a little wider; numbers that no step reads may be nearly anything."""
    slope, low, high = slopes(net, x), Vector(), Vector()
    for j, (a, b) in enumerate(zip(x, y, strict=True)):
        room = arb(STILL if abs(a - b) < REST else MOVING)
        if not is_read(slope, j):
            room = 2 + 2 * abs(a) + 2 * abs(b)
        low.append((a.lower().min(b.lower()) - room).lower())
        high.append((a.upper().max(b.upper()) + room).upper())
    return CornerBox(low, high)


def is_read(slope: arb_mat, j: int) -> bool:
    """Whether anything depends on a number."""
    return not all(slope[i, j] == 0 for i in range(slope.nrows()))
