"""Lines of recurrent networks whose state creeps, at every length and in any order of a format (docs/checker.md).

A computed step is off by what its roundings add on the box before it. So the box after it is that of real arithmetic,
known from its corners, and so much wider. The first tokens are followed in such boxes; one that reaches from there to
a limit of the turns, and is so much wider as later roundings may move a state, is shown to lead into itself.
"""

from collections.abc import Callable, Iterator
from functools import partial

from flint import arb, arb_mat, ctx

from verify.checker import creeping
from verify.checker.arguments import first_shown
from verify.checker.computed_orders import exact
from verify.checker.corners import CornerBox, Due, box_of, gaps, identity, image, slopes
from verify.checker.creeping import MOST_NUMBERS, limit_of_turns
from verify.checker.formats import BinaryFormat
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import GATES, PERIODS, StoredNetwork, Vector, due_of, point, positive_margin, step
from verify.checker.rounded import computed_gaps, rounding_of_step, stored_network
from verify.checker.rounded_boxes import Box, ComputedBoxes
from verify.checker.rounded_lines import Gaps

BITS = 256
WIDER, WIDENED = 1 + 2.0**-6, 3  # times what roundings may add up to round a limit, and how often it is looked for
MOST_WORK = 1_000_000  # steps, times numbers of the state to the power of three: a minute


def for_ever(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof of all lengths that saves no set of states."""
    require(said.get("model") in GATES, "proofs whose sets of states are not saved are not checked", NOT_CHECKABLE)
    require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
    require(said["task"] in PERIODS, "parameters: the task does not go on for ever")
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said)
        require(net.size <= MOST_NUMBERS, f"{net.size} numbers of state are too many for turns", NOT_CHECKABLE)
        due = due_of(len(net.b), said)
        ComputedCreeps(net, fmt, due, positive_margin(c)).go_on(said.get("modulus", 1))


class ComputedCreeps:
    """Boxes that hold every computed state; the right class wins by `least` after each token on the way."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat, due: Due, least: arb) -> None:
        self.net, self.fmt, self.due, self.least, self.on = net, fmt, due, least, ComputedBoxes(net, fmt)

    def go_on(self, period: int) -> None:
        """At every length: the first ones, and all turns after one of these. Raises: Refusal where none is found."""
        first_shown(self._entries(period))

    def _entries(self, period: int) -> Iterator[Callable[[], None]]:
        """What may be shown of turns after more and more tokens. Raises: Refusal where an answer before is wrong."""
        box, t = box_of([arb(0)] * self.net.size), 0
        for entry in creeping.ENTRIES:
            is_short = entry * self.net.size**3 <= MOST_WORK
            require(is_short or t > 0, f"{entry} tokens are too many to follow", NOT_CHECKABLE)
            if not is_short:
                return
            box, t = self.after(box, t, entry - t), entry
            yield from (partial(self._keep, box, t, period * n) for n in creeping.PERIODS_OF_TURN)

    def after(self, box: CornerBox, t: int, k: int) -> CornerBox:
        """The states k tokens after those of a box, which t tokens lead to."""
        for later in range(t + 1, t + k + 1):
            box = self.step(box)
            self.wins(box, later)
        return box

    def step(self, box: CornerBox) -> CornerBox:
        """The states one token later: both what roundings add to a step, and ends that are computed, hold them."""
        moved = widened(image(self.net, box)[0], rounding_of_step(self.net, box.hull, self.fmt))
        ends = [(arb(x).lower(), arb(y).upper()) for x, y in self.on.step(_ends(box))]
        low, high = zip(*ends, strict=True)
        return CornerBox([*map(max, moved.low, low)], [*map(min, moved.high, high)])

    def wins(self, box: CornerBox, t: int) -> None:
        """The right class wins after t tokens in every order, on a box that holds the states."""
        right = self.due(t)
        require(right is not None, f"length {t}: has no right class")
        for j, (low, high) in self.gaps(box, right or 0, f"length {t}").items():
            if not (low >= self.least and low > 0):
                is_less = bool(high < self.least)
                what = f"length {t}: the right class is not shown to win over {j} by {float(self.least)}"
                raise Refusal(what, FAILS if is_less else NOT_CHECKABLE)

    def gaps(self, box: CornerBox, right: int, where: str) -> Gaps:
        """Between which numbers (right logit) - (each other) is computed on a box that holds the states."""
        off = computed_gaps(self.net, self.fmt, box.hull, box.hull, [], right, where, is_ball=False)
        logits, found = self.on.logits(_ends(box)), {}
        for j, (low, high) in gaps(self.net, box, right).items():
            (a, b), (x, y), e = logits[right], logits[j], off[j][1]
            found[j] = (low - e).lower().max(arb(a - y).lower()), (high + e).upper().min(arb(b - x).upper())
        return found

    def _keep(self, box: CornerBox, t: int, k: int) -> None:
        """Turns of k tokens lead from a box that holds the states after t tokens into itself."""
        with ctx.workprec(creeping.BITS):
            limit = limit_of_turns(self.net, box.hull, k)
        far = zip(*box, limit, strict=True)
        low, high = zip(*((min(a, y), max(b, y)) for a, b, y in far), strict=True)
        wide = between = CornerBox([*low], [*high])
        for _ in range(WIDENED):  # as roundings grow with the box
            wide = widened(between, self._room(wide, limit, k))
        require(wide.holds(box), f"states after {t} tokens may be outside the box", NOT_CHECKABLE)
        is_kept = wide.holds(self.after(wide, t, k))
        require(is_kept, f"turns of {k} tokens after {t} do not lead a box into itself", NOT_CHECKABLE)

    def _room(self, box: CornerBox, limit: Vector, k: int) -> Vector:
        """About what the roundings of all turns add up to round a limit: (1 - |J|)^-1 times those of one.

        Nothing rests on it.
        """
        n, state, J = self.net.size, limit, identity(self.net.size)
        added = arb_mat(n, 1)
        for _ in range(k):
            own, new = slopes(self.net, state), rounding_of_step(self.net, box.hull, self.fmt)
            added, J = _sizes(own) * added + arb_mat(n, 1, new), own * J
            state, box = [y.mid() for y in step(self.net, point(state)).value], image(self.net, box)[0]
        try:
            room = (identity(n) - _sizes(J)).solve(added * WIDER).entries()
        except ZeroDivisionError:
            raise Refusal("turns do not settle", NOT_CHECKABLE) from None
        require(all(y >= 0 for y in room), "turns do not settle", NOT_CHECKABLE)
        return room


def _ends(box: CornerBox) -> Box:
    return [(exact(a), exact(b)) for a, b in zip(*box, strict=True)]


def _sizes(J: arb_mat) -> arb_mat:
    return arb_mat([[abs(v).upper() for v in row] for row in J.tolist()])


def widened(box: CornerBox, room: Vector) -> CornerBox:
    """A box that is wider at both ends."""
    low = [(a - r).lower() for a, r in zip(box.low, room, strict=True)]
    return CornerBox(low, [(b + r).upper() for b, r in zip(box.high, room, strict=True)])
