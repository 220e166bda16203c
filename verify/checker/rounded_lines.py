"""Lines up to a length whose every operation rounds, in any order, re-checked from the numbers of the file.

The computed states are followed as those that lead into ellipsoids are: the state in real arithmetic, and a sum of what
all roundings before may have moved it by. So a length is right in every order, or wrong in every order.
"""

from typing import Any

from flint import arb, arb_mat, ctx

from verify.checker import formats
from verify.checker.formats import BinaryFormat
from verify.checker.linear import first_wrong
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.recurrent import GATES, StoredNetwork, due_of, network, positive_margin
from verify.checker.rounded import BITS, MOST_ENTRY, box_of, computed_gaps, moved, reach_of, stored_in

Gaps = dict[int, tuple[arb, arb]]


def stored_network(weights: bytes, said: dict[str, Any]) -> tuple[StoredNetwork, BinaryFormat]:
    """The numbers of the file, rounded once to the format that the certificate names."""
    require(said.get("model") in GATES, f"in a format {said.get('model')!r} is not checked", NOT_CHECKABLE)
    fmt = formats.named(said)
    return stored_in(network(weights, said), fmt), fmt


def finite(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks a proof of all lengths up to one."""
    length = c["length"]
    require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said)
        line = ComputedLine(net, fmt, said)
        for _ in range(length):
            line.is_right(line.after_one_more(), positive_margin(c))


def wrong_in_every_order(weights: bytes, c: dict[str, Any], said: dict[str, Any]) -> None:
    """Checks the first wrong length: every shorter one is right in every order, and this one is wrong in each."""
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said)
        line = ComputedLine(net, fmt, said)
        n, margin, wrong = first_wrong(c, line.due, said)
        for _ in range(n - 1):
            line.is_right(line.after_one_more(), arb(0))
        found = line.after_one_more()
        require(wrong in found, "counterexample: predicts no class")
        gap, off = found.pop(wrong)
        require(not gap - off > arb(margin), f"margin: at length {n} it is more than {margin} in every order")
        is_shown = bool(gap + off <= arb(margin))
        require(is_shown, f"the margin at length {n} is at most {gap + off}, which does not show", NOT_CHECKABLE)
        for j, (other, reach) in found.items():
            require(not other + reach < gap - off, f"counterexample: class {j} is predicted rather than {wrong}")
            is_shown = bool(other - reach >= gap + off)
            require(is_shown, f"counterexample: whether {wrong} or {j} is predicted does not show", NOT_CHECKABLE)


class ComputedLine:
    """The states after t tokens: `state` in real arithmetic, and `generators` of how far computed ones are from it."""

    def __init__(self, net: StoredNetwork, fmt: BinaryFormat, said: dict[str, Any]) -> None:
        self.net, self.fmt, self.due, self.t = net, fmt, due_of(len(net.b), said), 0
        self.state, self.generators = [arb(0)] * net.size, list[arb_mat]()

    def after_one_more(self) -> Gaps:
        """(right logit) - (each other) after one more token, and how far a computed one may be from it."""
        self.t += 1
        right, where = self.due(self.t), f"length {self.t}"
        require(right is not None, f"{where}: has no right class")
        require(self.t <= MOST_ENTRY, f"more than {MOST_ENTRY} steps are not followed", NOT_CHECKABLE)
        net, fmt = self.net, self.fmt
        try:
            self.state, self.generators = moved(net, fmt, self.state, self.generators)
            box = box_of(self.state, [reach_of(G) for G in self.generators])
            return computed_gaps(net, fmt, self.state, box, self.generators, right or 0, where, is_ball=False)
        except Refusal as refusal:  # of what may overflow, and need not
            raise Refusal(str(refusal), NOT_CHECKABLE) from None

    def is_right(self, found: Gaps, margin: arb) -> None:
        """The right class wins by the margin in every order."""
        for j, (gap, off) in found.items():
            sentence = f"length {self.t}: the right class does not win over {j} by {margin}"
            require(not gap + off < margin, f"{sentence} in any order")
            require(
                bool(gap - off >= margin and gap - off > 0), f"{sentence} in every order, or not shown", NOT_CHECKABLE
            )
