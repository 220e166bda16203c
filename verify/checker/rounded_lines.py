"""Lines up to a length whose every operation rounds, in any order, re-checked from the numbers of the file.

Computed states are followed in boxes, or as those that lead into ellipsoids are: the state in real arithmetic, and a
sum of what all roundings before may have moved it by. So a length is right in every order, or wrong in every order.
"""

from collections.abc import Callable
from typing import Any

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.formats import BinaryFormat
from verify.checker.linear import first_wrong
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.recurrent import StoredNetwork, due_of, positive_margin
from verify.checker.rounded import BITS, MOST_ENTRY, box_of, computed_gaps, moved, reach_of, stored_network
from verify.checker.rounded_boxes import ComputedBoxes

Gaps = dict[int, tuple[arb, arb]]


def decide(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks a proof of all lengths up to one, or the first length, which is wrong in every order."""
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said)
        either(net, fmt, said, lambda line: line.decide(c, said))


class ComputedLine:
    """A line that is answered token by token: `gaps(right)` goes on by one, and says what is known of the logits."""

    def __init__(self, due: Callable[[int], int | None], gaps: Callable[[int], Gaps]) -> None:
        self.due, self.gaps, self.t = due, gaps, 0

    def decide(self, c: dict[str, Any], said: dict[str, Any]) -> None:
        """Checks a proof up to a length, or the first wrong length."""
        if c["verdict"] == "REFUTED":
            self._wrong_in_every_order(*first_wrong(c, self.due, said))
            return
        length = c["length"]
        require(type(length) is int, "length: must be a number of tokens", NOT_CHECKABLE)
        require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
        self.right_to(length, positive_margin(c))

    def _wrong_in_every_order(self, n: int, margin: float, wrong: int) -> None:
        """Every shorter length is right in every order, and this one is wrong in each."""
        self.right_to(n - 1, arb(0))
        found = self.after_one_more()
        require(wrong in found, "counterexample: predicts no class")
        low, high = found.pop(wrong)
        require(not low > arb(margin), f"margin: at length {n} it is more than {margin} in every order")
        is_shown = bool(high <= arb(margin))
        require(is_shown, f"the margin at length {n} is at most {high}, which does not show", NOT_CHECKABLE)
        for j, (least, most) in found.items():
            require(not most < low, f"counterexample: class {j} is predicted rather than {wrong}")
            sentence = f"counterexample: whether {wrong} or {j} is predicted does not show"
            require(bool(least >= high), sentence, NOT_CHECKABLE)

    def after_one_more(self) -> Gaps:
        """Between which numbers (right logit) - (each other) is computed after one more token."""
        self.t += 1
        right = self.due(self.t)
        require(right is not None, f"length {self.t}: has no right class")
        require(self.t <= MOST_ENTRY, f"more than {MOST_ENTRY} steps are not followed", NOT_CHECKABLE)
        try:
            return self.gaps(right or 0)
        except Refusal as refusal:  # of what may overflow, and need not
            raise Refusal(f"length {self.t}: {refusal}", NOT_CHECKABLE) from None

    def right_to(self, steps: int, margin: arb) -> None:
        """The right class wins by the margin in every order after each of so many tokens."""
        for _ in range(steps):
            for j, (low, high) in self.after_one_more().items():
                sentence = f"length {self.t}: the right class does not win over {j} by {margin}"
                require(not high < margin, f"{sentence} in any order")
                require(bool(low >= margin and low > 0), f"{sentence} in every order, or not shown", NOT_CHECKABLE)


def by_boxes(net: StoredNetwork, fmt: BinaryFormat) -> Callable[[int], Gaps]:
    """What boxes of computed numbers say of the logits after one token, two tokens, and so on."""
    on, box = ComputedBoxes(net, fmt), [(fmpq(0), fmpq(0))] * net.size

    def gaps(right: int) -> Gaps:
        box[:] = on.step(box)
        logits = on.logits(box)
        low, high = logits[right]
        return {j: (arb(low - b), arb(high - a)) for j, (a, b) in enumerate(logits) if j != right}

    return gaps


def by_errors(net: StoredNetwork, fmt: BinaryFormat) -> Callable[[int], Gaps]:
    """The same, from the state in real arithmetic, and generators of how far computed states are from it."""
    state, generators = [arb(0)] * net.size, list[arb_mat]()

    def gaps(right: int) -> Gaps:
        state[:], generators[:] = moved(net, fmt, state, generators)
        box = box_of(state, [reach_of(G) for G in generators])
        found = computed_gaps(net, fmt, state, box, generators, right, "after this token", is_ball=False)
        return {j: (gap - off, gap + off) for j, (gap, off) in found.items()}

    return gaps


def either(net: StoredNetwork, fmt: BinaryFormat, said: dict[str, Any], decide: Callable[[ComputedLine], None]) -> None:
    """Decides by boxes, and otherwise by what each rounding moves."""
    due = due_of(len(net.b), said)
    try:
        decide(ComputedLine(due, by_boxes(net, fmt)))
    except Refusal:
        decide(ComputedLine(due, by_errors(net, fmt)))
