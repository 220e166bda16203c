"""One ReLU layer on one real number, decided exactly: every logit difference is a broken line."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from torch import Tensor


@dataclass(frozen=True)
class ScalarLayer:
    """The stored numbers of a ReLU layer with one input, as exact fractions."""

    slopes: tuple[Fraction, ...]
    offsets: tuple[Fraction, ...]
    readout: tuple[tuple[Fraction, ...], ...]  # (neurons, answers)
    bias: tuple[Fraction, ...]

    @classmethod
    def of(cls, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> ScalarLayer:
        rows = tuple(exact(row) for row in W_2)
        return cls(exact(W_1.flatten()), exact(b_1), rows, exact(b_2))

    def outputs(self, x: Fraction) -> tuple[Fraction, ...]:
        hidden = [max(Fraction(0), a * x + b) for a, b in zip(self.slopes, self.offsets, strict=True)]
        return tuple(
            c + sum((h * row[j] for h, row in zip(hidden, self.readout, strict=True)), Fraction(0))
            for j, c in enumerate(self.bias)
        )

    def least_margin(self, low: Fraction, high: Fraction, right: int) -> tuple[Fraction, Fraction]:
        """The least (right logit) - (largest other) on an interval, and where it is reached.

        The margin is the least of finitely many broken lines, and each of them is least at an end or at a bend.
        """
        bends = (-b / a for a, b in zip(self.slopes, self.offsets, strict=True) if a)
        places = sorted({low, high, *(x for x in bends if low < x < high)})
        return min((self.margin(x, right), x) for x in places)

    def margin(self, x: Fraction, right: int) -> Fraction:
        outputs = self.outputs(x)
        return min(outputs[right] - y for j, y in enumerate(outputs) if j != right)


def exact(values: Tensor) -> tuple[Fraction, ...]:
    return tuple(Fraction(x) for x in values.detach().double().tolist())
