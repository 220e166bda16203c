"""Reading "dtype, any order": margin above error bound on every box, or a failing run, or open."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.readings import Rounded
from verify.frame.decide import Failure, Finding
from verify.tasks.count01.boxes import decide_boxes
from verify.tasks.count01.runs import find_failure, in_a_named_order, kernels_of, margin_of, name
from verify.tasks.count01.task import DecidablePrompts, PromptDomain, SideCell, Triple

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

LONGEST_SEARCHED = 1 << 22
ARGUMENT, BY_A_RUN = "margin above error bound, branch and bound over counts", "a run in the dtype"


def prove(problem: DecidablePrompts, reading: Rounded) -> Finding:
    """Decides the domain, or the largest one for which the proof closes where it has no bounds.

    The model's numbers are to be in the format already; matrix products and softmax may keep a wider one.
    """
    model, labels, at = problem.module, problem.labels, RoundedArithmetic.of(reading.format, reading.accumulate)
    domain = problem.domain if problem.domain.is_bounded else dtype_limit(model, labels, problem.domain, at)
    about, result = problem.on(domain), decide_boxes(model, labels, domain, at)
    kernels = kernels_of(model, reading.format, reading.accumulate)
    if result.is_proved:
        extra: dict[str, object] = {"boxes": result.boxes}
        if LONGEST_SEARCHED - 1 in (domain.max_digits, domain.max_noise, domain.max_length):
            extra["search_ended_at"] = LONGEST_SEARCHED - 1
        elif domain != problem.domain:
            beyond = find_failure(model, kernels, labels, problem.domain, shortest_beyond(domain))
            extra["beyond"] = [] if beyond is None else [beyond]
        return Finding.proved(ARGUMENT, result.margin, about=about, telling=about.telling(result.tightest), extra=extra)
    found = find_failure(model, kernels, labels, domain, 0)
    if found is not None:
        found = in_a_named_order(model, found, reading.format, reading.accumulate)
        return Finding.refuted(BY_A_RUN, Failure(found, margin_of(found)), about=about)
    return Finding.open(ARGUMENT, result.reason or undecided_reason(result.undecided), about=about)


def undecided_reason(undecided: tuple[Triple, SideCell] | None) -> str:
    """Names the input at which the error bound exceeds the margin."""
    assert undecided is not None
    n, cell = undecided
    where = f"(n0, n1, n2) = {n} after {name(cell.last)}"
    return f"the error bound exceeds the margin at {where}; no failing run found"


def shortest_beyond(domain: PromptDomain) -> int:
    """A length from which on a domain's outside is searched."""
    if domain.max_length is not None:
        return domain.max_length + 1
    return min(x for x in (domain.max_digits, domain.max_noise) if x is not None) + 1


def dtype_limit(model: Count01Model, labels: str, domain: PromptDomain, at: RoundedArithmetic) -> PromptDomain:
    """The largest domain for which the proof closes, along the one free bound: digits, noise, or length.

    Digits and length are at least 1: the empty prompt alone is no result.
    """
    if domain.max_digits is not None:
        return largest_domain(lambda k: replace(domain, max_noise=k), model, labels, at)
    if domain.max_noise is not None:
        found = largest_domain(lambda k: replace(domain, max_digits=k), model, labels, at)
        return replace(found, max_digits=max(1, found.max_digits or 0))
    found = largest_domain(lambda k: replace(domain, max_length=k), model, labels, at)
    return replace(domain, max_length=max(1, found.max_length or 0))


def largest_domain(
    family: Callable[[int], PromptDomain], model: Count01Model, labels: str, at: RoundedArithmetic
) -> PromptDomain:
    """The largest member (at least member 0) whose proof closes, by doubling and bisection."""

    def holds(k: int) -> bool:
        return decide_boxes(model, labels, family(k), at).is_proved

    if not holds(0):
        return family(0)
    low, high = 0, 1
    while high < LONGEST_SEARCHED and holds(high):
        low, high = high, high * 2
    return family(low + bisect_left(range(low + 1, high), True, key=lambda k: not holds(k)))
