"""Lines up to a length whose every operation rounds, in any order, re-checked from the numbers of the file.

Computed states are followed in boxes, or as those that lead into ellipsoids are: the state in real arithmetic, and a
sum of what all roundings before may have moved it by. So a length is right in every order, or wrong in every order.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from flint import arb, arb_mat, ctx, fmpq

from verify.checker.formats import BinaryFormat, of_sums
from verify.checker.linear import wrong_after
from verify.checker.reading import NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import StoredNetwork, Vector, due_of, positive_margin
from verify.checker.rounded import BITS, SHORT, box_of, computed_gaps, most_tokens, moved, reach_of, stored_network
from verify.checker.rounded_boxes import Box, ComputedBoxes

EVERY = "every run that the reading allows"

Gaps = dict[int, tuple[arb, arb]]


class TokenFollower(Protocol):
    """What is known of a network's state somewhere."""

    def __call__(self, token: int) -> "tuple[Callable[[int], Gaps], TokenFollower]":
        """After one more token: between which numbers (a class's logit) - (each other) is, and what follows it."""


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a proof of all lengths up to one, or the first length, which is wrong in every order."""
    with ctx.workprec(BITS):
        net, fmt = stored_network(weights, said, may_accumulate=True)
        due, wider, most = due_of(len(net.b), said), of_sums(said, fmt), most_tokens(net.size)
        if wider:
            ComputedLine(due, by_boxes(net, fmt, wider), most=most).decide(c, said)
        else:
            either(net, fmt, lambda gaps: ComputedLine(due, gaps, most=most).decide(c, said))


class ComputedLine:
    """A line that is answered token by token, of whose logits is known what `follow` says.

    All its tokens are 0 where none are given.
    """

    def __init__(
        self, due: Callable[[int], int | None], follow: TokenFollower, tokens: Sequence[int] = (), most: int = SHORT
    ) -> None:
        self.due, self.follow, self.tokens, self.most, self.t = due, follow, tokens, most, 0

    def decide(self, c: LineCertificate, said: LineParameters) -> None:
        """Checks a proof up to a length, or a wrong length, and all shorter ones where that is the first."""
        if c["verdict"] == "REFUTED":
            n, margin, wrong = wrong_after(c, self.due, said)
            self.wrong(n, n - 1 if c["counterexample"].get("is_first", True) else 0, margin, wrong)
            return
        length = c["length"]
        require(type(length) is int, "length: must be a number of tokens", NOT_CHECKABLE)
        assert length != "all"
        require(c.get("inputs_covered") == str(length), f"inputs_covered: must be {length}")
        self.right_to(length, positive_margin(c))

    def wrong(self, n: int, right_to: int, margin: float, wrong: int) -> None:
        """So many lengths are right in all that is followed, every order or one run, and this one is wrong in all.

        Where -1 is predicted, that is not said: which class wins may depend on the order.
        """
        self.is_near(n)
        self.right_to(right_to, arb(0))
        while self.t < n:
            right, gaps = self.after_one_more()
        is_wrong(gaps, right, margin, wrong, f"length {n}")

    def is_near(self, t: int) -> None:
        require(t <= self.most, f"more than {self.most} steps are not followed", NOT_CHECKABLE)

    def after_one_more(self) -> tuple[int, Callable[[int], Gaps]]:
        """The right class after one more token, and between which numbers differences of logits are computed there."""
        self.t += 1
        right = self.due(self.t)
        require(right is not None, f"length {self.t}: has no right class")
        gaps, self.follow = self.follow(self.tokens[self.t - 1] if self.tokens else 0)
        return right or 0, gaps

    def right_to(self, steps: int, margin: arb) -> None:
        """The right class wins by the margin in every order after each of so many tokens."""
        self.is_near(steps)
        for _ in range(steps):
            right, gaps = self.after_one_more()
            for j, (low, high) in gaps(right).items():
                sentence = f"length {self.t}: the right class does not win over {j} by {margin}"
                require(not high < margin, f"{sentence} in any order")
                require(bool(low >= margin and low > 0), f"{sentence} in every order, or not shown", NOT_CHECKABLE)


def is_wrong(gaps: Callable[[int], Gaps], right: int, margin: float, wrong: int, where: str) -> None:
    """Checks that the right class does not win, by so much, and that `wrong` does, where it is not -1."""
    found = gaps(right)
    require(wrong in found or wrong == -1, "counterexample: predicts no class")
    ends = [found[wrong]] if wrong in found else [*found.values()]
    may_be = any(not low > arb(margin) for low, _ in ends)
    require(may_be, f"margin: at {where} it is more than {margin} in every order")
    is_shown = any(high <= arb(margin) for _, high in ends)
    require(is_shown, f"that the margin at {where} is at most {margin} does not show", NOT_CHECKABLE)
    for j, (least, most) in gaps(wrong).items() if wrong in found else ():
        if j != right:
            require(not most < 0, f"counterexample: class {j} is predicted rather than {wrong}")
            sentence = f"counterexample: whether {wrong} or {j} is predicted does not show"
            require(bool(least >= 0), sentence, NOT_CHECKABLE)


def differences(logits: Vector, rows: Sequence[object], k: int) -> Gaps:
    """(logit k) - (each other): 0 where both read the same."""
    found = {j: arb(0) if rows[j] == rows[k] else logits[k] - y for j, y in enumerate(logits) if j != k}
    return {j: (gap.lower(), gap.upper()) for j, gap in found.items()}


def by_boxes(net: StoredNetwork, fmt: BinaryFormat, wider: BinaryFormat | None = None) -> TokenFollower:
    """What boxes of computed numbers say of the logits after one token, two tokens, and so on."""
    return _after_box(ComputedBoxes(net, fmt, wider), [(fmpq(0), fmpq(0))] * net.size)


def _after_box(on: ComputedBoxes, box: Box) -> TokenFollower:
    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        there = on.step(box, token)
        logits = on.logits(there)

        def gaps(k: int) -> Gaps:
            low, high = logits[k]
            return {j: (arb(low - b), arb(high - a)) for j, (a, b) in enumerate(logits) if j != k}

        return gaps, _after_box(on, there)

    return follow


def by_errors(
    net: StoredNetwork, fmt: BinaryFormat, state: Vector | None = None, generators: Sequence[arb_mat] = ()
) -> TokenFollower:
    """The same, from the state in real arithmetic, and generators of how far computed states are from it."""

    def follow(token: int) -> tuple[Callable[[int], Gaps], TokenFollower]:
        known = [arb(0)] * net.size if state is None else state
        there, later = moved(net.reading(token), fmt, known, [*generators])
        box = box_of(there, [reach_of(G) for G in later])

        def gaps(k: int) -> Gaps:
            found = computed_gaps(net, fmt, there, box, later, k, "after this token", is_ball=False)
            return {j: (gap - off, gap + off) for j, (gap, off) in found.items()}

        return gaps, by_errors(net, fmt, there, later)

    return follow


def either(net: StoredNetwork, fmt: BinaryFormat, decide: Callable[[TokenFollower], None]) -> None:
    """Decides by boxes, and otherwise by what each rounding moves."""
    try:
        decide(by_boxes(net, fmt))
    except Refusal:
        decide(by_errors(net, fmt))
