"""Lines of recurrent networks whose state creeps, in real arithmetic, many turns at once (docs/checker.md).

A turn is k steps. For ever: a box from the state after t tokens to a limit of its turns is shown to lead into itself.
Up to a length: numbers at rest stay in a narrow box; each number c that creeps has, with X_q the state after q turns,
c_(q+1) - c_1 = phi (c_q - c_0) + what the other numbers' distances from X_0 add, where phi >= 0 is its derivative by
itself. So c_q - c_0 is a sum of q changes, each times the factors of the turns after it; where changes have one sign it
lies between what it is for the least and the greatest of both, and moves one way with q.
"""

from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple

from flint import arb, arb_mat, ctx

from verify.checker.arguments import first_shown
from verify.checker.corners import REST, CornerBox, Due, around, box_of, identity, is_read, slopes, turned, win
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import (
    PERIODS,
    StoredNetwork,
    Vector,
    due_of,
    finite,
    follow,
    for_ever,
    network,
    point,
    positive_margin,
    refuted,
    step,
)

BITS, LONG = 1024, 20_000  # and how many tokens it takes for turns to be tried before steps
NARROW = 2.0**-700  # the state where turns begin
ENTRIES, PERIODS_OF_TURN = (256, 1024, 4096), (1, 2, 3, 4)  # tokens until turns begin, and how long one is
MOST_NUMBERS, AT_LEAST = 32, 12  # of a state; and turns of boxes, as long as what each try begins with takes
NEWTON, SETTLED = 60, 2.0**-500

IsTold = Callable[[Vector], bool]
Spend = Callable[[int], None]
Argument = Callable[[Spend, Vector, int, int], Vector]


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line: step by step, by ellipsoids, or in boxes of many turns."""
    net = network(weights, said)
    due, period = due_of(len(net.b), said), said.get("modulus", 1)
    has_turns = said["task"] in PERIODS and net.size <= MOST_NUMBERS
    reach = partial(_followed, period) if has_turns else follow
    if c["verdict"] == "REFUTED":
        refuted(net, c, due, reach)
    elif c["length"] != "all":
        finite(net, c, due, reach)
    elif "invariant" in c or not has_turns:
        for_ever(net, c, due)
    else:
        require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
        _by_turns(partial(_kept, net, due, positive_margin(c)), net, due, positive_margin(c), period)


def _followed(period: int, net: StoredNetwork, n: int, due: Due, least: arb, is_told: IsTold | None = None) -> Vector:
    """The same as `follow`, but many turns at once where there are many that creep."""
    if n > LONG:
        try:
            return _by_turns(partial(_reached, net, due, least, n, is_told), net, due, least, period)
        except Refusal as error:
            if error.exit_code != NOT_CHECKABLE:
                raise
    return follow(net, n, due, least, is_told)


def _by_turns(argument: Argument, net: StoredNetwork, due: Due, least: arb, period: int) -> Vector:
    """What an argument says of the state after t tokens and turns of k, for the first t and k where it says anything.

    Raises: Refusal where an answer is wrong, or nothing is said.
    """
    spend = net.spending(2 * net.size * BITS)  # a step from each corner

    def tried(x: Vector, t: int, k: int) -> Vector:
        spend(AT_LEAST * k)
        with ctx.workprec(BITS):
            return argument(spend, x, t, k)

    states = ((follow(net, t, due, least, narrow=NARROW), t) for t in ENTRIES)
    return first_shown(partial(tried, x, t, period * n) for x, t in states for n in PERIODS_OF_TURN)


# ---- for ever


def _kept(net: StoredNetwork, due: Due, least: arb, spend: Spend, x: Vector, t: int, k: int) -> Vector:
    """The limit of turns whose states all lie in a box that a turn leads into itself, and that is right."""
    limit = limit_of_turns(net, x, k)
    box = around(net, x, limit)
    boxes, _ = turned(net, box, k)
    require(box.holds(boxes[-1]), f"turns of {k} tokens after {t} do not lead a box into itself", NOT_CHECKABLE)
    win(net, boxes, t + 1, due, least)
    return limit


def limit_of_turns(net: StoredNetwork, x: Vector, k: int) -> Vector:
    """Newton's fixed point of a turn ahead of the state, which is not trusted.

    Where Newton's step goes back though turns go on, it goes on instead, twice as far as the last time.
    """
    x, first, ahead = [y.mid() for y in x], Vector(), 1
    for _ in range(NEWTON):
        state, slope = x, identity(net.size)
        for _ in range(k):
            slope = slopes(net, state) * slope
            state = [y.mid() for y in step(net, point(state)).value]
        moved = [a - b for a, b in zip(state, x, strict=True)]
        first = first or moved
        try:
            change = (identity(net.size) - slope).solve(arb_mat(net.size, 1, moved)).entries()
        except ZeroDivisionError:
            break
        fastest = max(range(net.size), key=lambda j: float(abs(first[j])))
        if moved[fastest] * first[fastest] > 0 > change[fastest] * first[fastest]:
            change, ahead = [ahead * y for y in first], 2 * ahead
        x = [(a + b).mid() for a, b in zip(x, change, strict=True)]
        if all(abs(y) < SETTLED for y in change):
            return x
    raise Refusal("no limit of its turns is found", NOT_CHECKABLE)


# ---- up to a length


class Creep(NamedTuple):
    """The state x where turns begin, a box of all turns, and each number's factor and change that creeps."""

    x: Vector
    box: CornerBox
    numbers: dict[int, tuple[arb, arb]]

    def between(self, first: int, last: int) -> CornerBox:
        """A box of the states after so many turns."""
        low, high = list(self.box.low), list(self.box.high)
        for c, (factor, change) in self.numbers.items():
            ends = [self.x[c] + _changed(factor, change, q) for q in (first, last)]
            low[c], high[c] = reduce(arb.min, map(arb.lower, ends)), reduce(arb.max, map(arb.upper, ends))
        return CornerBox(low, high)


def _changed(factor: arb, change: arb, q: int) -> arb:
    """The sum of q changes, each times the factors of the turns after it, of any that two balls hold.

    The sum of n factors' powers and the n-th power give those of 2 n, and of n + 1.
    """
    is_steady = bool(change > 0 or change < 0) and bool(factor >= 0)
    require(is_steady, "a number does not creep one way", NOT_CHECKABLE)
    powers, power = arb(0), arb(1)
    for bit in f"{q:b}":
        powers, power = powers * (1 + power), power * power
        if bit == "1":
            powers, power = powers * factor + 1, power * factor
    return change * powers


def _creep(net: StoredNetwork, x: Vector, k: int, q: int) -> Creep:
    """What creeps in q turns of k steps. Raises: Refusal where that does not show."""
    after, slope = turned(net, box_of(x), k)
    moved = [b - a for a, b in zip(x, after[-1].hull, strict=True)]
    creeping = [j for j, m in enumerate(moved) if is_read(slope, j) and not abs(m) < REST]
    far = [a if abs(m) < REST else a + m for a, m in zip(x, moved, strict=True)]
    for c in creeping:
        far[c] = x[c] + _changed(slope[c, c], moved[c], q)
    box = around(net, x, far)
    boxes, slope = turned(net, box, k)
    widths = [arb(0, (b - a).upper()) for a, b in zip(*box, strict=True)]
    numbers = {}
    for c in creeping:
        beside = [slope[c, j] * w for j, w in enumerate(widths) if j != c]
        numbers[c] = slope[c, c], sum(beside, moved[c])
    found = Creep(x, box, numbers)
    others = [j for j in range(net.size) if j not in numbers]
    stay = all(box.low[j] <= boxes[-1].low[j] and boxes[-1].high[j] <= box.high[j] for j in others)
    require(stay and box.holds(found.between(0, q)), f"turns of {k} tokens do not stay in a box", NOT_CHECKABLE)
    return found


def _reached(
    net: StoredNetwork, due: Due, least: arb, n: int, is_told: IsTold | None, spend: Spend, x: Vector, t: int, k: int
) -> Vector:
    """The state after n tokens; the right class wins by `least` after each, with `is_told` not after the last one."""
    q = (n - t - 1) // k - 1  # turns at once, and at least k steps beyond them
    require(q > 0, f"turns of {k} tokens are too long", NOT_CHECKABLE)
    creep, todo = _creep(net, x, k, q), [(0, q - 1)]
    last, _ = turned(net, creep.between(q, q), n - t - k * q)
    win(net, last[: None if is_told is None else -1], t + k * q + 1, due, least)
    while todo:
        first, end = todo.pop()
        spend(k)
        try:
            win(net, turned(net, creep.between(first, end), k)[0], t + k * first + 1, due, least)
        except Refusal as error:
            if error.exit_code != NOT_CHECKABLE or first == end:
                raise
            todo += [((first + end) // 2 + 1, end), (first, (first + end) // 2)]
    state = last[-1].hull
    require(is_told is None or is_told(state), f"the margin at length {n} does not show", NOT_CHECKABLE)
    return state
