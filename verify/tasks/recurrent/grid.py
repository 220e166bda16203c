"""Boxes of computed numbers: all that a format makes of a line in any order, and boxes that are mapped into themselves.

An ellipsoid is widened by a bound on rounding in each step. A box need not be: where a sum is exact, or has two terms
and is rounded once, its ends are the rounded ends, so that sums of whole numbers, sums that stall and numbers that
contract keep their width. The lemma is that of every invariant: if the steps of a turn map the box B into itself, the
state is in B, and all margins on the boxes of the turn are above 0, the orbit is right for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball, ends, hull, joined, point, relu
from verify.arithmetic.margins import margins_between
from verify.arithmetic.slack import INFLATION, Array, U
from verify.arithmetic.softmax import ULPS
from verify.frame.clock import Deadline
from verify.tasks.recurrent.enclosures import ONE, Balls, end, sigmoid, tanh
from verify.tasks.recurrent.network import BallVector, Network, orbit, step
from verify.tasks.recurrent.precise import Followed
from verify.tasks.recurrent.proof import OrbitQuestion
from verify.tasks.recurrent.search import jacobian

FIRST_TURNS, FIRST_STEPS = 8, 32  # before a box is looked for
LATER = 4  # times as many steps, until it is looked for again
MOST_STEPS = 1 << 16
WIDER = 4.0  # times as far as before a box reaches where its turn moves it
MOST_WIDER = 24
MOST_TURNS = 2  # multiples of the period that are tried as a turn
ROOM = 4.0  # units of rounding by which boxes are larger
EDGE = 2.0**-40  # of a box, for the rounding of its ends
AHEAD = (0.0, 2.0**10, 2.0**16)  # turns, about, from where a limit is looked for: there may be several
SPREADS, FOLLOWING = (1.0, 3.0), 2  # times the width of a box that holds it, and turns of such a box
NEWTON, NOISE = 4, 6.0  # steps, and units of rounding of a number in a step
OWN = 256 * U  # as the format's unit: radii are enlarged by 32 U each, some eight times in a step


@dataclass(frozen=True)
class Part:
    """W x + the biases `added`, a sum that other terms may still join."""

    W: Array
    x: Ball
    added: tuple[Array, ...]


class Grid:
    """Vectors of boxes that hold every computed number; a sum is computed once it is whole."""

    def __init__(self, at: RoundedArithmetic) -> None:
        self._at = at

    def value(self, x: Part | Ball) -> Ball:
        return self._at.rows(x.W, x.x, *x.added) if isinstance(x, Part) else x

    def linear(self, W: Array, x: Part | Ball | Array, b: Array, terms: Array | None = None) -> Part:
        return Part(W, point(x) if isinstance(x, np.ndarray) else self.value(x), (b,))

    def known(self, x: BallVector) -> Ball:
        return Balls().known(x)

    def whole(self, x: Part | Ball, y: Part | Ball) -> Part:
        assert isinstance(x, Part) and isinstance(y, Part), "sums, which linear gives"
        return Part(np.concatenate([x.W, y.W], axis=1), joined(x.x, y.x), x.added + y.added)

    def add(self, x: Part | Ball, y: Part | Ball) -> Ball:
        return self._at.sum_of(self.value(x), self.value(y))

    def multiply(self, x: Part | Ball, y: Part | Ball) -> Ball:
        return self._at.one(self.value(x) * self.value(y))

    def blend(self, z: Part | Ball, n: Part | Ball, h: Part | Ball) -> Ball:
        """As (1 - z) n + z h, or as n + z (h - n): kernels do either."""
        z, n, h = self.value(z), self.value(n), self.value(h)
        one = self.add(self.multiply(self._at.one(ONE - z), n), self.multiply(z, h))
        return hull(one, self.add(n, self.multiply(z, self.add(h, -n))))

    def tanh(self, x: Part | Ball) -> Ball:
        return self._increasing(tanh, self.value(x))

    def sigmoid(self, x: Part | Ball) -> Ball:
        return self._increasing(sigmoid, self.value(x))

    def _increasing(self, f: Callable[[Ball], Ball], x: Ball) -> Ball:
        """Between the values at the ends, each off by 2 units in the last place, and rounded; of what may have
        overflowed nothing is known, since it may be NaN.
        """
        low, high = f(end(x, -1)).lower, f(end(x, 1)).upper
        u, tiny = self._at.stored.u, 2 * self._at.stored.tiny
        off = ((ULPS + 1) * u * (1 + ULPS * u) + 4 * U) * INFLATION  # 4 U: the two lines below are rounded, too
        found = Ball.between(low - off * np.abs(low) - tiny, high + off * np.abs(high) + tiny)
        return Ball(found.mid, np.where(np.isfinite(x.rad), found.rad, np.inf))

    def relu(self, x: Part | Ball) -> Ball:
        return relu(self.value(x))

    def cut(self, x: Part | Ball, start: int, stop: int) -> Part | Ball:
        if isinstance(x, Part):
            return Part(x.W[start:stop], x.x, tuple(a[start:stop] for a in x.added))
        return x[start:stop]


@dataclass
class Boxes:
    """A network on a line, in boxes of the numbers of `at`."""

    net: Network
    line: OrbitQuestion
    at: RoundedArithmetic

    kept: dict[str, object] | None = None  # the box that a turn maps into itself, and how it is entered

    def __post_init__(self) -> None:
        self._on = Grid(self.at)

    @property
    def can_run(self) -> bool:
        """Whether factors are numbers as they are stored, and no stored number is one that may be read as 0."""
        net, at = self.net, self.at
        stored = [x for a in net.layers for x in (a.W_x, a.W_h, a.b_x, a.b_h)] + [net.tokens, net.V, net.b, *net.U]
        stored += [] if net.W is None else [net.W]
        return not at.rounds_factors and not any(at.flush_loss(x).any() for x in stored)

    def start(self) -> Ball:
        return point(np.zeros(self.net.size))

    def step(self, state: Ball, t: int) -> Ball:
        """The box after one more token, t having been read."""
        H = self.net.hidden
        parts: list[Part | Ball] = [state[k : k + H] for k in range(0, self.net.size, H)]
        return joined(*(self._on.value(x) for x in step(self.net, parts, self.line.at(t), self._on)))

    def margin(self, state: Ball, t: int) -> tuple[float, float, int | None]:
        """A lower and an upper bound on the computed margin after t tokens, and the class that surely wins, if any."""
        logits = self._on.value(self._on.linear(self.net.V, state[self.net.read], self.net.b))
        right, others = self.line.expected(t), np.arange(len(self.net.b)) != self.line.expected(t)
        if not others.any():
            return 1.0, np.inf, right
        if not np.isfinite(logits.rad).all():
            return -np.inf, np.inf, right
        low, high = ends(logits)
        best: int | None = int(np.flatnonzero(others)[high[others].argmax()])
        best = best if low[best] >= high[np.arange(len(high)) != best].max() else None
        least, most = margins_between(low, high, right)
        return float(least), float(most) if most <= 0 else np.inf, best

    def turn(self, state: Ball, t: int, k: int) -> Iterator[tuple[Ball, int]]:
        """The boxes after 1..k more tokens, and how many have been read."""
        for i in range(k):
            state = self.step(state, t + i)
            yield state, t + i + 1

    # ---- along the line

    def follow(self, steps: int | None, until: Deadline) -> Followed:
        """The line box by box, and for ever where `steps` is None and a box is found that a turn maps into itself."""
        found, state = Followed(), self.start()
        settled = max(self.line.settled, len(self.line.leading))
        look = settled + max(FIRST_TURNS * self.line.period, FIRST_STEPS)
        for t in range(MOST_STEPS if steps is None else steps):
            if until.is_up():
                found.stuck = f"time is up after {t} tokens"
                return found
            state = self.step(state, t)
            if not found.take(t + 1, *self.margin(state, t + 1)):
                return found
            if steps is None and t + 1 == look:
                look = settled + LATER * (look - settled)
                if self._is_kept(state, t + 1, found, until):
                    return found
        if steps is None:
            found.stuck = f"no box is mapped into itself after {MOST_STEPS} tokens"
        return found

    def _is_kept(self, state: Ball, t: int, found: Followed, until: Deadline) -> bool:
        """Whether the state is in a box that turns keep, and on which all are right: then `found` says so."""
        for turns in range(1, MOST_TURNS + 1):
            k = turns * self.line.period
            for box in self._guesses(state, t, k):
                if until.is_up():
                    return False
                turn = list(self.turn(box, t, k))
                if not (is_within(state, box) and is_within(turn[-1][0], box)):
                    continue
                least, at = min((self.margin(x, s)[0], s) for x, s in turn)
                if not least > 0:
                    break  # larger boxes are no better
                if least < found.margin:
                    found.margin, found.tightest = least, at
                found.entered = t
                self.kept = {"entry": t, "turn": k, **_as_lists(box)}
                return True
        return False

    def _guesses(self, state: Ball, t: int, k: int) -> Iterator[Ball]:
        """The state's box, reaching further and further where a turn moves it."""
        yield state
        (low, high), after = ends(state), ends(list(self.turn(state, t, k))[-1][0])
        down, up = np.minimum(after[0] - low, 0.0), np.maximum(after[1] - high, 0.0)
        room = ROOM * (self.at.stored.u * np.maximum(np.abs(low), np.abs(high)) + self.at.stored.tiny)
        far = self._limit(state, t, k, state.mid)
        before = None
        for j in range(MOST_WIDER):
            reach = WIDER**j
            least = np.minimum(low, np.maximum(low + reach * down, far[0])) - room * (down < 0)
            most = np.maximum(high, np.minimum(high + reach * up, far[1])) + room * (up > 0)
            box = _edged(least, most)
            if before is not None and np.array_equal(ends(box), ends(before)):
                break
            yield box
            before = box
            if (down >= 0).all() and (up <= 0).all():
                return
        for ahead in AHEAD:
            x = state.mid + ahead * (down + up)
            yield from self._round(hull(state, Ball.between(*self._limit(state, t, k, x))), t, k, room)

    def _round(self, limit: Ball, t: int, k: int, room: Array) -> Iterator[Ball]:
        """Boxes round one of where states settle; numbers that follow slow ones at once reach as far as these."""
        for wider in SPREADS if np.isfinite(limit.rad).all() else ():
            box = Ball(limit.mid, wider * limit.rad)
            for _ in range(FOLLOWING):
                own, after = ends(box), ends(list(self.turn(box, t, k))[-1][0])
                box = _edged(np.minimum(own[0], after[0] - room), np.maximum(own[1], after[1] + room))
                yield box

    def _limit(self, state: Ball, t: int, k: int, x: Array) -> tuple[Array, Array]:
        """About where a fixed point of a turn near x is, by Newton's method in floats, and what rounding adds up to.

        Infinite where there is none. Nothing here is trusted.
        """
        eye, nowhere = np.eye(self.net.size), np.full(self.net.size, np.inf)
        with np.errstate(all="ignore"):
            for _ in range(NEWTON):
                states, J = orbit(self.net, self.line.tokens(t, t + k), x), eye
                for i, y in enumerate(states[:-1]):
                    J = jacobian(self.net, self.line.at(t + i), y) @ J
                if not np.isfinite(J).all():
                    return -nowhere, nowhere
                x = x + np.linalg.pinv(eye - J) @ (states[-1] - x)
            own = np.abs(np.diagonal(J))
            spread = (NOISE * k * (self.at.stored.u + OWN) * np.abs(x) + state.rad) / (1 - own)
        is_known = np.isfinite(x) & (own < 1)
        return np.where(is_known, x - spread, -np.inf), np.where(is_known, x + spread, np.inf)


def _as_lists(box: Ball) -> dict[str, list[float]]:
    low, high = ends(box)
    return {"low": low.tolist(), "high": high.tolist()}


def _edged(least: Array, most: Array) -> Ball:
    """The box between, and a little more, as its ends are rounded."""
    own = (most - least) * EDGE
    return Ball.between(least - own, most + own)


def is_within(inner: Ball, outer: Ball) -> bool:
    """Whether each number's ball lies in another one.

    |m - n| + r <= R; where the midpoints are the same nothing is rounded, else both results are rounded to nearest.
    """
    apart = np.abs(inner.mid - outer.mid)
    above = np.nextafter(np.nextafter(apart, np.inf) + inner.rad, np.inf)
    reach = np.where(apart == 0, inner.rad, above)
    return bool((reach <= outer.rad).all() and np.isfinite(outer.rad).all())
