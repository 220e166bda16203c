"""Lines of gated decays in real arithmetic, at any length, in closed form (docs/checker.md).

Of one repeated token, h' = f h + a from 0 is h_t = a (1 - f^t) / (1 - f), and a t where f is 1. Along r, r + k, ...,
with k even where some f may be below 0, f^t moves one way. So between two of these lengths a state lies between its
values there, and beyond one, where |f| < 1, between that and the limit a / (1 - f).
"""

from flint import arb, ctx

from verify.checker import closed_lines
from verify.checker.gated import BITS, GatedCell
from verify.checker.records import LineCertificate, LineParameters
from verify.checker.recurrent import due_of
from verify.checker.rounded_lines import Gaps

State = list[arb]


def decide(weights: bytes, c: LineCertificate, said: LineParameters) -> None:
    """Checks a line: right up to a length or for ever, or first wrong after so many tokens."""
    with ctx.workprec(BITS):
        cell = GatedCell.of(weights, said)
        closed_lines.decide_line(FadingStates(cell), cell.rows, due_of(len(cell.b), said), c, said)


class FadingStates:
    """The states after t tokens, and what the logits are between two lengths."""

    def __init__(self, cell: GatedCell) -> None:
        self.cell, self.units = cell, list(zip(cell.keep[0], cell.add[0], strict=True))
        self.turns = 1 if all(f >= 0 for f, _ in self.units) else 2
        self.work = sum(len(W) * len(W[0]) for W in (cell.V, cell.W or [[]])) + 16 * len(self.units)

    def after(self, t: int) -> State:
        return [a * t if f == 1 or t == 1 else a * (1 - f**t) / (1 - f) for f, a in self.units]

    def limit(self) -> State:
        """What states come near, NaN where that is not known."""
        return [arb(0) if a == 0 else a / (1 - f) if abs(f) < 1 else arb("nan") for f, a in self.units]

    def gaps(self, low: int, high: int | None, k: int, right: int) -> Gaps:
        ends = self.after(low), self.limit() if high is None else self.after(high)
        logits = self.cell.logits([x.union(y) for x, y in zip(*ends, strict=True)], 0)
        gaps = {j: logits[right] - x for j, x in enumerate(logits) if j != right}
        return {j: (x, x) for j, x in gaps.items()}
