"""The histogram problem of a model that is given as arrays: proved, and its tightest input run, without torch.

In a format the tightest input is evaluated from left to right, each operation rounded as it is there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from constructions.histogram_arrays import HistogramArrays
from verify.arithmetic.contract import STORED
from verify.arithmetic.evaluation import Evaluation
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.margins import OneRun, margins_of
from verify.arithmetic.readings import Reading, Rounded
from verify.frame.decide import Effort, Finding, Item
from verify.tasks.histogram import proof
from verify.tasks.histogram.agreement import look_at
from verify.tasks.histogram.stored import StoredModel
from verify.tasks.histogram.task import RIGHT, assumptions_in, formula, parameters

if TYPE_CHECKING:
    from constructions.histogram import HistogramTransformer

ArrayProof = Callable[["ArrayHistogram", Any, Effort], Finding]


def _in_real_arithmetic(problem: ArrayHistogram, reading: Reading, effort: Effort) -> Finding:
    return proof.prove(problem, effort)


@dataclass(frozen=True)
class ArrayHistogram:
    """One model as arrays, at its own length: a `Provable` in real arithmetic and in every format.

    >>> from constructions import relation_counting_arrays
    >>> from verify.frame.decide import certify
    >>> certify(ArrayHistogram.of(relation_counting_arrays.dot(T=8, L=4), "A-4.2")).verdict.value
    'PROVED'
    """

    arrays: HistogramArrays
    stored: StoredModel
    claim: str | None
    proof: ArrayProof
    task = "histogram"

    @classmethod
    def of(cls, arrays: HistogramArrays, claim: str | None, prove: ArrayProof | None = None) -> ArrayHistogram:
        """The problem with the proof of a reading, by default of real arithmetic."""
        return cls(arrays, StoredModel.of_arrays(arrays), claim, prove or _in_real_arithmetic)

    def parameters(self, reading: Reading) -> dict[str, object]:
        return parameters(self.stored, self.arrays.dtype, reading)

    def size(self) -> int:
        return int(self.stored.T**self.stored.L)

    def assumptions(self, reading: Reading) -> tuple[str, ...]:
        return assumptions_in(reading) if isinstance(reading, Rounded) else (formula(self.stored), STORED, RIGHT)

    def facts(self) -> dict[str, object]:
        return {}

    def prove(self, reading: Reading, effort: Effort) -> Finding:
        return self.proof(self, reading, effort)

    def look(self, item: Item, answer: int, reading: Reading) -> OneRun:
        tokens, fmt = list(item), FORMATS[self.arrays.dtype]
        if isinstance(reading, Rounded):
            from verify.tasks.histogram.rounded.forward import margins

            at = Evaluation(reading.format, reading.accumulate)
            margin = float(margins(self.stored, np.array([tokens]), at)[0, answer])
            return OneRun(at_most=-math.inf if math.isnan(margin) else margin)
        return look_at(self.stored, tokens, answer, fmt, lambda: self.margin(tokens, answer))

    @property
    def module(self) -> HistogramTransformer:
        """The torch module, made where it is asked for."""
        return self.arrays.module()

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
