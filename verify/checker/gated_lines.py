"""Lines of gated decays in real arithmetic, at any length, in closed form (docs/checker.md).

Of one repeated token, h' = f h + a from 0 is h_t = a (1 - f^t) / (1 - f), and a t where f is 1. Along r, r + k, ...,
with k even where some f may be below 0, f^t moves one way. So between two of these lengths a state lies between its
values there, and beyond one, where |f| < 1, between that and the limit a / (1 - f). Lengths whose answers do not show
so are halved.
"""

from collections.abc import Callable

from flint import arb, ctx

from verify.checker.gated import BITS, GatedCell
from verify.checker.linear import first_wrong
from verify.checker.reading import FAILS, NOT_CHECKABLE, Refusal, require
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import PERIODS, due_of, positive_margin, predicts

MOST_PIECES = 20_000

State = list[arb]


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line: right up to a length or for ever, or first wrong after so many tokens."""
    with ctx.workprec(BITS):
        _decide(GatedCell.of(weights, said), c, said)


def _decide(cell: GatedCell, c: LineCertificate, said: LineParameters) -> None:
    due, is_wrong = due_of(len(cell.b), said), c["verdict"] == "REFUTED"
    n, margin, other = first_wrong(c, due, said) if is_wrong else (c["length"], 0.0, 0)
    line = ClosedLine(cell, due, arb(0) if is_wrong else positive_margin(c))
    single = {"modular": 0, "first-homogeneous": 1}.get(said["task"], 0 if n == "all" else n)
    if n == "all":
        require(said["task"] in PERIODS, "parameters: the task does not go on for ever")
        require(c.get("inputs_covered") == "infinite", "inputs_covered: must be infinite")
        line.win(single, said.get("modulus", 1), None)
        return
    require(is_wrong or c.get("inputs_covered") == str(n), f"inputs_covered: must be {n}")
    line.win(single, said.get("modulus", 1), n - is_wrong)
    if is_wrong:
        gaps = line.gaps(line.after(n), due(n))
        require(
            other in gaps and bool(gaps[other] <= arb(margin)), f"counterexample: the margin at length {n} is another"
        )
        predicts(gaps, other, cell.rows)


class ClosedLine:
    """The states after t tokens, and where the right class wins by `least`, and by more than 0."""

    def __init__(self, cell: GatedCell, due: Callable[[int], int | None], least: arb) -> None:
        self.cell, self.due, self.least, self.left = cell, due, least, MOST_PIECES
        self.units = list(zip(cell.keep[0], cell.add[0], strict=True))
        self.turns = 1 if all(f >= 0 for f, _ in self.units) else 2

    def after(self, t: int) -> State:
        return [a * t if f == 1 or t == 1 else a * (1 - f**t) / (1 - f) for f, a in self.units]

    def limit(self) -> State:
        """What states come near, NaN where that is not known."""
        return [arb(0) if a == 0 else a / (1 - f) if abs(f) < 1 else arb("nan") for f, a in self.units]

    def gaps(self, h: State, right: int | None) -> dict[int, arb]:
        """(right logit) - (each other), at a state or on a box."""
        require(right is not None, "a length has no right class")
        logits = self.cell.logits(h, 0)
        return {j: logits[right or 0] - x for j, x in enumerate(logits) if j != right}

    def win(self, single: int, period: int, last: int | None) -> None:
        """At lengths 1..last, None for all: some by themselves, and the others along answers that are the same."""
        for t in range(1, single + 1 if last is None else min(single, last) + 1):
            self._halved(t, 1, 0, 0)
        k = self.turns * period
        for r in range(single + 1, single + k + 1):
            if last is None or r <= last:
                self._along(r, k, None if last is None else (last - r) // k)

    def _along(self, r: int, k: int, n: int | None) -> None:
        """At lengths r + k q, q = 0..n: all that is left at once, or as much again as is known."""
        q = 0
        while n is None or q <= n:
            if self._is_right(r, k, q, n):
                return
            end = 2 * q if n is None else min(2 * q, n)
            self._halved(r, k, q, end)
            q = end + 1

    def _halved(self, r: int, k: int, low: int, high: int) -> None:
        todo = [(low, high)]
        while todo:
            low, high = todo.pop()
            if self._is_right(r, k, low, high):
                continue
            if low == high:
                gaps = self.gaps(self.after(r + k * low), self.due(r)).values()
                is_known = any(x < self.least or x <= 0 for x in gaps)
                what = f"length {r + k * low}: the right class " + (
                    "does not win" if is_known else "is not shown to win"
                )
                raise Refusal(f"{what} by {self.least}", FAILS if is_known else NOT_CHECKABLE)
            middle = (low + high) // 2
            todo += [(middle + 1, high), (low, middle)]

    def _is_right(self, r: int, k: int, low: int, high: int | None) -> bool:
        """Between two of the lengths, or from one on."""
        self.left -= 1
        require(self.left > 0, "lengths come too near a tie to be followed in pieces", NOT_CHECKABLE)
        ends = self.after(r + k * low), self.limit() if high is None else self.after(r + k * high)
        box = [x.union(y) for x, y in zip(*ends, strict=True)]
        return all(bool(x >= self.least and x > 0) for x in self.gaps(box, self.due(r)).values())
