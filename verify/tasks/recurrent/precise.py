"""One line of tokens in balls of growing precision: its states are points, so that nothing grows but rounding.

Ellipsoids hold whole sets of states, and where a step stretches sets they grow until no margin is left. The orbit
itself starts in one point, 0: a ball round it is as wide as rounding made it, and more digits make it narrower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, Protocol, TypeVar

import numpy as np
from flint import acb, arb, arb_mat, arb_series, ctx

from verify.arithmetic.arb_matrices import stored
from verify.arithmetic.exact_reals import float_above, float_below
from verify.arithmetic.slack import Array
from verify.frame.clock import Deadline
from verify.tasks.recurrent.network import BallVector, Network, State, step

BITS = (128, 512, 2048, 8192)
Vector = Sequence[arb]
N = TypeVar("N", arb, arb_series, acb)


class JudgedTokens(Protocol):
    """What is read after t tokens, and the right class after each t."""

    def at(self, t: int) -> int: ...

    @property
    def expected(self) -> Callable[[int], int]: ...


class Entrywise(Generic[N]):
    """What is the same for vectors of balls, power series and complex balls: sums and products."""

    def whole(self, x: Sequence[N | arb], y: Sequence[N | arb]) -> list[N | arb]:
        return self.add(x, y)

    def add(self, x: Sequence[N | arb], y: Sequence[N | arb]) -> list[N | arb]:
        return [a + b for a, b in zip(x, y, strict=True)]

    def multiply(self, x: Sequence[N | arb], y: Sequence[N | arb]) -> list[N | arb]:
        return [a * b for a, b in zip(x, y, strict=True)]

    def blend(self, z: Sequence[N | arb], n: Sequence[N | arb], h: Sequence[N | arb]) -> list[N | arb]:
        return [(1 - a) * b + a * c for a, b, c in zip(z, n, h, strict=True)]

    def cut(self, x: Sequence[N | arb], start: int, stop: int) -> Sequence[N | arb]:
        return x[start:stop]


class Digits(Entrywise[arb]):
    """Vectors of balls, with the precision of the context; an operation of `Numbers` encloses its result.

    Weights are turned into balls once for each precision, and found again by the arrays that hold them.
    """

    def __init__(self, net: Network) -> None:
        pairs = [(W, b) for layer in net.layers for W, b in ((layer.W_x, layer.b_x), (layer.W_h, layer.b_h))]
        pairs += [(net.W, u) for u in net.U if net.W is not None]
        self.exactly = {(id(W), id(b)): (stored(W), stored(b).entries()) for W, b in (*pairs, (net.V, net.b))}
        self.net, self.readouts = net, dict[int, tuple[list[int], arb_mat, list[arb]]]()

    def linear(self, W: Array, x: Vector | Array, b: Array, terms: Array | None = None) -> list[arb]:
        matrix, constant = self.exactly[id(W), id(b)]
        column = stored(x).transpose() if isinstance(x, np.ndarray) else arb_mat(len(x), 1, list(x))
        return [y + c for y, c in zip((matrix * column).entries(), constant, strict=True)]

    def gaps(self, read: Vector, right: int) -> list[tuple[arb, int]]:
        """The right logit minus each other one, and whose it is, of the part of a state that the readout sees.

        Rows of the readout are subtracted before they meet it, so that two equal rows are a tie, exactly.
        """
        if right not in self.readouts:
            V, b = self.exactly[id(self.net.V), id(self.net.b)]
            others = [j for j in range(len(b)) if j != right]
            rows = [[V[right, i] - V[j, i] for i in range(V.ncols())] for j in others]
            W = arb_mat(len(others), V.ncols(), [x for row in rows for x in row])
            self.readouts[right] = others, W, [b[right] - b[j] for j in others]
        others, W, constants = self.readouts[right]
        products = (W * arb_mat(len(read), 1, list(read))).entries()
        return [(y + c, j) for y, c, j in zip(products, constants, others, strict=True)]

    def known(self, x: BallVector) -> list[arb]:
        return list(x.balls)

    def tanh(self, x: Vector) -> list[arb]:
        return [a.tanh() for a in x]

    def sigmoid(self, x: Vector) -> list[arb]:
        return [1 / (1 + (-a).exp()) for a in x]

    def relu(self, x: Vector) -> list[arb]:
        return [a.max(0) for a in x]


@dataclass
class Followed:
    """How far the orbit is known: right up to `right_to` with what margin, first wrong where, or why it is open.

    `bits` are those of the balls, None where other enclosures are followed; `turn` is how many steps a turn has, where
    many turns are followed at once; after `entered` tokens the orbit is in a
    set that it never leaves.
    """

    bits: int | None = None
    right_to: int = 0
    margin: float = float("inf")
    tightest: int = 0
    wrong_at: int | None = None
    wrong_by: float | None = None
    predicted: int | None = None
    stuck: str | None = None
    entered: int | None = None
    turn: int | None = None

    def take(self, t: int, low: float, high: float, other: int | None) -> bool:
        """Adds that the margin after t tokens is between two numbers, `other` being the closest; whether to go on."""
        if low > 0:
            self.right_to = t
            if low < self.margin:
                self.margin, self.tightest = low, t
            return True
        if high <= 0:
            self.wrong_at, self.wrong_by, self.predicted = t, high, other
        else:
            self.stuck = f"the margin after {t} tokens may have either sign"
        return False


def closest(logits: Sequence[arb], right: int) -> list[tuple[arb, int]]:
    """The differences (right - other, other) to the largest other logit, and to all that are not surely below it.

    >>> [other for _, other in closest([arb(3), arb(1), arb(2), arb(2, 0.5)], 0)]
    [2, 3]
    """
    others = [j for j in range(len(logits)) if j != right]
    largest = max((logits[j] for j in others), key=float, default=arb(0))
    return [(logits[right] - logits[j], j) for j in others if not logits[j] < largest]


def bounds(gaps: Sequence[tuple[arb, int]]) -> tuple[float, float, int | None]:
    """A lower and an upper bound on the least of differences (right - other, other), and whose it is if it is wrong.

    None for whose it is where the balls of two differences overlap, so that either may be the least.
    """
    low = min((float_below(gap) for gap, _ in gaps), default=1.0)
    wrong = [(gap, other) for gap, other in gaps if gap <= 0]
    if not wrong:
        return low, float("inf"), None
    least, other = least_of(wrong)
    return low, min(0.0, float_above(least)), other if all(gap is least or least <= gap for gap, _ in gaps) else None


def least_of(gaps: Iterable[tuple[arb, int]]) -> tuple[arb, int]:
    """The pair whose difference has the least lower end, also where floats are too coarse to tell.

    >>> least_of([(arb(2), 0), (arb(1), 1), (arb(1, 0.5), 2)])
    ([1e+0 +/- 0.501], 2)
    """
    return reduce(lambda least, pair: pair if pair[0].lower() < least[0].lower() else least, gaps)


def follow(net: Network, line: JudgedTokens, steps: int, until: Deadline) -> Followed:
    """Follows the line for so many tokens in real arithmetic, with more bits where a margin's sign is not known."""
    best = Followed(0, stuck="time is up")
    for bits in BITS:
        with ctx.workprec(bits):
            found = _follow(net, line, steps, until, Followed(bits))
        if found.stuck is None or found.right_to >= best.right_to:
            best = found
        if found.stuck is None or until.is_up():
            break
    return best


def _follow(net: Network, line: JudgedTokens, steps: int, until: Deadline, found: Followed) -> Followed:
    numbers = Digits(net)
    state: State[Vector] = [[arb(0)] * net.hidden for _ in range(net.size // net.hidden)]
    for t in range(1, steps + 1):
        if until.is_up():
            found.stuck = f"time is up after {t - 1} tokens"
            break
        state = step(net, state, line.at(t - 1), numbers)
        if not found.take(t, *bounds(numbers.gaps(state[-net.parts], line.expected(t)))):
            break
    return found


def answers(net: Network, line: JudgedTokens, steps: int, until: Deadline) -> list[bool | None]:
    """Whether the answer after each of 1..steps tokens is right, in real arithmetic; None where that is not known.

    A tie is wrong. Unlike `follow` this goes on after a wrong answer, as later ones may be right again.
    """
    found: list[bool | None] = [None] * steps
    for bits in BITS:
        with ctx.workprec(bits):
            for t, is_right in enumerate(_answers(net, line, steps, until)):
                found[t] = found[t] if is_right is None else is_right
        if None not in found or until.is_up():
            break
    return found


def _answers(net: Network, line: JudgedTokens, steps: int, until: Deadline) -> Iterator[bool | None]:
    numbers = Digits(net)
    state: State[Vector] = [[arb(0)] * net.hidden for _ in range(net.size // net.hidden)]
    for t in range(1, steps + 1):
        if until.is_up():
            return
        state = step(net, state, line.at(t - 1), numbers)
        low, high, _ = bounds(numbers.gaps(state[-net.parts], line.expected(t)))
        yield True if low > 0 else False if high <= 0 else None
