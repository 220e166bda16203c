"""The histogram problem of a model that is given as arrays: proved, and its tightest input run, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from constructions.histogram_arrays import HistogramArrays
from verify.arithmetic.contract import STORED
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.margins import margins_of
from verify.arithmetic.readings import Reading
from verify.frame.decide import Effort, Finding, Item, OneRun
from verify.tasks.histogram import proof
from verify.tasks.histogram.agreement import look_at
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import RIGHT, formula, parameters


@dataclass(frozen=True)
class ArrayHistogram:
    """One model as arrays, at its own length: a `Provable` in real arithmetic.

    >>> from constructions.histogram_arrays import relation
    >>> from verify.frame.decide import certify
    >>> certify(ArrayHistogram.of(relation(model="dot", T=8, L=4), "A-4.2")).verdict.value
    'PROVED'
    """

    arrays: HistogramArrays
    stored: StoredModel
    claim: str | None
    task = "histogram"

    @classmethod
    def of(cls, arrays: HistogramArrays, claim: str | None) -> ArrayHistogram:
        return cls(arrays, StoredModel.of_arrays(arrays), claim)

    def parameters(self, reading: Reading) -> dict[str, object]:
        return parameters(self.stored, self.arrays.dtype)

    def size(self) -> int:
        return int(self.stored.T**self.stored.L)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        return (formula(self.stored), STORED, RIGHT)

    def facts(self) -> dict[str, object]:
        return {}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        return proof.prove(self, effort)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        tokens, fmt = list(item), FORMATS[self.arrays.dtype]
        return look_at(self.stored, tokens, answer, fmt, lambda: self.margin(tokens, answer))

    def length_of(self, item: Item) -> int:
        return len(item)

    def predict(self, tokens: Sequence[int], position: int) -> int:
        """The count that the model answers at a position."""
        return self.arrays.predict(tokens)[position]

    def margin(self, tokens: Sequence[int], position: int) -> float:
        """(right logit) - (largest other logit) of a run of the arrays."""
        logits = self.arrays.logits(tokens)[position].astype(np.float64)
        right = self.stored.class_of(list(tokens).count(tokens[position]))
        return float(margins_of(logits, right))
