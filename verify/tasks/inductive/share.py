"""The share of inputs that are answered rightly at document C's lengths, every shift, start and length alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import torch
from torch import Tensor

from verify.counting.tasks import Line


@dataclass
class Share:
    """Counts of inputs that are right and wrong at their last token, for each range of lengths.

    C's accuracy, every input (shift, start, length) alike: exact where none is open, else between two fractions.
    `is_counted` says of which lines.
    """

    ranges: Mapping[str, range]
    is_counted: Callable[[Line], bool] = lambda line: True
    counted: dict[str, list[int]] = field(default_factory=dict)

    def add(self, lines: list[Line], right: Tensor, wrong: Tensor, times: Tensor) -> None:
        """Counts the prefixes of lines.

        `right` and `wrong` (lines, positions) are what is known of each, `times` (positions,) at how many shifts.
        """
        place = torch.arange(right.shape[1])
        length = place - torch.tensor([[line.leading - 1] for line in lines])
        ends = [len(line.tokens) if self.is_counted(line) else 0 for line in lines]
        exists = place < torch.tensor(ends)[:, None]
        for name, part in self.ranges.items():
            here = exists & (length >= part.start) & (length < part.stop)
            found = [int(((here & known).sum(0) * times).sum()) for known in (right, wrong, torch.ones_like(right))]
            if found[2]:
                self.counted[name] = [a + b for a, b in zip(self.counted.get(name, [0, 0, 0]), found, strict=True)]

    def found(self) -> dict[str, list[str]]:
        """For each range that has inputs, its lengths with a lower and an upper bound on the share."""
        out = {}
        for name, (right, wrong, total) in self.counted.items():
            part = self.ranges[name]
            bounds = (Fraction(right, total), 1 - Fraction(wrong, total))
            out[f"{part.start}..{part.stop - 1}"] = [f"{x.numerator}/{x.denominator}" for x in bounds]
        return out
