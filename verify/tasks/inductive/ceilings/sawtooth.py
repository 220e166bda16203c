"""One scalar through ReLU neurons to m logits, in whole numbers: the network that reaches N(m, p + 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Scalar:
    """Logits slope_j t + offset_j + sum_i out_ij ReLU(t - kink_i): p neurons on one scalar t, and what passes by them.

    Shapes: kinks (p,); out (p, m); slope, offset (m,).
    """

    kinks: tuple[Fraction, ...]
    out: tuple[tuple[Fraction, ...], ...]
    slope: tuple[Fraction, ...]
    offset: tuple[Fraction, ...]

    def logits(self, t: Fraction) -> list[Fraction]:
        hidden = [max(t - kink, Fraction(0)) for kink in self.kinks]
        return [
            a * t + b + sum((h * row[j] for h, row in zip(hidden, self.out, strict=True)), Fraction(0))
            for j, (a, b) in enumerate(zip(self.slope, self.offset, strict=True))
        ]

    def right_up_to(self, m: int, times: Sequence[Fraction]) -> int:
        """The largest N with: at the first N times, class (n - 1) mod m has the only largest logit."""
        for n, t in enumerate(times):
            values = self.logits(t)
            best = max(values)
            if values[n % m] != best or values.count(best) > 1:
                return n
        return len(times)


def build(m: int, p: int) -> Scalar:
    """A sawtooth r = t - m (teeth before t) read by the lines r j - j^2 / 2, j = 1..m: two neurons a tooth.

    Neurons 2i and 2i + 1 lower r by m between t = (i + 1) m and the next length; an odd last one lowers it for ever.
    Claim: C-I5 (ours).

    >>> times = [Fraction(n) for n in range(1, 200)]
    >>> build(10, 18).right_up_to(10, times), build(10, 9).right_up_to(10, times), build(3, 0).right_up_to(3, times)
    (100, 51, 3)
    """
    kinks = tuple(Fraction((i // 2 + 1) * m + i % 2) for i in range(p))
    classes = [Fraction(j) for j in range(1, m + 1)]
    out = tuple(tuple((m if i % 2 else -m) * j for j in classes) for i in range(p))
    return Scalar(kinks, out, tuple(classes), tuple(-j * j / 2 for j in classes))
