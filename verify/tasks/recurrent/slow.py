"""Orbits that creep: where a turn changes hardly anything, millions of turns are one polynomial in their number.

A forget gate of sigma(20), a sum that grows by 10^-9 a token, a rotation that is off by as much: what such a unit does
after 10^8 tokens no run shows in time. A segment of many turns is followed at once: polynomials P_r of the turn q with
f(P_r(q)) = P_(r+1)(q) are found by Newton's method, without trust, and `tubes` bounds how far the true states are from
them. The right class must win on the tube, which bisection in q shows, and where it does not, that is the first wrong
length. An orbit that has come so near a fixed point of a turn that its tube no longer grows is right for ever.

Where steps are rounded, the lemma of `tubes` holds with delta_r and what rounding may add over the box: a computed step
F has F(s_r) - P_(r+1) = J (s_r - P_r) + f(P_r) - P_(r+1) + (F - f)(s_r). A margin then has either sign for a while, and
what comes after is followed until it is surely wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from flint import arb, arb_mat, arb_poly, ctx

from verify.arithmetic.exact_reals import float_below
from verify.frame.clock import Deadline
from verify.tasks.recurrent.fitted import DIVERGED, SETTLED, Local, Segment, fit, identity, points
from verify.tasks.recurrent.network import Later, Network
from verify.tasks.recurrent.off import StepErrors
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
EITHER = "the margin after {} tokens may have either sign"
GUARD = 2.0**-44  # half the width of boxes beyond the polynomials
LEAST_TURNS = 32  # of a segment that is worth its polynomials
EVENLY = 2.0**40  # turns that are tried at most where a state grows evenly
WALKED = 32  # turns that are walked where no segment is found
MOST_WALKED = 256
MOST_BEYOND = 40  # segments after a margin that may have either sign
FURTHEST_BEYOND = 2  # times as many tokens, in which a tube that grows no faster than its states has told
WIDENINGS = 5  # of the boxes of a turn whose steps are rounded
WIDEST = 2.0**-8  # of the largest number of the state, half the width of a piece's boxes, beyond what `_guard` says
FINER = 16  # of the tokens so far a piece may have, in which a margin is said to have either sign
MOST_PIECES = 64  # of a segment, for a tube that grows
MOST_DOUBLINGS = 1000  # of a tube in a piece: float64 holds no more
REACHED = 1.5  # the limit's tube is so much wider than where the orbit enters it
LARGER, GROWTHS = 1.1, 12  # of that tube until it is kept
NEWTON = 24
APPROACHES = (512, 2048, 8192)
NARROW = 2.0**-100  # balls, when the first segment starts
FIRST_TURNS, FIRST_STEPS = 12, 200  # until eigenvalues are looked at
MOST_FAST = 6000  # steps for what dies out, before the first segment


class Coarse(Exception):
    """A piece is so long that its tube at the end says nothing of an answer at its start."""


@dataclass
class Creeping:
    """The state after t tokens is x + X y with |y| <= e; `found` is what is known of the tokens before.

    After `unsure` tokens a margin may have either sign, as rounding may have it.
    """

    net: Network
    line: JudgedTokens
    k: int
    found: Followed
    t: int
    x: Vector
    basis: Eigenvectors
    e: list[arb]
    errors: StepErrors
    on: Digits = field(init=False)
    unsure: int | None = None

    def __post_init__(self) -> None:
        self.on = Digits(self.net)
        self.token = self.line.at(self.t)
        self.phase = self.t
        net = self.net
        self.V, self.b = self.on.exactly[id(net.V), id(net.b)]

    def changed(self, net: Network) -> Creeping:
        """The same state, from which another evaluation of the network goes on."""
        errors = replace(self.errors, net=net)
        here = Creeping(net, self.line, self.k, self.found, self.t, self.x, self.basis, self.e, errors)
        here.unsure = self.unsure
        return here

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
        turn = self._walked(states, off)
        constants = [[arb_poly([y]) for y in state] for state in states[:-1]]
        is_right = self._judge(Segment(constants, 1), turn, self.e, 0, 0, until)
        self.x, self.e, self.t = states[-1], turn.after(self.e), self.t + self.k
        return is_right

    def _walked(self, states: Sequence[Vector], off: Sequence[Vector]) -> Turn:
        """The lemma for one turn.

        Raises: Lost where a state may leave the boxes, however wide they are.
        """
        guard = self._guard(1)
        for attempt in range(WIDENINGS):
            boxes = [[y + arb(0, guard) for y in state] for state in states[:-1]]
            J = [derivatives(self.net, box, self.token)[0] for box in boxes]
            turn = Turn.of(self.basis, J, self._off(off, boxes))
            try:
                self._check_within(turn, self.e, guard)
                return turn
            except Lost:
                if self.errors.on is None or attempt == WIDENINGS - 1:
                    raise
                guard = 4 * guard
        raise Lost

    def _check_within(self, turn: Turn, e: Vector, guard: arb) -> None:
        """Raises: Lost where a state may lie outside the boxes."""
        for r in range(self.k):
            if not all(y <= guard for y in turn.within(r, e)):
                raise Lost

    def _share(self, turn: Turn, e: Vector, guard: arb) -> float:
        """How far states may be from the polynomials, as a share of half the width of the boxes."""
        return max(float(y / guard) for r in range(self.k) for y in turn.within(r, e))

    def _guard(self, turns: int) -> arb:
        """Half the width of boxes beyond the polynomials, about twice what rounding may add up to in so many turns."""
        if self.errors.on is None:
            return arb(GUARD)
        around, X = [y + arb(0, GUARD) for y in self.x], largest(self.basis.X)
        added = applied(X, self.basis.coordinates(self.errors.of_step(around, self.token)))
        own = zip(applied(X, self.e), added, strict=True)
        return (GUARD + 2 * max((x + self.k * turns * y for x, y in own), key=float)).upper()

    def _off(self, off: Sequence[Vector], boxes: Sequence[Vector]) -> list[list[arb]]:
        """What is missed, and what rounding adds at any state of each box.

        Raises: Lost where a number may overflow.
        """
        found = [_sum(y, self.errors.of_step(box, self.token)) for y, box in zip(off, boxes, strict=True)]
        if not all(y.is_finite() for row in found for y in row):
            raise Lost
        return found

    # ---- many turns

    def segment(self, local: Local, turns: int, until: Deadline) -> Segment | None:
        """A segment of about so many turns, or fewer; None where it is not worth it."""
        turns = turns or self._guess()
        while turns >= LEAST_TURNS and not until.is_up():
            found = fit(self.net, self.token, self.x, local, self.basis, turns, until)
            if found is not None:
                off = [y - p(arb(-1)) for y, p in zip(self.x, found.P[0], strict=True)]
                missed = self.basis.coordinates(off)
                if max(missed) < max(DEAD, self.errors.least):
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

    def follow(self, segment: Segment, local: Local, until: Deadline) -> int | None:
        """Goes along a segment as far as its tube is narrow; how many turns, None where an answer is not right."""
        done, size = 0, segment.turns
        start = self.t
        growth, wider = float(np.log2(max(1.0, np.abs(local.rates).max()))), 1.0
        while done < segment.turns and not until.is_up():
            size = min(size, segment.turns - done)
            try:
                guard = self._guard(size) * wider
                turn = self._turn(segment, done, done + size, guard)
                now, most = turn.power(self.e, size)
                share = self._share(turn, most, guard)
                if (
                    share > 1
                    and self.errors.on is not None
                    and share * guard < WIDEST * max(map(abs, self.x), key=float)
                ):
                    wider *= 2 * share
                    continue
                self._check_within(turn, most, guard)
                least = max(float(y + size * a) for y, a in zip(self.e, turn.added, strict=True))
                doublings = min(2 * size / segment.turns + growth * size, MOST_DOUBLINGS)
                is_steady = max(float(y) for y in now) <= least * 2**doublings
                if not is_steady and size > segment.turns // MOST_PIECES:
                    raise Lost
            except Lost:
                if size == 1 or until.is_up():
                    break
                size, wider = size // 2, 1.0
                continue
            self.t = start + self.k * done
            try:
                if not self._judge(segment, turn, most, done, done + size - 1, until):
                    return None
            except Coarse:
                size //= 2
                continue
            done, self.e = done + size, now
            size *= 2
        self.t = start + self.k * done
        at = [p(arb(-1) + segment.step * done) for p in segment.P[0]]
        self.x = [y.mid() for y in at]
        self.e = _sum(self.e, self.basis.coordinates([arb(0, y.rad()) for y in at]))
        return done

    def _turn(self, segment: Segment, first: int, last: int, guard: arb) -> Turn:
        """The lemma for all turns from `first` to `last`."""
        at = arb(-1) + segment.step * arb(first + last) / 2
        scale = segment.step * arb(last - first) / 2
        P = [[shifted(p, at, scale) for p in state] for state in segment.P]
        P.append([shifted(p, at + segment.step, scale) for p in segment.P[0]])
        J, delta = [], []
        boxes = [[over(p) + arb(0, guard) for p in before] for before in P[:-1]]
        for box, before, after in zip(boxes, P[:-1], P[1:], strict=True):
            matrix, signs = derivatives(self.net, box, self.token)
            J.append(matrix)
            delta.append(off_step(self.net, before, after, self.token, signs, TERMS))
        return Turn.of(self.basis, J, self._off(delta, boxes))

    def _judge(self, segment: Segment, turn: Turn, e: Vector, first: int, last: int, until: Deadline) -> bool:
        """Whether all answers of turns `first` to `last` are right; `found` says more.

        Raises: Lost where time is up.
        """
        gaps = [self._gaps_of(segment, r, turn.within(r, e), first, last) for r in range(self.k)]
        if self.unsure is not None:
            return self._judge_on(gaps, segment, self.t - self.k * first, first, last)
        wrong = self._searched(gaps, segment, first, last, Bisection(segment.step, until))
        if wrong.first is not None:
            self._check_fine(gaps, segment, wrong.first, self.k * (last - first))
            # what comes later does not count
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
        if self.found.stuck is None or self.errors.on is None:
            return False
        self.unsure = t
        return self._judge_on(gaps, segment, start, j, last)

    def _check_fine(
        self, gaps: Sequence[Sequence[tuple[Gap, int]]], segment: Segment, place: tuple[int, int], steps: int
    ) -> None:
        """Raises: Coarse where a margin of a long piece has either sign, so that the tube of a shorter one may tell."""
        if self.errors.on is None or steps <= self.t // FINER:
            return
        j, r = place
        if bounds([(gap(arb(-1) + segment.step * j), other) for gap, other in gaps[r]])[1] > 0:
            raise Coarse

    def _judge_on(
        self, gaps: Sequence[Sequence[tuple[Gap, int]]], segment: Segment, start: int, first: int, last: int
    ) -> bool:
        """Whether no answer of turns `first` to `last` was found that is surely wrong, an earlier one being unsure.

        Only the last turn is asked, and then those before it, as what creeps away from a right answer goes on so.
        """
        best = None
        for r, of_step in enumerate(gaps):
            high, low = last, first
            found = bounds([(gap(arb(-1) + segment.step * high), other) for gap, other in of_step])
            if not found[1] <= 0:
                continue
            while high > low:
                middle = (low + high) // 2
                there = bounds([(gap(arb(-1) + segment.step * middle), other) for gap, other in of_step])
                low, high, found = (low, middle, there) if there[1] <= 0 else (middle + 1, high, found)
            if best is None or (high, r) < best[0]:
                best = (high, r), found
        if best is None:
            return True
        (j, r), (_, below, other) = best
        self.found.wrong_at, self.found.wrong_by, self.found.predicted = start + self.k * j + r, below, other
        self.found.stuck = None
        return False

    @staticmethod
    def _searched(
        gaps: Sequence[Sequence[tuple[Gap, int]]], segment: Segment, first: int, last: int, found: Bisection
    ) -> Bisection:
        for r, of_step in enumerate(gaps):
            for gap, _ in of_step:
                found.search(gap, r, first, last)
        return found

    def _gaps(self, P: Polynomials, off: Vector, right: int, box: Vector) -> list[tuple[Gap, int]]:
        """(right logit) - (each other) as polynomials, and how far they may be off at states that the box holds."""
        read, V, b = self.net.read, self.V.tolist(), self.b
        found, rounding = [], self.errors.of_logits(box[read])
        for j in range(len(b)):
            if j != right:
                d = [u - v for u, v in zip(V[right], V[j], strict=True)]
                p = sum((c * q for c, q in zip(d, P[read], strict=True)), arb_poly([b[right] - b[j]]))
                error = sum((abs(c) * y for c, y in zip(d, off[read], strict=True)), rounding[right] + rounding[j])
                found.append((Gap(p, arb(0, error.upper())), j))
        return found

    def _gaps_of(self, segment: Segment, r: int, off: Vector, first: int, last: int) -> list[tuple[Gap, int]]:
        """Those r steps after the starts of turns `first` to `last`."""
        at, scale = arb(-1) + segment.step * arb(first + last) / 2, segment.step * arb(last - first) / 2
        box = [over(shifted(p, at, scale)) + arb(0, y) for p, y in zip(segment.P[r], off, strict=True)]
        return self._gaps(segment.P[r], off, self.line.expected(self.phase + r), box)

    # ---- for ever

    def is_kept(self, until: Deadline) -> bool:
        """Whether a tube round a fixed point of the turn is mapped into itself, holds the state, and is right."""
        centre = self._fixed(until)
        if centre is None:
            return False
        states, off = points(self.net, self.token, self.k, centre)
        if self.unsure is not None:
            return False
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
        turn = Turn.of(basis, J, self._off(off, states[:-1]))
        if self.errors.on is not None:
            E = [y.max(self._settled(turn, i)) for i, y in enumerate(E)]
        for _ in range(GROWTHS):
            if until.is_up():
                return None
            sides = [[REACHED * y + DEAD for y in turn.within(r, E)] for r in range(self.k)]
            boxes = [
                [y + arb(0, s) for y, s in zip(*pair, strict=True)] for pair in zip(states[:-1], sides, strict=True)
            ]
            J = [derivatives(self.net, box, self.token)[0] for box in boxes]
            turn = Turn.of(basis, J, self._off(off, boxes))
            after = turn.after(E)
            holds = all(y <= s for r in range(self.k) for y, s in zip(turn.within(r, E), sides[r], strict=True))
            if holds and all(y.max(z) <= limit for y, z, limit in zip(after, e, E, strict=True)):
                return turn, E
            if not max(float(y) for y in after) < DIVERGED:
                return None
            E = [y.max(LARGER * z).upper() for y, z in zip(E, after, strict=True)]
        return None

    @staticmethod
    def _settled(turn: Turn, i: int) -> arb:
        """About how wide the tube gets in a coordinate where each turn adds to it."""
        rest = 1 - turn.B[i, i]
        return (REACHED * turn.added[i] / rest).upper() if rest > 0 else arb(0)

    def _is_right(self, states: Sequence[Vector], turn: Turn, E: Vector) -> bool:
        constants = Segment([[arb_poly([y]) for y in state] for state in states[:-1]], 1)
        low = [
            (float_below(gap(arb(0))), self.t + r)
            for r in range(self.k)
            for gap, _ in self._gaps_of(constants, r, turn.within(r, E), 0, 0)
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


def creep(
    net: Network,
    line: JudgedTokens,
    k: int,
    start: int,
    steps: int | None,
    until: Deadline,
    errors: StepErrors | None = None,
    later: Later | None = None,
) -> Followed | None:
    """Follows an orbit whose turns of k steps change little; None where it does not creep. Without `errors`, arithmetic
    is real.

    From `start` tokens on, answers repeat with the turns. `entered` is set where the orbit is right for ever.
    """
    here = approach(net, line, k, start, steps, until, errors or StepErrors(net))
    if here is None:
        return None
    if isinstance(here, Followed):
        return up_to(steps, here)
    found = here.found
    found.bits, found.turn = None, k
    with ctx.workprec(BITS):
        try:
            go_on(here, steps if later is None else later.after, until)
            if later is not None and found.wrong_at is None:
                here = here.changed(later.net)
                go_on(here, steps, until)
        except Lost:
            why = "time is up" if until.is_up() else "its tube grows too wide"
            found.stuck = f"{why} after {here.t - 1} tokens"
    if here.unsure is not None and found.wrong_at is None:
        found.stuck = EITHER.format(here.unsure)
    return up_to(steps, found)


def up_to(steps: int | None, found: Followed) -> Followed:
    """What is known of the first tokens alone; what comes later is not asked."""
    if steps is not None and found.right_to >= steps:
        found.right_to, found.wrong_at, found.stuck = steps, None, None
        found.tightest = min(found.tightest, steps)
    elif steps is not None and found.wrong_at is not None and found.wrong_at > steps:
        found.wrong_at, found.stuck = None, EITHER.format(found.right_to + 1)
    return found


@dataclass
class Approach:
    """The line in balls, token by token."""

    net: Network
    line: JudgedTokens
    found: Followed
    state: Vector
    errors: StepErrors
    t: int = 0

    def go(self, goal: int, until: Deadline) -> bool:
        """On to so many tokens; whether it is right, in time and known well."""
        on = Digits(self.net)
        while self.t < goal:
            if until.is_up():
                return False
            token, right = self.line.at(self.t), self.line.expected(self.t + 1)
            off = self.errors.of_step(self.state, token)
            self.state = [y + arb(0, e) for y, e in zip(stepped(self.net, self.state, token, on), off, strict=True)]
            self.t += 1
            rounding = self.errors.of_logits(self.state[self.net.read])
            gaps = on.gaps(self.state[self.net.read], right)
            gaps = [(y + arb(0, rounding[right] + rounding[j]), j) for y, j in gaps]
            is_narrow = self.errors.on is not None or max(y.rad() for y in self.state) < NARROW
            if not self.found.take(self.t, *bounds(gaps)) or not is_narrow:
                return False
        return True


def approach(
    net: Network, line: JudgedTokens, k: int, start: int, steps: int | None, until: Deadline, errors: StepErrors
) -> Creeping | Followed | None:
    """Until what dies out fast is dead; None where balls grow, and what is known where an answer is wrong."""
    if errors.on is not None:
        return approach_rounded(net, line, k, start, steps, until, errors)
    first = start + max(FIRST_TURNS * k, FIRST_STEPS)
    for bits in APPROACHES:
        with ctx.workprec(bits):
            here = Approach(net, line, Followed(bits), [arb(0)] * net.size, errors)
            is_well = here.go(first, until)
            if here.found.wrong_at is not None:
                return here.found
            if not is_well:
                continue
            x = [y.mid() for y in here.state]
            local = Local.of(net, line.at(here.t), points(net, line.at(here.t), k, x)[0][:-1])
            goal = first + k * _dying(local, k, DEAD)
            if steps is not None and goal + 2 * k > steps:
                return None
            if here.go(goal, until):
                basis = Eigenvectors.of(local.X)
                e = basis.coordinates([arb(0, y.rad()) for y in here.state])
                return Creeping(net, line, k, here.found, here.t, [y.mid() for y in here.state], basis, e, errors)
            if here.found.wrong_at is not None:
                return here.found
    return None


def _dying(local: Local, k: int, dead: float) -> int:
    """After how many turns what dies out fast is dead."""
    sizes = [abs(rate) for rate in local.rates if 0 < abs(rate) < 1]
    turns = [int(np.log(dead / 1024) / np.log(size)) + 1 for size in sizes]
    return max((n for n in turns if n * k <= MOST_FAST), default=0)


def approach_rounded(
    net: Network, line: JudgedTokens, k: int, start: int, steps: int | None, until: Deadline, errors: StepErrors
) -> Creeping | Followed | None:
    """The same where steps are rounded: turn by turn in tubes, as soon as answers repeat."""
    if steps is not None and start + k + 1 > steps:  # no answer is due beyond a line's end
        return None
    with ctx.workprec(BITS):
        here = Approach(net, line, Followed(BITS), [arb(0)] * net.size, errors)
        if not here.go(start + 1, until):
            return here.found
        x, off = [y.mid() for y in here.state], [arb(0, y.rad()) for y in here.state]
        basis = Eigenvectors.of(Local.of(net, line.at(here.t), points(net, line.at(here.t), k, x)[0][:-1]).X)
        found = Creeping(net, line, k, here.found, here.t, x, basis, basis.coordinates(off), errors)
        try:
            walked = _walked(found, WALKED, steps, until)
            return walked or _walked(found, _dying(found.turned(), k, errors.least), steps, until) or found
        except Lost:
            found.found.stuck = f"its tube grows too wide after {found.t - 1} tokens"
            return found.found


def _walked(here: Creeping, turns: int, steps: int | None, until: Deadline) -> Followed | None:
    """So many turns as they are; what is known, where that is all there is to know.

    Raises: Lost where a state may leave the boxes.
    """
    for n in range(turns):
        if n % WALKED == 0:
            here.turned()
            if n and steps is None and here.is_kept(until):
                return here.found
        if until.is_up():
            here.found.stuck = here.found.stuck or f"time is up after {here.t - 1} tokens"
            return here.found
        if not here.walk(until):
            return here.found
        if steps is not None and here.t > steps:
            return here.found
    return None


def go_on(here: Creeping, steps: int | None, until: Deadline) -> None:
    """Segment by segment, until an answer is wrong, it is right for ever, or so many steps, or nothing helps."""
    turns, walked, beyond = 0, 0, 0
    while steps is None or here.t <= steps:
        beyond += here.unsure is not None
        is_far = here.unsure is not None and here.t > FURTHEST_BEYOND * (here.unsure + FIRST_STEPS)
        if until.is_up() or walked > MOST_WALKED or beyond > MOST_BEYOND or is_far:
            why = "time is up" if walked <= MOST_WALKED else "no polynomial follows its turns"
            here.found.stuck = f"{why} after {here.t - 1} tokens"
            return
        if here.errors.on is not None and any(abs(y) > DIVERGED for y in here.x):
            here.found.stuck = f"its states grow too large after {here.t - 1} tokens"
            return
        local = here.turned()
        if steps is None and here.is_kept(until):
            return
        segment = here.segment(local, turns, until)
        done = 0 if segment is None else here.follow(segment, local, until)
        if done is None:
            return
        turns, walked = 2 * done, 0 if done >= LEAST_TURNS else walked + WALKED
        for _ in range(WALKED if done < LEAST_TURNS else 0):
            if until.is_up():
                break
            if not here.walk(until):
                return
