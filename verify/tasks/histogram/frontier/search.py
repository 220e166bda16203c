"""The smallest embedding size d that is proved for a histogram model: search, prove, descend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from bounds import coherent_counting
from constructions import fewer_dimensions
from constructions.coded_inventory import CARRIER, on_code
from constructions.codes import library as code_library
from constructions.codes.code import Code
from constructions.errors import BadInput, NotKnown
from constructions.histogram import HistogramTransformer, check_sizes, named
from verify.frame.certificate import Certificate, Verdict
from verify.frame.clock import NOT_REACHED, Budget, Deadline, TimeIsUp
from verify.frame.decide import Effort, silent
from verify.tasks.histogram.proof import certify

Report = Callable[[str], None]
PROOF = 30.0  # seconds of one proof, where no budget is given


@dataclass
class Frontier:
    """The smallest proved d of one model at (T, L), what was tried below it, and what is known from below.

    `lower_bound` holds for the construction's shape (`lower_bound_scope`), never for all weights.
    """

    model: str
    T: int
    L: int
    p: int
    d: int
    module: HistogramTransformer
    certificate: Certificate
    tried: dict[int, str] = field(default_factory=dict)
    lower_bound: int = 1
    lower_bound_scope: str = "every model"


def smallest_d(
    model: str,
    T: int,
    L: int,
    *,
    seed: int = 0,
    steps: int = 3000,
    dtype: torch.dtype = torch.float64,
    report: Report | None = None,
    budget: float | Budget | None = None,
) -> Frontier:
    """Finds by bisection the smallest d at which a code is found and its weights are PROVED. Never returns an unproved
    d.

    `budget` is of all searches and proofs together; where it is over before the end, the smallest d so far is
    returned, and what was not reached is among what was tried.

    Claim: W-2 and W-6 for inventory counting (p = T), W-3 for bos+sftm (p = 1, d = 3).
    Raises: BadInput for sizes that make no sense; TimeIsUp where the time is over before any d is proved.

    >>> frontier = smallest_d("bos+sftm", 8, 4)
    >>> frontier.d, frontier.certificate.verdict.value
    (3, 'PROVED')
    """
    check_sizes(model, T=T, L=L, d=1, p=1)
    if model == "bos+sftm":
        return _on_the_circle(T, L, dtype)
    bound, scope = _lower_bound(model, T, L)
    until = Deadline.never() if budget is None else Effort(budget).end()

    def prove(d: int, steps: int) -> tuple[HistogramTransformer, Certificate] | None:
        code = code_library.find(CARRIER[model], T, L, d, seed=seed, steps=steps, progress=until.ending(silent))
        hit = _proved(model, code, L, dtype, PROOF if budget is None else Effort(budget).left(until).limit)
        if hit is None:
            until.check()
        return hit

    # Orthonormal tokens are a code at d = T, so the search for something better starts below it.
    best = prove(T, 300)
    if best is None:
        raise BadInput(f"T={T}, L={L}: not even d = T was proved. Use --dtype float64 or a smaller L.")
    low, high, tried = bound, T, {}
    while low < high:
        d = (low + high) // 2
        try:
            hit = prove(d, steps)
        except TimeIsUp:
            tried[d] = NOT_REACHED
            break
        tried[d] = "PROVED" if hit else "no code found"
        if report is not None:
            report(f"{model} T={T} L={L} d={d}: {tried[d]}")
        if hit is None:
            low = d + 1
        else:
            best, high = hit, d
    module, certificate = best
    return Frontier(model, T, L, T, high, module, certificate, tried, bound, scope)


def _on_the_circle(T: int, L: int, dtype: torch.dtype) -> Frontier:
    module = fewer_dimensions.sphere("bos+sftm", T=T, L=L, d=3, dtype=dtype)
    return Frontier("bos+sftm", T, L, 1, 3, module, certify(module))


def _proved(
    model: str, code: Code, L: int, dtype: torch.dtype, budget: float | Budget
) -> tuple[HistogramTransformer, Certificate] | None:
    """The model on a code, where it is PROVED."""
    if not code.gap > 0:
        return None
    try:
        module = on_code(model, code, L=L, dtype=named(dtype)).module()
    except NotKnown:
        return None
    certificate = certify(module, budget=budget)
    return (module, certificate) if certificate.verdict is Verdict.PROVED else None


def _lower_bound(model: str, T: int, L: int) -> tuple[int, str]:
    scope = "inventory counting with one neuron per token (W-6)"
    if CARRIER[model] == "lin":
        return coherent_counting.rank_bound_lin(L, T), scope
    if CARRIER[model] == "dot":
        return coherent_counting.rank_bound_dot(L, T), scope
    return 1, "every model"
