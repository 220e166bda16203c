"""The share of inputs that are answered rightly at document C's lengths, every shift, start and length alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from torch import Tensor

from verify.inductive.tasks import Line


@dataclass
class Share:
    """Counts of inputs that are right and wrong at their last token, for each range of lengths.

    C's accuracy, every input (shift, start, length) alike: exact where none is open, else between two fractions.
    """

    ranges: Mapping[str, range]
    counted: dict[str, list[int]] = field(default_factory=dict)

    def add(self, lines: list[Line], right: Tensor, wrong: Tensor) -> None:
        """Counts the prefixes of lines; `right` and `wrong` (lines, positions) are what is known of each."""
        for row, line in enumerate(lines):
            for name, part in self.ranges.items():
                first, last = part.start + line.leading - 1, min(part.stop + line.leading - 1, len(line.tokens))
                if first < last:
                    counts = self.counted.setdefault(name, [0, 0, 0])
                    counts[0] += int(right[row, first:last].sum())
                    counts[1] += int(wrong[row, first:last].sum())
                    counts[2] += last - first

    def found(self) -> dict[str, list[str]]:
        """For each range that has inputs, its lengths with a lower and an upper bound on the share."""
        out = {}
        for name, (right, wrong, total) in self.counted.items():
            part = self.ranges[name]
            bounds = (Fraction(right, total), 1 - Fraction(wrong, total))
            out[f"{part.start}..{part.stop - 1}"] = [f"{x.numerator}/{x.denominator}" for x in bounds]
        return out
