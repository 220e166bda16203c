"""What a verdict means, in one sentence that stands before all details."""

from __future__ import annotations

from math import inf

from verify.arithmetic.outward import about, above, below, decimal
from verify.frame.certificate import CERTIFIED, READING_BIT_EXACT, READING_DTYPE, READING_REAL, Certificate, Verdict

LONGEST = 24  # digits of a number that is written in full


def sentence(certificate: Certificate) -> str:
    """What the verdict means to whoever asked.

    >>> sentence(Certificate(Verdict.PROVED, None, "t", {}, READING_REAL, "certified", 32**10, margin=0.4999998))
    'The answer is right on all 1,125,899,906,842,624 inputs; the closest call is won by at least 0.499999.'
    """
    if certificate.verdict is Verdict.PROVED:
        return (
            f"The answer is right on {_inputs(certificate.inputs_covered)}{_how(certificate)}{_closest(certificate)}."
        )
    if certificate.verdict is Verdict.UNKNOWN:
        return f"It is not decided whether the answer is right on every input{_how(certificate)}."
    return f"The answer is wrong{_where(certificate)}{_how(certificate)}{_share(certificate)}."


def grouped(n: int) -> str:
    """A number with commas; one of many digits by its order of magnitude.

    >>> grouped(1234567), grouped(10**30)
    ('1,234,567', 'about 10^30')
    """
    digits = decimal(n)
    return f"{n:,}" if len(digits) <= LONGEST else f"about 10^{len(digits) - 1}"


def _inputs(covered: int | None) -> str:
    if covered is None:
        return "all of infinitely many inputs"
    if covered == 1:
        return "the only input"
    said = grouped(covered)
    return f"all {'of ' if said.startswith('about') else ''}{said} inputs"


def _how(certificate: Certificate) -> str:
    """The reading, where it is not real arithmetic."""
    name = certificate.read_as
    if certificate.reading == READING_REAL:
        return ""
    if certificate.reading == READING_DTYPE:
        return f", in {name.removesuffix(', any order')} and in any order of evaluation"
    if certificate.reading == READING_BIT_EXACT:
        return f", computed {name}" if certificate.method == CERTIFIED else ", as this machine computes it"
    return f", in {name}"


def _closest(certificate: Certificate) -> str:
    margin = certificate.margin
    if margin is None or not 0 < margin < inf:
        return ""
    return f"; the closest call is won by at least {below(margin)}"


def _where(certificate: Certificate) -> str:
    found = certificate.counterexample or {}
    place = f"on {found.get('input', found.get('tokens'))}".replace("'", "")
    expected, predicted = found.get("expected"), found.get("predicted")
    if predicted is None or expected is None or len(place) > 60:
        return " on the input that is named below"
    if found.get("is_tie"):
        return f" {place}, where {expected} is right and ties with {predicted}"
    return f" {place}, where {expected} is right and the model says {predicted}"


def _share(certificate: Certificate) -> str:
    """How much is wrong, where it is known: counted inputs, or pairs of input and position."""
    counts = certificate.extra.get("counts")
    if isinstance(counts, dict) and "wrong" in counts and "right" in counts:
        every = sum(int(value) for value in counts.values())
        return f"; {grouped(int(counts['wrong']))} of {grouped(every)} inputs are known to be wrong"
    if certificate.error_share is None:
        return ""
    low, high = certificate.error_share
    if low == high:
        return f"; {about(float(100 * low), 3)} % of all answers are wrong" if low else ""
    return f"; between {below(100 * low, 3)} % and {above(100 * high, 3)} % of all answers are wrong"
