"""How the bracket on a model's accuracy narrows while it is decided, for the eye: no verdict rests on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from verify.frame.clock import wall

Bracket = tuple[float, Fraction, Fraction]  # after these seconds the accuracy lies between these shares
MOST = 200  # points that are kept; every other one goes when there are more


@dataclass
class OverTime:
    """How many inputs were known to be right and wrong after how many seconds of this machine.

    >>> seen = OverTime()
    >>> for right in range(1001):
    ...     seen.see(right, 0, is_last=right == 1000)
    >>> len(seen.points) <= MOST + 1, seen.brackets(2000)[-1][1:]
    (True, (Fraction(1, 2), Fraction(1, 1)))
    """

    started: float = field(default_factory=wall)
    points: list[tuple[float, int, int]] = field(default_factory=list)
    calls: int = 0
    every: int = 1

    def see(self, right: int, wrong: int, *, is_last: bool = False) -> None:
        """Keeps what is known now, or leaves it out where there are many points; the last one stays."""
        self.calls += 1
        if self.calls % self.every and not is_last:
            return
        self.points.append((wall() - self.started, right, wrong))
        if len(self.points) > MOST and not is_last:
            self.points, self.every = self.points[::2], 2 * self.every

    def brackets(self, inputs: int) -> list[Bracket]:
        """Seconds, and between which shares of so many inputs the accuracy was known to lie."""
        return [(t, Fraction(right, inputs), 1 - Fraction(wrong, inputs)) for t, right, wrong in self.points]
