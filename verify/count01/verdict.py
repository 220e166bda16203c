"""Count01, decided: the certificate of a model in one of the three readings, and the limits it has."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from constructions.count01 import TOKENS, Count01Transformer, check_labels
from constructions.errors import BadInput
from verify.arithmetic.exact_reals import Undecided
from verify.arithmetic.formats import Format
from verify.arithmetic.torch_settings import warn_if_lowered
from verify.certificate import (
    CERTIFIED,
    EXHAUSTIVE,
    READING_BIT_EXACT,
    READING_DTYPE,
    READING_REAL,
    Certificate,
    Verdict,
)
from verify.count01.agreement import contradiction
from verify.count01.boxes import LARGEST_COUNT, decide_boxes
from verify.count01.heads.counting import LARGEST, wrong_inputs
from verify.count01.heads.numbers import model_numbers
from verify.count01.judged import judged
from verify.count01.real import (
    Decision,
    ExactModel,
    Failure,
    decide,
    exact_model,
    holds,
    largest_digits,
    largest_noise,
    margin_at,
)
from verify.count01.rounding import TwoFormats, assumptions
from verify.count01.runs import find_failure, kernels_of, name, replay, run_strings, run_triples
from verify.count01.task import EQUALS, Region, answer
from verify.decide import BUG, EVERY_INPUT

DEFAULT_DIGITS = 1000
LONGEST_SEARCHED = 1 << 22
LONGEST_STRINGS = 40  # far beyond what can be run; 3^strings is still a short number
SEMANTIC_INPUTS = "triples (n0, n1, n2) after =; each triple stands for every order of its digits"
INPUTS = "triples (n0, n1, n2) times the last tokens =, 4, 5; each triple stands for every order of its digits"


@dataclass(frozen=True)
class Settings:
    """What a certificate repeats: the claim, the label convention and how the model was made."""

    labels: str
    claim: str | None
    parameters: dict[str, Any]


def certify(
    model: Count01Transformer,
    labels: str,
    region: Region,
    *,
    fmt: Format | None = None,
    accumulate: Format | None = None,
    claim: str | None = None,
    parameters: dict[str, Any] | None = None,
) -> Certificate:
    """Decides a model on every prompt of a region, and on 4 and 5 after it; without limits it finds them.

    Claim: D, E-5, W-10. `fmt` None is the reading "real"; a format is "dtype, any order" in it, where matrix products
        and softmax may keep the wider format `accumulate`. The model's numbers are to be in the format already.
    Raises: BadInput for unknown labels, too narrow an `accumulate`, or several heads in the reading real without
        bounds on the counts.

    >>> from constructions.count01 import uniform
    >>> certify(uniform(), "majority-ones", Region()).verdict.value
    'PROVED'
    """
    check_labels(labels)
    model = judged(model)
    check_least_digits(region)
    for bound in (region.max_digits, region.max_noise, region.max_length):
        is_exact = fmt is None and model.heads == 1 and region.max_length is None
        if bound is not None and (bound < 0 or (bound > LARGEST_COUNT and not is_exact)):
            raise BadInput(f"bound={bound}: must be between 0 and {LARGEST_COUNT} (more: one head, reading real)")
    start = time.perf_counter()
    settings = Settings(labels, claim, parameters or {})
    try:
        if fmt is not None:
            warn_if_lowered(fmt)
            certificate = in_dtype(model, region, fmt, accumulate, settings)
        elif model.has_norm or model.scale != 1:
            certificate = listed(model, region, settings)
        elif model.heads == 1 and region.max_length is None:
            certificate = one_head(model, region, settings)
        else:
            certificate = several_heads(model, region, settings)
    except Undecided as error:
        certificate = finish(settings, Verdict.UNKNOWN, region, READING_REAL, "exact signs", reason=str(error))
    certificate = compared(certificate, model, labels, region, settings)
    return replace(certificate, seconds=time.perf_counter() - start)


def compared(
    certificate: Certificate, model: Count01Transformer, labels: str, region: Region, settings: Settings
) -> Certificate:
    """The proof, or UNKNOWN where a run of the module contradicts it."""
    if certificate.verdict is not Verdict.PROVED:
        return certificate
    disagrees = contradiction(model, labels, region, certificate.tightest)
    if disagrees is None:
        return certificate
    reason = f"{disagrees}: {BUG}"
    return finish(settings, Verdict.UNKNOWN, region, certificate.reading, certificate.argument or "", reason=reason)


def check_least_digits(region: Region) -> None:
    """Raises BadInput for least counts without largest ones, or above them."""
    if any(region.origin) and not region.is_bounded:
        raise BadInput("--min-digits, --min-noise: go with --max-digits and --max-noise; give both")
    if min(region.origin) < 0 or not region.is_possible:
        raise BadInput(f"{region}: no counts are so; raise the upper bounds or lower the lower ones")


def listed(model: Count01Transformer, region: Region, settings: Settings) -> Certificate:
    """Reading real, layer norm or scaled scores: every triple of a bounded region, digits near ties."""
    if not region.is_bounded or region.size() > LARGEST:
        raise BadInput(
            f"weights: layer norm and scaled scores are decided on at most {LARGEST} triples; "
            "give --max-digits and --max-noise"
        )
    found, method = (
        wrong_inputs(model_numbers(model), region, settings.labels),
        "every triple, with as many digits as it takes",
    )
    assert found is not None
    if found.first is None:
        return finish(settings, Verdict.PROVED, region, READING_REAL, method)
    n, last, due = found.first
    run = replay(model, n, last, due)
    return finish(
        settings,
        Verdict.REFUTED,
        region,
        READING_REAL,
        method,
        counterexample=run,
        extra=wrong_share(model, region, settings),
    )


def wrong_share(model: Count01Transformer, region: Region, settings: Settings) -> dict[str, Any]:
    """The exact number and share of wrong inputs; nothing where they are too many to list or one stays open."""
    try:
        found = wrong_inputs(model_numbers(model), region, settings.labels)
    except Undecided:
        return {}
    if found is None:
        return {}
    counts = {"right": str(found.inputs - found.wrong), "wrong": str(found.wrong)}
    return {"counts": counts, "wrong_share": str(Fraction(found.wrong, found.inputs))}


def one_head(model: Count01Transformer, region: Region, settings: Settings) -> Certificate:
    """Reading real, one head: exact, bounded or not."""
    exact = exact_model(model)
    resolved, beyond = limits_of(exact, settings.labels, region)
    decision = decide(exact, settings.labels, resolved)
    method = "exact linear inequalities"
    if decision.failures:
        return refuted(model, decision.failures, resolved, settings, method)
    extra = {"beyond": [replayed(model, f) for f in beyond]} if beyond else {}
    return proved(decision, resolved, settings, method, extra)


def limits_of(exact: ExactModel, labels: str, region: Region) -> tuple[Region, list[Failure]]:
    """The region itself where it holds or is bounded; else the largest noise, then the largest digits.

    The noise is the largest for max_digits (1000 where none is given), the digits the largest for that
    noise; with them come the failures one step further.
    """
    if region.is_bounded or holds(exact, labels, region):
        return region, []
    noise = region.max_noise
    if noise is None:
        digits = DEFAULT_DIGITS if region.max_digits is None else region.max_digits
        noise = largest_noise(exact, labels, digits, is_semantic=region.is_semantic)
    if noise == -1 and region.max_digits is None:
        shorter = largest_digits(exact, labels, 0, is_semantic=region.is_semantic)
        noise = -1
        if shorter is not None and shorter > 0:
            noise = largest_noise(exact, labels, shorter, is_semantic=region.is_semantic)
    if noise == -1:
        return replace(region, max_digits=1 if region.max_digits is None else region.max_digits, max_noise=0), []
    digits_limit = region.max_digits
    if digits_limit is None:
        digits_limit = largest_digits(exact, labels, noise, is_semantic=region.is_semantic)
    if digits_limit is not None and digits_limit < 1 and region.max_digits is None:
        return replace(region, max_digits=1, max_noise=noise), []
    resolved = replace(region, max_digits=digits_limit, max_noise=noise)
    steps = []
    if region.max_noise is None and noise is not None:
        steps.append(replace(region, max_digits=min(digits_limit or 1, DEFAULT_DIGITS), max_noise=noise + 1))
    if region.max_digits is None and digits_limit is not None:
        steps.append(replace(region, max_digits=digits_limit + 1, max_noise=noise))
    found = [decide(exact, labels, step).failures for step in steps]
    return resolved, [failures[0] for failures in found if failures]


def several_heads(model: Count01Transformer, region: Region, settings: Settings) -> Certificate:
    """Reading real, any number of heads: branch and bound on a bounded region."""
    if not region.is_bounded:
        raise BadInput(
            f"heads={model.heads}: the proof for several heads needs bounds; "
            "give --max-digits and --max-noise, or --max-length"
        )
    method = "branch and bound over counts"
    result = decide_boxes(model, settings.labels, region, None)
    extra = {"boxes": result.boxes}
    if result.failure is not None:
        return refuted(model, (result.failure,), region, settings, method)
    if not result.is_proved:
        return finish(settings, Verdict.UNKNOWN, region, READING_REAL, method, reason=result.reason, extra=extra)
    return finish(settings, Verdict.PROVED, region, READING_REAL, method, margin=result.margin, extra=extra)


def in_dtype(
    model: Count01Transformer, region: Region, fmt: Format, accumulate: Format | None, settings: Settings
) -> Certificate:
    """Reading "dtype, any order": margin above error bound on every box, or a failing run, or UNKNOWN."""
    labels, method = settings.labels, "margin above error bound, branch and bound over counts"
    at, assumed = TwoFormats(fmt, accumulate), assumptions(fmt, accumulate)
    resolved = region if region.is_bounded else dtype_limit(model, labels, region, at)
    result = decide_boxes(model, labels, resolved, at)
    kernels = kernels_of(model, fmt, accumulate)
    if result.is_proved:
        extra: dict[str, Any] = {"boxes": result.boxes}
        if LONGEST_SEARCHED - 1 in (resolved.max_digits, resolved.max_noise, resolved.max_length):
            extra["search_ended_at"] = LONGEST_SEARCHED - 1
        elif resolved != region:
            beyond = find_failure(model, kernels, labels, region, shortest_beyond(resolved))
            extra["beyond"] = [] if beyond is None else [beyond]
        return finish(
            settings,
            Verdict.PROVED,
            resolved,
            READING_DTYPE,
            method,
            margin=result.margin,
            assumptions=assumed,
            extra=extra,
        )
    found = find_failure(model, kernels, labels, resolved, 0)
    if found is not None:
        return finish(
            settings,
            Verdict.REFUTED,
            resolved,
            READING_DTYPE,
            "a run in the dtype",
            counterexample=found,
            assumptions=assumed,
        )
    return finish(
        settings,
        Verdict.UNKNOWN,
        resolved,
        READING_DTYPE,
        method,
        reason=result.reason or undecided_reason(result.undecided),
        assumptions=assumed,
    )


def undecided_reason(undecided: Any) -> str:
    """Names the input at which the error bound exceeds the margin."""
    n, cell = undecided
    where = f"(n0, n1, n2) = {n} after {name(cell.last)}"
    return f"the error bound exceeds the margin at {where}; no failing run found"


def shortest_beyond(region: Region) -> int:
    """A length from which on a region's outside is searched."""
    if region.max_length is not None:
        return region.max_length + 1
    return min(x for x in (region.max_digits, region.max_noise) if x is not None) + 1


def dtype_limit(model: Count01Transformer, labels: str, region: Region, at: TwoFormats) -> Region:
    """The largest region for which the proof closes, along the one free bound: digits, noise, or length.

    Digits and length are at least 1: the empty prompt alone is no result.
    """
    if region.max_digits is not None:
        return largest_region(lambda k: replace(region, max_noise=k), model, labels, at)
    if region.max_noise is not None:
        found = largest_region(lambda k: replace(region, max_digits=k), model, labels, at)
        return replace(found, max_digits=max(1, found.max_digits or 0))
    found = largest_region(lambda k: replace(region, max_length=k), model, labels, at)
    return replace(region, max_length=max(1, found.max_length or 0))


def largest_region(family: Callable[[int], Region], model: Count01Transformer, labels: str, at: TwoFormats) -> Region:
    """The largest member (at least member 0) whose proof closes, by doubling and bisection."""

    def holds(k: int) -> bool:
        return decide_boxes(model, labels, family(k), at).is_proved

    if not holds(0):
        return family(0)
    low, high = 0, 1
    while high < LONGEST_SEARCHED and holds(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return family(low)


def exhaustive(
    model: Count01Transformer,
    labels: str,
    region: Region,
    *,
    strings: int | None = None,
    claim: str | None = None,
    parameters: dict[str, Any] | None = None,
    largest: int = 2_000_000,
) -> Certificate:
    """Runs the module: one string per triple of a bounded region, and every string of up to `strings` digits.

    Raises: BadInput for an unbounded region, or more than `largest` runs.
    """
    check_labels(labels)
    check_least_digits(region)
    model = judged(model)
    if not region.is_bounded and strings is None:
        raise BadInput("method=exhaustive: give --max-digits and --max-noise, or --strings")
    if strings is not None and strings > LONGEST_STRINGS:
        raise BadInput(f"strings={strings}: must be at most {LONGEST_STRINGS}, as there are 3^strings to run")
    runs = len(region.lasts) * region.size() if region.is_bounded else 0
    runs += 4 * (3 ** (strings + 1) // 2) if strings is not None else 0
    if runs > largest:
        raise BadInput(
            f"method=exhaustive: {runs} runs are more than {largest} (about {runs // 20_000 + 1} s); "
            "lower the bounds, or use the proof (--method certified)"
        )
    start = time.perf_counter()
    settings = Settings(labels, claim, parameters or {})
    inputs, failure, least = 0, None, float("inf")
    if region.is_bounded:
        run = run_triples(model, labels, region)
        inputs, failure, least = run.inputs, run.failure, run.margin
    if strings is not None and failure is None:
        run = run_strings(model, labels, strings)
        inputs, failure, least = inputs + run.inputs, run.failure, min(least, run.margin)
    certificate = finish(
        settings,
        Verdict.PROVED if failure is None else Verdict.REFUTED,
        region,
        READING_BIT_EXACT,
        EVERY_INPUT,
        method=EXHAUSTIVE,
        margin=least if failure is None else margin_of(failure),
        counterexample=failure,
        assumptions=("this torch kernel, at the batch shapes used, with digits in the order run",),
        extra={"strings": strings, "inputs_are": "runs of the module"},
    )
    covered = inputs if failure is None else 1
    return replace(certificate, inputs_covered=covered, seconds=time.perf_counter() - start)


def replayed(model: Count01Transformer, failure: Failure) -> dict[str, Any]:
    """A failure of exact arithmetic with the module's own run of it beside it.

    `fails` says whether torch shows it too; where it does not, its rounding hides a decided difference, and
    `predicted` is the rival that exact arithmetic puts first or level.
    """
    run = replay(model, failure.n, failure.last, failure.expected)
    predicted = run["predicted"] if run["fails"] else name(failure.rival)
    return {**run, "predicted": predicted, "margin": failure.margin}


def refuted(
    model: Count01Transformer,
    failures: tuple[Failure, ...],
    region: Region,
    settings: Settings,
    method: str,
) -> Certificate:
    """REFUTED in exact arithmetic, preferring a failure that torch's kernel shows as well.

    Rounding can hide a tie; then one digit more may show it.
    """
    by_input = {(failure.n, failure.last): failure for failure in reversed(failures)}
    runs = ((failure, replayed(model, failure)) for failure in reversed(by_input.values()))
    failure, run = first = next(runs)
    if not run["fails"]:
        exact = exact_model(model)
        wider = (f for seed in by_input.values() for f in one_more(exact, seed, region, settings.labels))
        candidates = itertools.chain(runs, ((f, replayed(model, f)) for f in wider))
        failure, run = next((pair for pair in candidates if pair[1]["fails"]), first)
    return finish(
        settings,
        Verdict.REFUTED,
        region,
        READING_REAL,
        method,
        margin=failure.margin,
        margin_exact=failure.margin_exact,
        counterexample=run,
        extra=wrong_share(model, region, settings),
    )


def one_more(exact: ExactModel, seed: Failure, region: Region, labels: str) -> Iterator[Failure]:
    """The failures among the inputs with one digit, or one 0 and one 1, more than a failure."""
    for step in ((0, 0, 1), (0, 1, 0), (1, 0, 0), (1, 1, 0)):
        n = (seed.n[0] + step[0], seed.n[1] + step[1], seed.n[2] + step[2])
        expected = answer(n[0], n[1], labels) if seed.last == EQUALS else seed.expected
        if n in region:
            sign, rival, ball = margin_at(exact, n, seed.last, expected)
            if sign <= 0:
                yield Failure(n, seed.last, expected, rival, float(ball.mid()), None if sign else "0")


def proved(decision: Decision, region: Region, settings: Settings, method: str, extra: dict[str, Any]) -> Certificate:
    tightest = decision.tightest
    if tightest is not None:
        names = {k: name(v) for k, v in tightest.items() if isinstance(v, int)}
        tightest = {**tightest, **names}
    return finish(
        settings,
        Verdict.PROVED,
        region,
        READING_REAL,
        method,
        margin=None if decision.has_infimum_zero else decision.margin,
        tightest=tightest,
        extra=extra | ({"margin_scaled": decision.margin_scaled} if decision.has_infimum_zero else {}),
    )


def finish(
    settings: Settings,
    verdict: Verdict,
    region: Region,
    reading: str,
    argument: str,
    *,
    method: str = CERTIFIED,
    extra: dict[str, Any] | None = None,
    **fields: Any,
) -> Certificate:
    """The certificate with what all of them share."""
    least = {"min_digits": region.min_digits, "min_noise": region.min_noise} if any(region.origin) else {}
    semantic = {"semantic_only": True} if region.is_semantic else {}
    bounds = {
        **least,
        **semantic,
        "max_digits": region.max_digits,
        "max_noise": region.max_noise,
        "max_length": region.max_length,
    }
    more: dict[str, Any] = {
        "region": str(region),
        "inputs_are": SEMANTIC_INPUTS if region.is_semantic else INPUTS,
        **(extra or {}),
    }
    size = len(region.lasts) * region.size() if region.is_bounded else None
    found = fields.get("counterexample")
    if found is not None and "margin" not in fields:
        fields["margin"] = margin_of(found)
    return Certificate(
        verdict,
        settings.claim,
        "count01",
        {**settings.parameters, "labels": settings.labels, **bounds},
        reading,
        method,
        size if verdict is Verdict.PROVED else int(verdict is Verdict.REFUTED),
        argument=argument,
        extra=more,
        **fields,
    )


def margin_of(found: dict[str, Any]) -> float | None:
    """The margin of a run that failed; None where a logit is not a finite number.

    >>> margin_of({"expected": "5", "logits": [0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 1.5, 0.0]})
    -0.5
    """
    logits, right = found["logits"], TOKENS.index(found["expected"])
    if None in logits:
        return None
    margin = float(logits[right] - max(x for j, x in enumerate(logits) if j != right))
    return margin if margin <= 0 else None  # else rounding hides what exact arithmetic shows
