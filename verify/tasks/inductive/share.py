"""The share of inputs that are answered rightly at document C's lengths, every shift, start and length alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from verify.counting.tasks import Line


class InputRange(NamedTuple):
    """Inputs of some lengths, at shifts before `end`, or at all of them."""

    lengths: range
    end: int | None = None

    def within(self, shifts: range) -> range:
        """Those of some shifts that belong to the part.

        >>> InputRange(range(1, 3), end=4).within(range(2, 9)), len(InputRange(range(1, 3), end=4).within(range(5, 9)))
        (range(2, 4), 0)
        """
        return shifts if self.end is None else range(shifts.start, min(shifts.stop, self.end))

    def __str__(self) -> str:
        lengths = f"{self.lengths.start}..{self.lengths.stop - 1}"
        return lengths if self.end is None else f"{lengths}, shifts 0..{self.end - 1}"


@dataclass
class Share:
    """Counts of inputs that are right and wrong at their last token, for each part of the inputs.

    C's accuracy, every input (shift, start, length) alike: exact where none is open, else between two fractions.
    `is_counted` says of which lines.
    """

    parts: Mapping[str, InputRange]
    is_counted: Callable[[Line], bool] = lambda line: True
    counted: dict[str, list[int]] = field(default_factory=dict)

    def add(
        self,
        lines: list[Line],
        right: np.ndarray,
        wrong: np.ndarray,
        shifts: range,
        times: Callable[[range, int], np.ndarray],
    ) -> None:
        """Counts the prefixes of lines, which are answered alike at all of the shifts.

        `right` and `wrong` (lines, positions) are what is known of each, and `times` says of some shifts and the number
        of positions at how many each position exists.
        """
        place = np.arange(right.shape[1])
        length = place - np.array([[line.leading - 1] for line in lines])
        ends = [len(line.tokens) if self.is_counted(line) else 0 for line in lines]
        exists = place < np.array(ends)[:, None]
        for name, part in self.parts.items():
            here = exists & (length >= part.lengths.start) & (length < part.lengths.stop)
            often = times(part.within(shifts), right.shape[1])
            found = [int(((here & known).sum(0) * often).sum()) for known in (right, wrong, np.ones_like(right))]
            if found[2]:
                self.counted[name] = [a + b for a, b in zip(self.counted.get(name, [0, 0, 0]), found, strict=True)]

    def found(self) -> dict[str, list[str]]:
        """For each part that has inputs, its lengths with a lower and an upper bound on the share."""
        out = {}
        for name, (right, wrong, total) in self.counted.items():
            bounds = (Fraction(right, total), 1 - Fraction(wrong, total))
            out[str(self.parts[name])] = [f"{x.numerator}/{x.denominator}" for x in bounds]
        return out
