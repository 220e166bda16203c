"""Decides one orbit of a network, from the state 0 along given tokens: right at every length, or first wrong where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from verify.arithmetic.margins import margins_of
from verify.arithmetic.slack import Array
from verify.frame.clock import Budget, Deadline
from verify.tasks.recurrent.chain import EllipsoidMargins, Ellipsoids, Rules, excess, margins
from verify.tasks.recurrent.network import Later, Network, orbit
from verify.tasks.recurrent.off import StepErrors
from verify.tasks.recurrent.precise import Followed, follow
from verify.tasks.recurrent.search import (
    Cycle,
    along,
    along_cycle,
    enlarged,
    find_cycle,
    find_turn,
    round_cycle,
    spectral_rate,
)
from verify.tasks.recurrent.slow import creep

FIRST_LOOK = 1000  # steps after which a cycle is looked for, and at least so many turns of the modulus
TURNS = 60
LONG = 4000  # steps, beyond which many turns are followed at once where that is possible
LONGEST_LOOK = 200_000
NUMBERS_AT_A_TIME = 1 << 19  # of the matrices of a chunk: 4 MiB, and a look at the clock every 128 steps of 64 units
CHUNKS = (64, 512)  # steps of a walk between two looks at the clock, where results are rounded and where not
RATES = (0.5, 0.25, 0.75, 0.1, 0.9)  # between the cycle's own rate and 1; wide networks are tried with all
GROWTHS_REAL = (1 + 2.0**-13, 1 + 2.0**-18, 1 + 2.0**-8)
GROWTHS_ROUNDED = (1.3, 1.0, 1.05, 2.0, 4.0)
GROWTHS_FINE = (1.3, 1 + 2.0**-8, 1 + 2.0**-13, *GROWTHS_ROUNDED[1:])  # where little is rounded
FINE = 24  # bits
MOST_DOUBLINGS = 60
BEYOND = 2  # times as far as where a float64 run is first wrong: its rounding may have brought that about too early
ARGUMENT_FOR_EVER = "a cycle, ellipsoids round it that each step maps into the next, and the steps until it is entered"
WIDE = 64  # numbers of a state, from which on all rings are made before the first is entered
SHORT = 128  # tokens, which even a wide network is followed for in a tenth of a second
LATEST_ENTRY = 16_000  # steps, until ellipsoids are entered that a certificate shows
PATIENCE = 12  # turns of the cycle for which entering it is tried again

Expected = Callable[[int], int]  # the right class after so many tokens


@dataclass(frozen=True)
class OrbitQuestion:
    """What is to be decided of one orbit: some leading tokens and then one for ever, and the right class after each t.

    Beyond `settled` tokens, answers repeat with the period.
    """

    leading: tuple[int, ...]
    token: int
    expected: Expected
    period: int = 1
    settled: int = 0

    def at(self, t: int) -> int:
        """The token that is read after t tokens."""
        return self.leading[t] if t < len(self.leading) else self.token

    def tokens(self, start: int, stop: int) -> list[int]:
        return [self.at(t) for t in range(start, stop)]

    def repeating(self) -> OrbitQuestion:
        """The same, where answers are known up to a length of at least a turn after `settled` tokens."""
        first = self.settled + 1
        return replace(self, expected=lambda t: self.expected(t if t < first else first + (t - first) % self.period))


@dataclass(frozen=True)
class Invariant:
    """Ellipsoids round a cycle that the orbit has entered after `entry` steps, in the ellipsoid `place`."""

    ellipsoids: Ellipsoids
    entry: int
    place: int
    rate: float  # the largest left-hand side of the lemma
    margin: float


@dataclass(frozen=True)
class OrbitOutcome:
    """What is known of one orbit: right up to `right_to` tokens, all of them (None), and first wrong after `wrong_at`.

    `margin` is a lower bound up to there, `tightest` where; `wrong_by` an upper bound on the margin where it is wrong.
    """

    right_to: int | None
    margin: float
    tightest: int
    wrong_at: int | None = None
    wrong_by: float | None = None
    predicted: int | None = None
    invariant: Invariant | None = None
    reason: str | None = None
    bits: int | None = None  # of the balls, where these were followed
    turn: int | None = None  # steps of a turn, where many turns were followed at once
    is_steady: bool = False  # each of these turns changes the state by one vector, times a power
    facts: dict[str, object] | None = None
    argument: str | None = None  # in a few words, where it is not that of the reading
    evaluation: str | None = None  # which run is wrong, where others of the reading may be right

    def up_to(self, length: int) -> OrbitOutcome:
        """What is known of the first tokens alone, all of which are right."""
        nothing = replace(self, wrong_at=None, wrong_by=None, predicted=None, invariant=None, reason=None)
        return replace(nothing, right_to=length, tightest=min(self.tightest, length))


def taken(walked: Followed, found: EllipsoidMargins, holds: np.ndarray, first: int) -> bool:
    """Adds what is known of the states after `first`, `first` + 1, ... tokens; whether to go on."""
    for i, (low, high) in enumerate(zip(found.low, found.high, strict=True)):
        if not holds[i]:
            walked.stuck = f"the enclosure of the state after {first + i} tokens grows too large"
            return False
        if not walked.take(first + i, float(low), float(high), int(found.best_other[i])):
            return False
    return True


def _is_largest(net: Network, there: Ellipsoids, j: int, rules: Rules) -> bool:
    """Whether class j has the largest logit on one ellipsoid, or the same as others that are read alike.

    Where results are rounded, rows that are alike may be summed in two orders.
    """
    is_read = (net.V[j] != net.V).any(1) | (net.b != net.b[j]) | (rules.at is not None)
    is_read[j] = True
    apart = replace(net, V=net.V[is_read], b=net.b[is_read])
    return bool(margins(apart, there, [int(is_read[:j].sum())], rules).low[0] > 0)


@dataclass(frozen=True)
class Target:
    """A ring of ellipsoids, the first of which belongs to `start` tokens; it may be entered from `least` tokens on."""

    ring: Ellipsoids
    start: int
    least: int

    def entered(self, net: Network, token: int, chain: Ellipsoids, first: int, rules: Rules) -> int | None:
        """After how many tokens the ring is entered by one step from this chain, of the states after `first`, ..."""
        skipped = max(0, self.least - 1 - first)
        chain = chain[skipped:]
        if not len(chain):
            return None
        t = np.arange(len(chain)) + first + skipped + 1
        place = (t - self.start) % len(self.ring)
        after = Ellipsoids(self.ring.centres[place], self.ring.shapes[place], self.ring.exponents[place])
        is_in = excess(net, token, chain, after, rules) <= 1
        return int(t[is_in.argmax()]) if is_in.any() else None


def walk(
    net: Network,
    line: OrbitQuestion,
    steps: int,
    rules: Rules,
    growth: float,
    until: Deadline,
    target: Target | None = None,
) -> Followed:
    """Follows the orbit for so many steps, in chunks, until it is wrong, stuck, has entered, or time is up."""
    found, largest = Followed(), max(2, min(CHUNKS[rules.at is None], NUMBERS_AT_A_TIME // net.size**2))
    state, shape = np.zeros(net.size), np.zeros((net.size, net.size))
    start, chunk = 0, largest if target is None else min(largest, max(8, target.least))
    while start < steps:
        token = line.at(start)
        n = 1 if start < len(line.leading) else min(chunk, steps - start)
        states = orbit(net, [token] * n, state, until)
        chain = along(net, token, states, shape, rules, growth, until)
        n = len(chain) - 1
        if n == 0:
            found.stuck = f"time is up after {start} tokens"
            return found
        holds = np.cumprod(excess(net, token, chain[:-1], chain[1:], rules) <= 1).astype(bool)
        due = [line.expected(t) for t in range(start + 1, start + n + 1)]
        is_well = taken(found, margins(net, chain[1:], due, rules), holds, start + 1)
        if found.wrong_at is not None and found.predicted is not None:
            there = chain[found.wrong_at - start : found.wrong_at - start + 1]
            if not _is_largest(net, there, found.predicted, rules):
                found.predicted = None if rules.at else follow(net, line, found.wrong_at, until).predicted
        if target is not None and found.wrong_at is None:
            found.entered = target.entered(net, token, chain[: found.right_to - start + 1], start, rules)
        if not is_well or found.entered is not None:
            return found
        start, state, shape = start + n, states[n], chain.shapes[-1] * chain.scales[-1]
        if until.is_up() and start < steps:
            found.stuck = f"time is up after {start} tokens"
            return found
    return found


def best_walk(net: Network, line: OrbitQuestion, steps: int, rules: Rules, until: Deadline) -> Followed:
    """The walk that comes furthest, over several growths of the enclosures."""
    best: Followed | None = None
    for growth in _growths(rules):
        found = walk(net, line, steps, rules, growth, until)
        if best is None or found.right_to > best.right_to or found.wrong_at is not None:
            best = found
        if found.stuck is None or found.wrong_at is not None or until.is_up():
            break
    assert best is not None
    return best


def _growths(rules: Rules) -> tuple[float, ...]:
    """By how much enclosures grow a step, in the order in which it is tried."""
    if rules.at is None:
        return GROWTHS_REAL
    return GROWTHS_FINE if rules.at.stored.p >= FINE else GROWTHS_ROUNDED


def finite(net: Network, line: OrbitQuestion, length: int, rules: Rules, budget: float | Budget) -> OrbitOutcome:
    """Right after each of 1..length tokens?

    A wide network is first asked for ever where the length is long: each of its steps takes milliseconds.
    """
    whole = Budget.of(budget)
    until = whole.deadline()
    if net.size >= WIDE and length > max(LONG, _least_look(line)) and rules.at is None:
        found = for_ever(net, line.repeating(), rules, replace(whole, seconds=whole.seconds / 2))
        if found.right_to is None or found.right_to >= length:
            return replace(
                found.up_to(length), argument=found.argument if found.invariant is None else ARGUMENT_FOR_EVER
            )
        if found.wrong_at is not None and found.wrong_at <= length:
            return found
        walked = outcome(followed(net, line, length, rules, until))
        is_less = walked.reason is not None and (walked.right_to or 0) < (found.right_to or 0)
        return replace(found.up_to(found.right_to or 0), reason=walked.reason) if is_less else walked
    return outcome(followed(net, line, length, rules, until))


def followed(net: Network, line: OrbitQuestion, steps: int, rules: Rules, until: Deadline) -> Followed:
    """The orbit as far as it is known: by ellipsoids, and in real arithmetic by ever more digits where these end.

    Where it is long, and turns change little, many turns are followed at once.
    """
    if steps > max(LONG, _least_look(line)) and rules.at is None:
        crept = crept_along(net, line, first_states(net, line, until), steps, until)
        if crept is not None and crept.stuck is None:
            return crept
    found = best_walk(net, line, steps, rules, until)
    if found.stuck is None or rules.at is not None:
        return found
    further = follow(net, line, steps, until)
    return found if further.stuck is not None and further.right_to <= found.right_to else further


def crept_along(
    net: Network,
    line: OrbitQuestion,
    states: Array,
    steps: int | None,
    until: Deadline,
    errors: StepErrors | None = None,
    later: Later | None = None,
) -> Followed | None:
    """The orbit, many turns at once; None where turns change too much, or answers do not repeat. Without `errors`,
    arithmetic is real.
    """
    k = find_turn(states, line.period)
    start = len(line.leading) + line.settled
    return None if k is None else creep(net, line, k, start, steps, until, errors, later)


def first_states(net: Network, line: OrbitQuestion, until: Deadline) -> Array:
    """The float64 run as far as a cycle is first looked for."""
    return orbit(net, line.tokens(0, _least_look(line)), until=until)


def outcome(found: Followed, reason: str | None = None) -> OrbitOutcome:
    """What is known of an orbit that was followed; `reason` says why it is not known for ever."""
    return OrbitOutcome(
        None if found.entered is not None else found.right_to, found.margin, found.tightest,
        found.wrong_at, found.wrong_by, found.predicted,
        reason=found.stuck or reason, bits=found.bits, turn=found.turn,
    )  # fmt: skip


def for_ever(net: Network, line: OrbitQuestion, rules: Rules, budget: float | Budget) -> OrbitOutcome:
    """Right after every number of tokens?"""
    until, half = Budget.of(budget).deadline(), Budget.of(budget).deadline(1 / 2)
    looked, states, crept = 0, np.zeros((1, net.size)), None
    reason = "the state settles into no attracting cycle"
    short = follow(net, line, SHORT, half) if net.size >= WIDE and rules.at is None else Followed()
    for look in _looks(line):
        states = np.concatenate([states, orbit(net, line.tokens(looked, look), states[-1], half)[1:]])
        wrong = _first_wrong(net, line, states, looked)
        if wrong is not None:
            return outcome(followed(net, line, BEYOND * wrong, rules, until), "a float64 run is wrong there")
        looked = len(states) - 1
        cycle = find_cycle(net, line.token, states, line.period, until)
        if cycle is not None:
            locked = _locked(net, line, cycle, states, rules, until)
            if isinstance(locked, OrbitOutcome):
                return locked
            reason = locked
        if crept is None and rules.at is None:
            crept = crept_along(net, line, states, None, until)
            if crept is not None and (crept.stuck is None or until.is_up()):
                known = outcome(_further(crept, short), reason)
                return known if known.right_to is not None else _with_ring(net, line, states, rules, half, known)
        if half.is_up():
            break
    found = followed(net, line, looked, rules, until)
    if crept is not None:
        found = _further(found, crept)
    return outcome(_further(found, short), f"{reason}, and it is right as far as it was followed")


def _with_ring(
    net: Network, line: OrbitQuestion, states: Array, rules: Rules, until: Deadline, known: OrbitOutcome
) -> OrbitOutcome:
    """A proof by tubes, with ellipsoids that the float orbit comes into later, for a certificate: nothing rests on them
    here, but that each step maps them into the next.
    """
    for look in _looks(line):
        if look > LATEST_ENTRY or until.is_up():
            break
        states = np.concatenate([states, orbit(net, line.tokens(len(states) - 1, look), states[-1], until)[1:]])
        cycle = find_cycle(net, line.token, states, line.period, until)
        if cycle is None:
            continue
        for ring in _rings(net, line, cycle, rules, until):
            on_ring = _ring_holds(net, line, ring, cycle.start, rules)
            entry = _float_entry(ring, states, cycle.start, _least_entry(line))
            if on_ring is not None and entry is not None and on_ring.low.min() >= known.margin:
                return replace(known, invariant=_entered_at(entry, net, line, ring, cycle, on_ring, rules))
    return known


def _entered_at(
    entry: int, net: Network, line: OrbitQuestion, ring: Ellipsoids, cycle: Cycle, on_ring: EllipsoidMargins,
    rules: Rules,
) -> Invariant:  # fmt: skip
    after = Ellipsoids.joined(ring[1:], ring[:1])
    rate = float(excess(net, line.token, ring, after, rules).max())
    return Invariant(ring, entry, (entry - cycle.start) % len(ring), rate, float(on_ring.low.min()))


def _further(found: Followed, other: Followed) -> Followed:
    """The one of which more is known."""
    return other if other.right_to > found.right_to and found.entered is None and found.wrong_at is None else found


def _looks(line: OrbitQuestion) -> Iterator[int]:
    """After how many steps a cycle is looked for."""
    look = _least_look(line)
    most = max(LONGEST_LOOK, 4 * look)
    while look <= most:
        yield look
        look *= 4


def _least_look(line: OrbitQuestion) -> int:
    return len(line.leading) + line.settled + max(FIRST_LOOK, TURNS * line.period)


def _first_wrong(net: Network, line: OrbitQuestion, states: Array, known: int) -> int | None:
    """After how many tokens the float64 run is first wrong, beyond `known`."""
    logits = states[known + 1 :, net.read] @ net.V.T + net.b
    due = np.array([line.expected(t) for t in range(known + 1, len(states))], dtype=int)
    is_wrong = ~(margins_of(logits, due) > 0)
    return known + 1 + int(is_wrong.argmax()) if is_wrong.any() else None


def _locked(
    net: Network, line: OrbitQuestion, cycle: Cycle, states: Array, rules: Rules, until: Deadline
) -> OrbitOutcome | str:
    """The proof for all lengths, or why it does not close."""
    reason = "no ellipsoids round its cycle are mapped into each other"
    rings = _rings(net, line, cycle, rules, until)
    for ring in rings if net.size < WIDE else _first_entered(rings, line, cycle, states):
        entered = _entered(net, line, cycle, ring, states, rules, until)
        if entered is not None:
            return entered
        reason = f"the orbit is not shown to enter the ellipsoids round its cycle of {len(cycle.states)}"
        if until.is_up():
            break
    return reason


def _rings(net: Network, line: OrbitQuestion, cycle: Cycle, rules: Rules, until: Deadline) -> Iterator[Ellipsoids]:
    """Ellipsoids round the cycle to try: large ones, which are entered early, and smaller ones, which fit better."""
    J = along_cycle(net, line.token, cycle, until)
    if J is None:
        return
    own = spectral_rate(J)
    for share in RATES[: 1 if net.size < WIDE else None]:
        ring = _largest_ring(net, line, cycle, own + (1 - own) * share, rules, until)
        if ring is not None:
            yield from (enlarged(ring, smaller) for smaller in (0, -2, -6))


def _first_entered(rings: Iterable[Ellipsoids], line: OrbitQuestion, cycle: Cycle, states: Array) -> list[Ellipsoids]:
    """Those that the float orbit enters, the earliest first: walks of wide networks take seconds."""
    entries = [(_float_entry(ring, states, cycle.start, _least_entry(line)), ring) for ring in rings]
    found = [(entry, ring) for entry, ring in entries if entry is not None]
    return [ring for _, ring in sorted(found, key=lambda pair: pair[0])]


def _least_entry(line: OrbitQuestion) -> int:
    return 1 + len(line.leading) + line.settled


def _ring_holds(
    net: Network, line: OrbitQuestion, ring: Ellipsoids, start: int, rules: Rules
) -> EllipsoidMargins | None:
    """The margins on a ring of ellipsoids whose first is reached after `start` tokens, if each step stays within it."""
    after = Ellipsoids.joined(ring[1:], ring[:1])
    if not (excess(net, line.token, ring, after, rules) <= 1).all():
        return None
    found = margins(net, ring, [line.expected(start + i) for i in range(len(ring))], rules)
    return found if (found.low > 0).all() else None


def _largest_ring(
    net: Network, line: OrbitQuestion, cycle: Cycle, rate: float, rules: Rules, until: Deadline
) -> Ellipsoids | None:
    """The ellipsoids of a rate, as large as they prove anything, up to a factor of 2, or as time lets them grow."""
    ring = round_cycle(net, line.token, cycle, rules, rate, until)
    start = cycle.start
    if ring is None:
        return None
    low, high = 0, MOST_DOUBLINGS
    if _ring_holds(net, line, ring, start, rules) is None:
        for doublings in (1, 2, 4, 8, -1):
            if until.is_up():
                return None
            if _ring_holds(net, line, enlarged(ring, doublings), start, rules) is not None:
                return enlarged(ring, doublings)
        return None
    while high - low > 1 and not until.is_up():
        middle = (low + high) // 2
        is_held = _ring_holds(net, line, enlarged(ring, middle), start, rules) is not None
        low, high = (middle, high) if is_held else (low, middle)
    return enlarged(ring, low)


def _entered(
    net: Network, line: OrbitQuestion, cycle: Cycle, ring: Ellipsoids, states: Array, rules: Rules, until: Deadline
) -> OrbitOutcome | None:
    """The whole proof with this ring: the transient is right, and then it is entered."""
    k, start = len(ring), cycle.start
    on_ring = _ring_holds(net, line, ring, start, rules)
    entry = _float_entry(ring, states, start, _least_entry(line))
    if on_ring is None or entry is None:
        return None
    for growth in _growths(rules):
        target = Target(ring, start, entry)
        found = walk(net, line, entry + PATIENCE * k, rules, growth, until, target)
        if found.wrong_at is not None:
            return outcome(found)
        if found.entered is not None:
            tightest = int(on_ring.low.argmin())
            margin = float(min(found.margin, on_ring.low.min()))
            at = found.tightest if found.margin < on_ring.low.min() else start + tightest
            invariant = _entered_at(found.entered, net, line, ring, cycle, on_ring, rules)
            return OrbitOutcome(None, margin, at, invariant=invariant)
        if until.is_up():
            break
    return None


def _float_entry(ring: Ellipsoids, states: Array, start: int, least: int) -> int | None:
    """After how many tokens the float orbit is well within the ring."""
    k = len(ring)
    inverse = np.linalg.inv(ring.shapes) / ring.scales[:, None, None]
    for first in range(least, len(states), 256):
        t = np.arange(first, min(first + 256, len(states)))
        place = (t - start) % k
        off = (inverse[place] @ (states[t] - ring.centres[place])[..., None])[..., 0]
        is_in = np.sqrt((off**2).sum(-1)) < 0.75
        if is_in.any():
            return int(t[is_in.argmax()])
    return None
