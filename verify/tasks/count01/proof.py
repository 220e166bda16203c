"""Reading "real": one head exactly, several by branch and bound, layer norm with many roots triple by triple."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from constructions.errors import BadInput
from constructions.model_arrays import module_of
from verify.arithmetic.exact_reals import Undecided, float_of
from verify.frame.decide import Failure, Finding
from verify.tasks.count01.boxes import decide_boxes
from verify.tasks.count01.layer_norm import common_root
from verify.tasks.count01.layer_norm.counting import LARGEST, wrong_inputs
from verify.tasks.count01.layer_norm.margins import lead_at, least_margin
from verify.tasks.count01.layer_norm.numbers import model_numbers
from verify.tasks.count01.real import (
    Decision,
    ExactFailure,
    ExactModel,
    decide,
    exact_model,
    failures,
    holds,
    largest_digits,
    largest_noise,
    logit_differences,
    margin_at,
)
from verify.tasks.count01.runs import name, replay
from verify.tasks.count01.task import EQUALS, DecidablePrompts, PromptDomain, answer

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

DEFAULT_DIGITS = 1000
BITS, FLOAT_BITS = (256, 1024, 4096), 53  # of a difference, and of the margin that is said
BY_LISTING = "every triple, with as many digits as it takes"
BY_INEQUALITIES, BY_BOXES = "exact linear inequalities", "branch and bound over counts"


def prove(problem: DecidablePrompts) -> Finding:
    """Decides the domain, or finds the largest one where it has no bounds.

    Raises: BadInput for several heads, layer norm or scaled scores without bounds on the counts.
    """
    model, domain = problem.module, problem.domain
    try:
        if model.has_norm or model.scale != 1:
            exact = None if domain.max_length is not None else common_root.exact_model(model)
            return listed(problem) if exact is None else one_head(problem, exact)
        if model.heads == 1 and domain.max_length is None:
            return one_head(problem, exact_model(model))
        return several_heads(problem)
    except Undecided as error:
        return Finding.open("exact signs", str(error))


def listed(problem: DecidablePrompts) -> Finding:
    """Layer norm or scaled scores: every triple of a bounded domain, digits near ties."""
    domain = problem.domain
    if not domain.is_bounded or domain.size() > LARGEST:
        raise BadInput(
            f"weights: layer norm and scaled scores are decided on at most {LARGEST} triples; "
            "give --max-digits and --max-noise"
        )
    numbers = model_numbers(problem.module)
    found = wrong_inputs(numbers, domain, problem.labels)
    assert found is not None
    if found.first is None:
        least = least_margin(numbers, domain, problem.labels)
        telling = problem.telling([(least.n, least.last)])
        return Finding.proved(BY_LISTING, least.margin, tightest=least.described(), telling=telling)
    n, last, due = found.first
    lead, rival = lead_at(numbers, domain, problem.labels, n, last)
    run = replayed(problem.module, ExactFailure(n, last, due, rival, lead))
    extra = wrong_share(problem.module, domain, problem.labels)
    return Finding.refuted(BY_LISTING, Failure(run, lead), extra=extra)


def wrong_share(model: Count01Model, domain: PromptDomain, labels: str) -> dict[str, object]:
    """The exact number and share of wrong inputs; nothing where they are too many to list or one stays open."""
    try:
        found = wrong_inputs(model_numbers(model), domain, labels)
    except Undecided:
        return {}
    if found is None:
        return {}
    counts = {"right": str(found.inputs - found.wrong), "wrong": str(found.wrong)}
    return {"counts": counts, "wrong_share": str(Fraction(found.wrong, found.inputs))}


def one_head(problem: DecidablePrompts, exact: ExactModel) -> Finding:
    """One head: exact, bounded or not."""
    labels = problem.labels
    domain, beyond = limits_of(exact, labels, problem.domain)
    problem, decision = problem.on(domain), decide(exact, labels, domain)
    if decision.failures:
        return refuted(problem, exact, decision.failures, BY_INEQUALITIES)
    further = [replayed(problem.module, against_largest(exact, failure)) for failure in beyond]
    return proved(problem, decision, {"beyond": further} if further else {})


def limits_of(exact: ExactModel, labels: str, domain: PromptDomain) -> tuple[PromptDomain, list[ExactFailure]]:
    """The domain itself where it holds or is bounded; else the largest noise, then the largest digits.

    The noise is the largest for max_digits (1000 where none is given), the digits the largest for that
    noise; with them come the failures one step further.
    """
    if domain.is_bounded or holds(exact, labels, domain):
        return domain, []
    noise = domain.max_noise
    if noise is None:
        digits = DEFAULT_DIGITS if domain.max_digits is None else domain.max_digits
        noise = largest_noise(exact, labels, digits, is_semantic=domain.is_semantic)
    if noise == -1 and domain.max_digits is None:
        shorter = largest_digits(exact, labels, 0, is_semantic=domain.is_semantic)
        noise = -1
        if shorter is not None and shorter > 0:
            noise = largest_noise(exact, labels, shorter, is_semantic=domain.is_semantic)
    if noise == -1:
        return replace(domain, max_digits=1 if domain.max_digits is None else domain.max_digits, max_noise=0), []
    digits_limit = domain.max_digits
    if digits_limit is None:
        digits_limit = largest_digits(exact, labels, noise, is_semantic=domain.is_semantic)
    if digits_limit is not None and digits_limit < 1 and domain.max_digits is None:
        return replace(domain, max_digits=1, max_noise=noise), []
    resolved = replace(domain, max_digits=digits_limit, max_noise=noise)
    steps = []
    if domain.max_noise is None and noise is not None:
        steps.append(replace(domain, max_digits=min(digits_limit or 1, DEFAULT_DIGITS), max_noise=noise + 1))
    if domain.max_digits is None and digits_limit is not None:
        steps.append(replace(domain, max_digits=digits_limit + 1, max_noise=noise))
    found = [failures(exact, labels, step) for step in steps]
    return resolved, [first for first, *_ in filter(None, found)]


def several_heads(problem: DecidablePrompts) -> Finding:
    """Any number of heads: branch and bound on a bounded domain."""
    if not problem.domain.is_bounded:
        raise BadInput(
            f"heads={problem.module.heads}: the proof for several heads needs bounds; "
            "give --max-digits and --max-noise, or --length"
        )
    result = decide_boxes(problem.module, problem.labels, problem.domain, None)
    extra = {"boxes": result.boxes}
    if result.failure is not None:
        return refuted(problem, exact_model(problem.module), (result.failure,), BY_BOXES)
    if not result.is_proved:
        return Finding.open(BY_BOXES, result.reason or "boxes stay open", extra=extra)
    return Finding.proved(BY_BOXES, result.margin, telling=problem.telling(result.tightest), extra=extra)


def replayed(model: Count01Model, failure: ExactFailure) -> dict[str, object]:
    """A failure of exact arithmetic with the module's own run of it beside it.

    `fails` says whether torch shows it too; where it does not, its rounding hides a decided difference, and
    `predicted` is the rival that exact arithmetic puts first or level.
    """
    run = replay(model, failure.n, failure.last, failure.expected)
    predicted = run["predicted"] if run["fails"] else name(failure.rival)
    return {**run, "predicted": predicted, "margin": failure.margin}


def against_largest(exact: ExactModel, failure: ExactFailure) -> ExactFailure:
    """The same input and the rival that is largest there: a form may have failed against a smaller one."""
    rivals = [j for j in range(exact.classes) if j != failure.expected]
    for bits in BITS:
        differences = logit_differences(exact, failure.n, failure.last, failure.expected, bits)
        rival = min(rivals, key=lambda j: differences[j].lower())
        if differences[rival].rel_accuracy_bits() > FLOAT_BITS:  # not where large numbers cancel
            break
    if not differences[rival] < 0:  # all that fail are ties
        return failure
    margin = float_of(differences[rival] / exact.scale.ball(bits))
    return replace(failure, rival=rival, margin=margin, margin_exact=None)


def refuted(problem: DecidablePrompts, exact: ExactModel, failures: tuple[ExactFailure, ...], argument: str) -> Finding:
    """REFUTED in exact arithmetic, preferring a failure that torch's kernel shows as well.

    Rounding can hide a tie; then one digit more may show it.
    """
    model, domain, labels = module_of(problem.module), problem.domain, problem.labels
    by_input = {(failure.n, failure.last): against_largest(exact, failure) for failure in reversed(failures)}
    runs = ((failure, replayed(model, failure)) for failure in reversed(by_input.values()))
    failure, run = first = next(runs)
    if not run["fails"]:
        wider = (f for seed in by_input.values() for f in one_more(exact, seed, domain, labels))
        candidates = itertools.chain(runs, ((f, replayed(model, f)) for f in wider))
        failure, run = next((pair for pair in candidates if pair[1]["fails"]), first)
    found = Failure(run, failure.margin, failure.margin_exact)
    return Finding.refuted(argument, found, about=problem, extra=wrong_share(model, domain, labels))


def one_more(exact: ExactModel, seed: ExactFailure, domain: PromptDomain, labels: str) -> Iterator[ExactFailure]:
    """The failures among the inputs with one digit, or one 0 and one 1, more than a failure."""
    for step in ((0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0)):
        n = (seed.n[0] + step[0], seed.n[1] + step[1], seed.n[2] + step[2])
        expected = answer(n[0], n[1], labels) if seed.last == EQUALS else seed.expected
        if n in domain:
            sign, rival, ball = margin_at(exact, n, seed.last, expected)
            if sign <= 0:
                failure = ExactFailure(n, seed.last, expected, rival, float_of(ball), None if sign else "0")
                yield against_largest(exact, failure)


def proved(problem: DecidablePrompts, decision: Decision, extra: dict[str, object]) -> Finding:
    """Proves by one head's linear inequalities. Where the infimum is 0, the bound is on margin times normaliser."""
    tightest = decision.tightest
    if tightest is not None:
        names = {k: name(v) for k, v in tightest.items() if isinstance(v, int)}
        tightest = {**tightest, **names}
    has_zero = decision.has_infimum_zero
    return Finding.proved(
        BY_INEQUALITIES,
        None if has_zero else decision.margin,
        tightest=tightest,
        about=problem,
        telling=problem.telling(decision.telling),
        extra=extra | ({"margin_scaled": decision.margin_scaled} if has_zero else {}),
    )
