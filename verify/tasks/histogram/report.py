"""What `verify histogram` prints for people beyond the facts of every certificate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import inf

from verify.arithmetic.outward import about, above, below, decimal, value
from verify.frame.certificate import SAMPLED, Certificate, Verdict
from verify.report.certificate import Fact, print_report

MOST_COUNTS, LONGEST_BAR = 12, 20
WHY = {"partitions": " (W-22: every count has probability 1/L)"}  # by law


def print_certificate(certificate: Certificate, facts: Sequence[Fact]) -> None:
    """The verdict and everything it rests on; the last of `facts` says which files were written, if any."""
    is_shown = certificate.verdict is Verdict.PROVED and certificate.margin != inf  # at L = 1 there is no other class
    bars = margin_bars(certificate.margin_per_count) if is_shown and certificate.margin_per_count else ""
    weights, *wrote = facts
    print_report(certificate, [weights, *_facts(certificate), *wrote], below_facts=bars)


def _facts(certificate: Certificate) -> Iterator[Fact]:
    if certificate.method == SAMPLED:
        yield "drawn", "by recursive partitions (A-D)"
    if certificate.error_share is not None:
        yield "wrong pairs", _share(certificate)
    if "accuracy" in certificate.extra:
        yield "accuracy", _accuracy(certificate.extra["accuracy"], certificate.extra["law"])
    if certificate.tightest is not None:
        yield "tightest", _tightest(certificate.tightest, certificate.margin_exact)
    if certificate.counterexample is not None:
        yield "counterexample", _counterexample(certificate.counterexample)


def _share(certificate: Certificate) -> str:
    assert certificate.error_share is not None
    low, high = certificate.error_share
    if low == high:
        pairs = int(certificate.parameters["T"]) ** int(certificate.parameters["L"]) * int(certificate.parameters["L"])
        return f"exactly {decimal(int(low * pairs))} of {decimal(pairs)} (sequence, position) pairs"
    return f"share between {below(low)} and {above(high)} (budget ended)"


def _accuracy(share: Sequence[str], law: str) -> str:
    """The probability of a right answer under the law, and the count at which it is least."""
    low, high = (Fraction(x) for x in share)
    if low != high:
        return f"between {below(float(low))} and {above(float(high))} under the law {law} (budget ended)"
    text = str(low) if len(str(low)) < 24 else f"about {about(float(low))}"
    exactly = "exactly " if len(str(low)) < 24 else ""
    return f"{exactly}{text} under the law {law}{WHY.get(law, '')}"


def _tightest(found: dict[str, object], exact: str | None) -> str:
    where = f"{sequence(found['tokens'])} at position {found['position']}, count {found['expected']}"
    margin = found.get("margin")
    return f"{where}, margin {value(margin, exact)}" if isinstance(margin, float) and margin < inf else where


def _counterexample(found: dict[str, object]) -> str:
    verb = "ties with" if found["is_tie"] else "loses to"
    smallest = ", the smallest one" if found["is_smallest"] else ""
    if "order" in found:
        return f"{sequence(found['tokens'])} at position {found['position']}: {_rounded_failure(found)}"
    answer = f"the module answers {found['module_predicts']}"
    if found["module_predicts"] == found["expected"]:
        answer += ", right only by the rounding of this run"
    return (
        f"{sequence(found['tokens'])} at position {found['position']}: {found['expected']} {verb} "
        f"{found['predicted']}{smallest}; {answer}"
    )


def _rounded_failure(found: dict[str, object]) -> str:
    """A failure in the reading "dtype, any order"."""
    verb = "ties with" if found["is_tie"] else "loses to"
    none = "a logit is no number, or two are infinite"
    outcome = none if found["predicted"] is None else f"{found['expected']} {verb} {found['predicted']}"
    torch_says = "torch has no such kernel"
    if found["module_predicts"] is not None:
        torch_says = f"torch on this machine answers {found['module_predicts']}"
    return f"{outcome} in {found['fails_in']} ({found['order']}); {torch_says}"


def sequence(tokens: object) -> str:
    """Long runs of one token are written token^n.

    >>> sequence([0, 0, 0, 7, 1, 1])
    '0^3 7 1^2'
    """
    assert isinstance(tokens, Sequence)
    runs: list[list[int]] = []
    for token in tokens:
        if runs and runs[-1][0] == token:
            runs[-1][1] += 1
        else:
            runs.append([token, 1])
    return " ".join(str(token) if n == 1 else f"{token}^{n}" for token, n in runs)


def margin_bars(margins: tuple[float | None, ...]) -> str:
    """The certified margin of each count with a bar; at most twelve counts, always with the smallest margin.

    >>> print(margin_bars((0.25, 0.4999999)), end="")
    count  margin at least
    1      0.25             ██████████
    2      0.499999         ████████████████████
    """
    known = [(k, m) for k, m in enumerate(margins, 1) if m is not None]
    if len(known) > MOST_COUNTS:
        smallest = min(known, key=lambda item: item[1])
        step = len(known) / (MOST_COUNTS - 1)
        known = sorted({known[int(i * step)] for i in range(MOST_COUNTS - 1)} | {smallest})
    largest = max((m for _, m in known if m != float("inf")), default=1.0)
    lines = ["count  margin at least"]
    for k, margin in known:
        share = min(1.0, margin / largest) if largest > 0 else 0.0
        lines.append(f"{k:<5}  {below(margin):<15}  {'█' * max(1, round(LONGEST_BAR * share))}")
    return "".join(f"{line}\n" for line in lines)
