"""The histogram problem in every reading, for callers that choose one."""

from __future__ import annotations

from constructions.histogram import HistogramTransformer
from verify.arithmetic.readings import ConstantBits, Reading, Real, Rounded
from verify.frame import decide
from verify.frame.certificate import Certificate
from verify.frame.clock import Budget
from verify.frame.decide import Effort, Finding
from verify.tasks.histogram import constant_bits, proof
from verify.tasks.histogram.problem import Histogram
from verify.tasks.histogram.rounded import verdict as rounded
from verify.tasks.histogram.task import Progress


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


def exhaustive(
    module: HistogramTransformer,
    *,
    L: int | None = None,
    claim: str | None = None,
    budget: float | Budget = 30.0,
    progress: Progress | None = None,
    s: int | None = None,
) -> Certificate:
    """Runs the module on all T^L sequences, as torch does or with s bits, and counts every wrong one.

    Units: budget in seconds.
    Raises: BadInput when the run would take longer than the budget, with the estimated time.

    >>> from constructions import relation_counting
    >>> exhaustive(relation_counting.dot(T=4, L=3)).inputs_covered
    64
    """
    effort = Effort(budget, progress=progress or decide.silent)
    return decide.exhaustive(problem(module, L=L, claim=claim), None if s is None else ConstantBits(s), effort)


def sampled(
    module: HistogramTransformer, *, L: int | None = None, claim: str | None = None, seed: int = 0, s: int | None = None
) -> Certificate:
    """Runs the module on sequences drawn by recursive partitions; shrinks a failure, and never proves.

    Claim: A-D for the sampler.

    >>> from constructions import relation_counting
    >>> wrong = sampled(relation_counting.bos(T=4, L=3, as_printed=True))
    >>> wrong.verdict.value, wrong.counterexample["tokens"]
    ('REFUTED', [0, 0, 1])
    """
    return decide.sampled(problem(module, L=L, claim=claim), None if s is None else ConstantBits(s), Effort(seed=seed))
