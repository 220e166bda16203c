"""What `verify count01` prints for people beyond the facts of every certificate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from verify.arithmetic.outward import below, decimal, value
from verify.frame.certificate import Certificate, Verdict
from verify.report.certificate import Fact, print_report

if TYPE_CHECKING:
    from verify.tasks.count01.model import Count01Model

LONGEST_NUMBER = 30


def report(certificate: Certificate, facts: list[Fact]) -> None:
    """The verdict and everything it rests on, with the region that was decided."""
    print_report(certificate, facts, covers=_covered(certificate))


def facts(certificate: Certificate, model: Count01Model, labels: str) -> Iterator[Fact]:
    """Yields the lines of the report beyond those of every certificate."""
    yield from _model_facts(certificate, model, labels)
    yield from _outcome_facts(certificate)


def _covered(certificate: Certificate) -> str:
    """How many inputs, and which."""
    n = certificate.to_dict()["inputs_covered"]
    return f"{'' if n == 'infinite' else f'{n} '}inputs ({certificate.extra['region']})"


def _model_facts(certificate: Certificate, model: Count01Model, labels: str) -> Iterator[Fact]:
    is_majority = labels == "majority-ones"
    rule = "4 iff n1 > n0" if is_majority else "4 iff n0 >= n1"
    end = "" if certificate.parameters.get("semantic_only") else "; after 4, 5: EOS"
    yield "task", f"{certificate.task}, after = : {rule}, else 5{end}"
    yield "task", f"ties: n0 = n1, and n0 = n1 = 0, are answered {'5' if is_majority else '4'}"
    yield "inputs covered", f"{certificate.to_dict()['inputs_covered']} {certificate.extra['inputs_are']}"
    yield "inputs covered", certificate.extra["region"]
    yield "model", f"{certificate.parameters['construction']}, {model.extra_repr()}"


def _outcome_facts(certificate: Certificate) -> Iterator[Fact]:
    extra = certificate.extra
    if certificate.verdict is not Verdict.UNKNOWN:
        yield from _margin_fact(certificate)
    if "exact_weights" in extra:
        yield "exact weights", _exact(extra["exact_weights"])
    if certificate.counterexample is not None:
        yield "counterexample", _failure(certificate.counterexample)
    if "wrong_share" in extra:
        yield "wrong", f"exactly {extra['counts']['wrong']} inputs, a share of {extra['wrong_share']}"
    for failure in extra.get("beyond", []):
        yield "one step on", _failure(failure)
    if "search_ended_at" in extra:
        yield "limit", f"not reached: the search ended at {extra['search_ended_at']}"


def _margin_fact(certificate: Certificate) -> Iterator[Fact]:
    """A lower bound on all margins, or the value at the counterexample."""
    margin = certificate.margin
    if certificate.verdict is Verdict.REFUTED:
        if margin is not None:
            yield "margin", value(margin, certificate.margin_exact)
    elif margin is not None and margin > 0:
        yield "margin", f"at least {below(margin)}"
    elif (certificate.tightest or {}).get("limit") == "0" or "margin_scaled" in certificate.extra:
        yield "margin", "positive on every input, with infimum 0"
    elif margin is not None:
        yield "margin", "positive on every input; no larger bound was computed"


def _exact(limits: Mapping[str, object]) -> str:
    """One line on the weights as formulas."""
    noise = limits["max_noise"]
    assert noise is None or isinstance(noise, int)
    digits = "all n0, n1" if limits["digits"] == "unbounded" else f"n0, n1 <= {limits['digits']}"
    if noise == -1:
        return f"{digits}: not even n2 = 0"
    return f"{digits}, {'all n2' if noise is None else f'n2 <= {_shortened(noise)}'} (e not rounded)"


def _shortened(number: int) -> str:
    """A number, or its size where it has more than 30 digits."""
    digits = int(number.bit_length() * math.log10(2)) + 1
    return decimal(number) if digits <= LONGEST_NUMBER else f"(a number of about {digits} digits)"


def _failure(found: dict[str, object]) -> str:
    """A failing input in words."""
    where = f"(n0, n1, n2) = ({found['n0']}, {found['n1']}, {found['n2']}) after {found['last']}"
    seen = "" if found["fails"] else "; its rounding takes the difference away"
    return f"{where}: {found['predicted']}, not {found['expected']} ({found['replayed']}{seen})"
