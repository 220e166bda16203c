"""The histogram problem in every reading, for callers that choose one."""

from __future__ import annotations

from constructions.histogram import HistogramTransformer
from verify.arithmetic.readings import ConstantBits, Reading, Real, Rounded
from verify.frame.decide import Effort, Finding
from verify.tasks.histogram import constant_bits, proof
from verify.tasks.histogram.problem import Histogram
from verify.tasks.histogram.rounded import verdict as rounded


def problem(module: HistogramTransformer, *, L: int | None = None, claim: str | None = None) -> Histogram:
    """The problem of a model at length L, its own by default.

    Raises: BadInput for a module that is not judged, weights that are not finite, or an L that it has no classes for.
    """
    return Histogram.of(module, L, claim, prove)


def prove(problem: Histogram, reading: Reading, effort: Effort) -> Finding:
    """By the proof that the reading has."""
    if isinstance(reading, Rounded):
        return rounded.prove(problem, reading, effort)
    if isinstance(reading, ConstantBits):
        return constant_bits.prove(problem, reading, effort)
    assert isinstance(reading, Real)
    return proof.prove(problem, effort)
