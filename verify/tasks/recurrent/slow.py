"""Orbits that creep: where a turn changes hardly anything, millions of turns are one polynomial in their number.

A forget gate of sigma(20), a sum that grows by 10^-9 a token, a rotation that is off by as much: what such a unit does
after 10^8 tokens no run shows in time. A segment of many turns is followed at once: polynomials P_r of the turn q with
f(P_r(q)) = P_(r+1)(q) are found by Newton's method, without trust, and `tubes` bounds how far the true states are from
them. The right class must win on the tube, which bisection in q shows, and where it does not, that is the first wrong
length. An orbit that has come so near a fixed point of a turn that its tube no longer grows is right for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from flint import arb, arb_mat, arb_poly, ctx

from verify.arithmetic.exact_reals import float_below
from verify.frame.clock import Deadline
from verify.tasks.recurrent.fitted import DIVERGED, SETTLED, Local, Segment, fit, identity, points
from verify.tasks.recurrent.network import Network
from verify.tasks.recurrent.precise import Digits, Followed, JudgedTokens, Vector, bounds
from verify.tasks.recurrent.tubes import (
    Bisection,
    Eigenvectors,
    Gap,
    Lost,
    Polynomials,
    Turn,
    applied,
    derivatives,
    largest,
    off_step,
    over,
    shifted,
    stepped,
)

BITS = 256
TERMS = 66  # of a step's series when it is checked
DEAD = 2.0**-70  # coordinates that a segment does not follow are at most this
GUARD = 2.0**-44  # half the width of boxes beyond the polynomials
LEAST_TURNS = 32  # of a segment that is worth its polynomials
EVENLY = 2.0**40  # turns that are tried at most where a state grows evenly
WALKED = 32  # turns that are walked where no segment is found
MOST_WALKED = 256
MOST_PIECES = 64  # of a segment, for a tube that grows
REACHED = 1.5  # the limit's tube is so much wider than where the orbit enters it
LARGER, GROWTHS = 1.1, 12  # of that tube until it is kept
NEWTON = 24
APPROACHES = (512, 2048, 8192)
NARROW = 2.0**-100  # balls, when the first segment starts
FIRST_TURNS, FIRST_STEPS = 12, 200  # until eigenvalues are looked at
MOST_FAST = 6000  # steps for what dies out, before the first segment


@dataclass
class Creeping:
    """The state after t tokens is x + X y with |y| <= e; `found` is what is known of the tokens before."""

    net: Network
    line: JudgedTokens
    k: int
    found: Followed
    t: int
    x: Vector
    basis: Eigenvectors
    e: list[arb]
    on: Digits = field(init=False)

    def __post_init__(self) -> None:
        self.on = Digits(self.net)
        self.token = self.line.at(self.t)
        self.phase = self.t
        net = self.net
        self.V, self.b = self.on.exactly[id(net.V), id(net.b)]

    def turned(self) -> Local:
        """Takes the eigenvectors at the state as the basis."""
        local = Local.of(self.net, self.token, points(self.net, self.token, self.k, self.x)[0][:-1])
        basis = Eigenvectors.of(local.X)
        self.e = applied(largest(basis.inverse * self.basis.X), self.e)
        self.basis = basis
        return local

    # ---- one turn as it is

    def walk(self, until: Deadline) -> bool:
        """One turn, step by step; whether to go on."""
        states, off = points(self.net, self.token, self.k, self.x)
        boxes = [[y + arb(0, GUARD) for y in state] for state in states[:-1]]
        turn = Turn.of(self.basis, [derivatives(self.net, box, self.token)[0] for box in boxes], off)
        self._check_within(turn, self.e)
        constants = [[arb_poly([y]) for y in state] for state in states[:-1]]
        is_right = self._judge(Segment(constants, 1), turn, self.e, 0, 0, until)
        self.x, self.e, self.t = states[-1], turn.after(self.e), self.t + self.k
        return is_right

    def _check_within(self, turn: Turn, e: Vector) -> None:
        """Raises: Lost where a state may lie outside the boxes."""
        for r in range(self.k):
            if not all(y <= GUARD for y in turn.within(r, e)):
                raise Lost

    # ---- many turns

    def segment(self, local: Local, turns: int, until: Deadline) -> Segment | None:
        """A segment of about so many turns, or fewer; None where it is not worth it."""
        turns = turns or self._guess()
        while turns >= LEAST_TURNS and not until.is_up():
            found = fit(self.net, self.token, self.x, local, self.basis, turns, until)
            if found is not None:
                off = [y - p(arb(-1)) for y, p in zip(self.x, found.P[0], strict=True)]
                missed = self.basis.coordinates(off)
                if max(missed) < DEAD:
                    self.e = _sum(self.e, missed)
                    return found
            turns //= 2
        return None

    def _guess(self) -> int:
        """About so many turns until what changes has changed by 1, or its rate by as much as it is.

        Where the former takes few turns, the latter alone: a sum that grows evenly may be large.
        """
        states = [self.x]
        for _ in range(2):
            states.append(points(self.net, self.token, self.k, states[-1])[0][-1])
        speed = max(float(abs(b - a)) for a, b in zip(*states[:2], strict=True))
        change = max(float(abs(a - 2 * b + c)) for a, b, c in zip(*states, strict=True))
        far, evenly = 1 / max(speed, 2.0**-60), speed / max(change, speed * 2.0**-60, 2.0**-200)
        return int(min(far, evenly) if far >= LEAST_TURNS else min(evenly, EVENLY))

    def follow(self, segment: Segment, until: Deadline) -> int | None:
        """Goes along a segment as far as its tube is narrow; how many turns, None where an answer is not right."""
        done, size = 0, segment.turns
        start = self.t
        while done < segment.turns and not until.is_up():
            size = min(size, segment.turns - done)
            try:
                turn = self._turn(segment, done, done + size)
                now, most = turn.power(self.e, size)
                self._check_within(turn, most)
                least = max(float(y) for y in [*self.e, *(size * a for a in turn.added)])
                is_steady = max(float(y) for y in now) <= least * 2 ** (2 * size / segment.turns)
                if not is_steady and size > segment.turns // MOST_PIECES:
                    raise Lost
            except Lost:
                if size == 1 or until.is_up():
                    break
                size //= 2
                continue
            self.t = start + self.k * done
            if not self._judge(segment, turn, most, done, done + size - 1, until):
                return None
            done, self.e = done + size, now
            size *= 2
        self.t = start + self.k * done
        at = [p(arb(-1) + segment.step * done) for p in segment.P[0]]
        self.x = [y.mid() for y in at]
        self.e = _sum(self.e, self.basis.coordinates([arb(0, y.rad()) for y in at]))
        return done

    def _turn(self, segment: Segment, first: int, last: int) -> Turn:
        """The lemma for all turns from `first` to `last`."""
        at = arb(-1) + segment.step * arb(first + last) / 2
        scale = segment.step * arb(last - first) / 2
        P = [[shifted(p, at, scale) for p in state] for state in segment.P]
        P.append([shifted(p, at + segment.step, scale) for p in segment.P[0]])
        J, delta = [], []
        for before, after in zip(P[:-1], P[1:], strict=True):
            box = [over(p) + arb(0, GUARD) for p in before]
            matrix, signs = derivatives(self.net, box, self.token)
            J.append(matrix)
            delta.append(off_step(self.net, before, after, self.token, signs, TERMS))
        return Turn.of(self.basis, J, delta)

    def _judge(self, segment: Segment, turn: Turn, e: Vector, first: int, last: int, until: Deadline) -> bool:
        """Whether all answers of turns `first` to `last` are right; `found` says more.

        Raises: Lost where time is up.
        """
        gaps = [self._gaps(segment.P[r], turn.within(r, e), self.line.expected(self.phase + r)) for r in range(self.k)]
        wrong = self._searched(gaps, segment, first, last, Bisection(segment.step, until))
        if wrong.first is not None:  # what comes later does not count
            wrong = self._searched(gaps, segment, first, wrong.first[0], Bisection(segment.step, until, wrong.first))
        start = self.t - self.k * first
        if wrong.least < self.found.margin:
            self.found.margin, self.found.tightest = wrong.least, start + self.k * wrong.tightest[0] + wrong.tightest[1]
        if wrong.first is None:
            self.found.right_to = self.t + self.k * (last - first + 1) - 1
            return True
        j, r = wrong.first
        t = start + self.k * j + r
        self.found.right_to = t - 1
        low, high, other = bounds([(gap(arb(-1) + segment.step * j), other) for gap, other in gaps[r]])
        self.found.take(t, min(low, 0.0), high, other)
        return False

    @staticmethod
    def _searched(
        gaps: Sequence[Sequence[tuple[Gap, int]]],
        segment: Segment,
        first: int,
        last: int,
        found: Bisection,
    ) -> Bisection:
        for r, of_step in enumerate(gaps):
            for gap, _ in of_step:
                found.search(gap, r, first, last)
        return found

    def _gaps(self, P: Polynomials, off: Vector, right: int) -> list[tuple[Gap, int]]:
        """(right logit) - (each other) as polynomials, and how far they may be off."""
        read, V, b = self.net.read, self.V.tolist(), self.b
        found = []
        for j in range(len(b)):
            if j != right:
                d = [u - v for u, v in zip(V[right], V[j], strict=True)]
                p = sum((c * q for c, q in zip(d, P[read], strict=True)), arb_poly([b[right] - b[j]]))
                error = sum((abs(c) * y for c, y in zip(d, off[read], strict=True)), arb(0)).upper()
                found.append((Gap(p, arb(0, error)), j))
        return found

    # ---- for ever

    def is_kept(self, until: Deadline) -> bool:
        """Whether a tube round a fixed point of the turn is mapped into itself, holds the state, and is right."""
        centre = self._fixed(until)
        if centre is None:
            return False
        states, off = points(self.net, self.token, self.k, centre)
        missed = [abs(a - b) for a, b in zip(states[-1], centre, strict=True)]
        off[-1] = _sum(off[-1], missed)  # P_k is P_0
        try:
            basis = Eigenvectors.of(Local.of(self.net, self.token, states[:-1]).X)
            own = applied(largest(basis.inverse * self.basis.X), self.e)
            e = _sum(basis.coordinates([a - b for a, b in zip(self.x, centre, strict=True)]), own)
            turn = self._kept(basis, states, off, e, until)
        except Lost:
            return False
        return turn is not None and self._is_right(states, *turn)

    def _fixed(self, until: Deadline) -> Vector | None:
        """Newton's fixed point of a turn near the state, which is not trusted."""
        x, eye = self.x, identity(self.net.size)
        for _ in range(NEWTON):
            if until.is_up():
                return None
            states, _ = points(self.net, self.token, self.k, x)
            try:
                J = eye
                for state in states[:-1]:
                    J = (derivatives(self.net, state, self.token)[0] * J).mid()
                change = (eye - J).solve(arb_mat([[b - a] for a, b in zip(x, states[-1], strict=True)])).mid().entries()
            except (Lost, ZeroDivisionError):
                return None
            size = max(float(abs(c)) for c in change)
            if not size < DIVERGED:
                return None
            x = [(a + c).mid() for a, c in zip(x, change, strict=True)]
            if size < SETTLED:
                return x
        return None

    def _kept(
        self, basis: Eigenvectors, states: Sequence[Vector], off: Sequence[Vector], e: Vector, until: Deadline
    ) -> tuple[Turn, Vector] | None:
        """A tube with B E + added <= E that holds e.

        Raises: Lost where a ReLU may be either on it.
        """
        E = [REACHED * y + DEAD for y in e]  # e is within it, and it only grows
        J = [derivatives(self.net, state, self.token)[0] for state in states[:-1]]
        turn = Turn.of(basis, J, off)
        for _ in range(GROWTHS):
            if until.is_up():
                return None
            sides = [[REACHED * y + DEAD for y in turn.within(r, E)] for r in range(self.k)]
            boxes = [
                [y + arb(0, s) for y, s in zip(*pair, strict=True)] for pair in zip(states[:-1], sides, strict=True)
            ]
            turn = Turn.of(basis, [derivatives(self.net, box, self.token)[0] for box in boxes], off)
            after = turn.after(E)
            holds = all(y <= s for r in range(self.k) for y, s in zip(turn.within(r, E), sides[r], strict=True))
            if holds and all(y.max(z) <= limit for y, z, limit in zip(after, e, E, strict=True)):
                return turn, E
            if not max(float(y) for y in after) < DIVERGED:
                return None
            E = [y.max(LARGER * z).upper() for y, z in zip(E, after, strict=True)]
        return None

    def _is_right(self, states: Sequence[Vector], turn: Turn, E: Vector) -> bool:
        constants = [[arb_poly([y]) for y in state] for state in states[:-1]]
        low = [
            (float_below(gap(arb(0))), self.t + r)
            for r in range(self.k)
            for gap, _ in self._gaps(constants[r], turn.within(r, E), self.line.expected(self.phase + r))
        ]
        least, at = min(low, default=(float("inf"), self.t))
        if not least > 0:
            return False
        if least < self.found.margin:
            self.found.margin, self.found.tightest = least, at
        self.found.entered = self.t
        return True


def _sum(x: Vector, y: Vector) -> list[arb]:
    return [(a + b).upper() for a, b in zip(x, y, strict=True)]


# ---- the whole orbit


def creep(net: Network, line: JudgedTokens, k: int, start: int, steps: int | None, until: Deadline) -> Followed | None:
    """Follows an orbit in real arithmetic whose turns of k steps change little; None where it does not creep.

    From `start` tokens on, answers repeat with the turns. `entered` is set where the orbit is right for ever.
    """
    here = approach(net, line, k, start, steps, until)
    if here is None or isinstance(here, Followed):
        return here
    found = here.found
    found.bits, found.turn = None, k
    with ctx.workprec(BITS):
        try:
            go_on(here, steps, until)
        except Lost:
            why = "time is up" if until.is_up() else "its tube grows too wide"
            found.stuck = f"{why} after {here.t - 1} tokens"
    if steps is not None and (found.wrong_at or found.right_to) > steps:
        found.right_to, found.wrong_at, found.stuck = steps, None, None
        found.tightest = min(found.tightest, steps)
    return found


@dataclass
class Approach:
    """The line in balls, token by token."""

    net: Network
    line: JudgedTokens
    found: Followed
    state: Vector
    t: int = 0

    def go(self, goal: int, until: Deadline) -> bool:
        """On to so many tokens; whether it is right, in time and known well."""
        on = Digits(self.net)
        while self.t < goal:
            if until.is_up():
                return False
            self.state = stepped(self.net, self.state, self.line.at(self.t), on)
            self.t += 1
            gaps = on.gaps(self.state[self.net.read], self.line.expected(self.t))
            if not self.found.take(self.t, *bounds(gaps)) or not max(y.rad() for y in self.state) < NARROW:
                return False
        return True


def approach(
    net: Network, line: JudgedTokens, k: int, start: int, steps: int | None, until: Deadline
) -> Creeping | Followed | None:
    """Until what dies out fast is dead; None where balls grow, and what is known where an answer is wrong."""
    first = start + max(FIRST_TURNS * k, FIRST_STEPS)
    for bits in APPROACHES:
        with ctx.workprec(bits):
            here = Approach(net, line, Followed(bits), [arb(0)] * net.size)
            is_well = here.go(first, until)
            if here.found.wrong_at is not None:
                return here.found
            if not is_well:
                continue
            x = [y.mid() for y in here.state]
            local = Local.of(net, line.at(here.t), points(net, line.at(here.t), k, x)[0][:-1])
            sizes = [abs(rate) for rate in local.rates if 0 < abs(rate) < 1]
            turns = [int(np.log(DEAD / 1024) / np.log(size)) + 1 for size in sizes]
            goal = first + k * max((n for n in turns if n * k <= MOST_FAST), default=0)
            if steps is not None and goal + 2 * k > steps:
                return None
            if here.go(goal, until):
                basis = Eigenvectors.of(local.X)
                e = basis.coordinates([arb(0, y.rad()) for y in here.state])
                return Creeping(net, line, k, here.found, here.t, [y.mid() for y in here.state], basis, e)
            if here.found.wrong_at is not None:
                return here.found
    return None


def go_on(here: Creeping, steps: int | None, until: Deadline) -> None:
    """Segment by segment, until an answer is wrong, it is right for ever, or so many steps, or nothing helps."""
    turns, walked = 0, 0
    while steps is None or here.found.right_to < steps:
        if until.is_up() or walked > MOST_WALKED:
            why = "time is up" if walked <= MOST_WALKED else "no polynomial follows its turns"
            here.found.stuck = f"{why} after {here.t - 1} tokens"
            return
        local = here.turned()
        if steps is None and here.is_kept(until):
            return
        segment = here.segment(local, turns, until)
        done = 0 if segment is None else here.follow(segment, until)
        if done is None:
            return
        turns, walked = 2 * done, 0 if done >= LEAST_TURNS else walked + WALKED
        for _ in range(WALKED if done < LEAST_TURNS else 0):
            if until.is_up():
                break
            if not here.walk(until):
                return
