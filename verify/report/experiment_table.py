"""The table of an experiment: its settings, the sampled and the exact shares, and what the difference is."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_DOWN, ROUND_UP, Decimal, localcontext
from fractions import Fraction

from verify.frame.certificate import in_words
from verify.frame.experiment import Experiment, Result
from verify.report.seeds import agreement

LONGEST_SHOWN = 12  # tokens of an input
SCALE = 10**4  # of a share in per cent
NEARLY = Fraction(1, 10**5)  # missing from 1


def columns(experiment: Experiment, results: Sequence[Result]) -> tuple[str, ...]:
    """The settings, the samples, a column for each law, the verdict, and an input that is answered wrongly."""
    exact = [f"exact, {law}" for law in experiment.laws]
    return (*(results[0].settings if results else ()), "sampled", *exact, "verdict", "a wrong input")


def rows(experiment: Experiment, results: Sequence[Result]) -> list[list[object]]:
    """One row for each model, shares in per cent."""
    return [
        [
            *found.settings.values(),
            share(Fraction(*found.sampled), Fraction(*found.sampled)),
            *(share(*found.exact[law]) if law in found.exact else None for law in experiment.laws),
            found.verdict.value,
            None if found.wrong is None else case_in_words(found.wrong),
        ]
        for found in results
    ]


def case_in_words(wrong: Mapping[str, object]) -> str:
    """A wrong input and what is answered; a long one is named by its length.

    >>> case_in_words({"input": [0] * 40, "expected": 10, "predicted": 9})
    'an input of length 40, expected 10, predicted 9'
    """
    shown = wrong.get("input")
    if isinstance(shown, list) and len(shown) > LONGEST_SHOWN:
        return in_words({**wrong, "input": "..."}).replace("input ...", f"an input of length {len(shown)}")
    return in_words(dict(wrong))


def share(low: Fraction, high: Fraction) -> str:
    """A share in per cent, rounded down, and up at the end of a bracket: 100 stands only where it is 1.

    >>> share(Fraction(1), Fraction(1)), share(Fraction(2, 3), Fraction(2, 3))
    ('100', '66.6666')
    >>> share(1 - Fraction(1, 3 * 10**14), Fraction(1))
    '100 - 3.4e-13 to 100'
    """
    at_least = rounded(low, up=False)
    return at_least if low == high else f"{at_least} to {rounded(high, up=True)}"


def rounded(of: Fraction, *, up: bool) -> str:
    """Per cent rounded down or up; of what is nearly 1, how much is missing.

    >>> rounded(Fraction(1, 3), up=True), rounded(Fraction(1, 2), up=False)
    ('33.3334', '50')
    """
    if 0 < 1 - of < NEARLY:
        return f"100 - {missing(100 * (1 - of), up=not up)}"
    scaled = of * 100 * SCALE
    whole = math.ceil(scaled) if up else math.floor(scaled)
    return f"{whole // SCALE}.{whole % SCALE:04d}".rstrip("0").rstrip(".")


def missing(of: Fraction, *, up: bool) -> str:
    """A small positive number by two digits, rounded up or down.

    >>> missing(Fraction(1, 3 * 10**14), up=True), missing(Fraction(1, 10**50), up=False)
    ('3.4e-15', '1.0e-50')
    """
    with localcontext(prec=2, rounding=ROUND_UP if up else ROUND_DOWN):
        return f"{Decimal(of.numerator) / Decimal(of.denominator):.1e}"


def wrong_in_words(result: Result) -> str:
    """How many answers of the first law with a wrong one are wrong, or which share of them in per cent.

    >>> from verify.frame.certificate import Verdict
    >>> of = {"near": (Fraction(1), Fraction(1)), "far": (Fraction(3, 4), Fraction(3, 4))}
    >>> wrong_in_words(Result({}, (9, 9), Verdict.REFUTED, of, {}, {"far": 8})), wrong_in_words(
    ...     Result({}, (9, 9), Verdict.REFUTED, of, {}))
    ('2 of 8 (far)', '25 % (far)')
    """
    for law, (low, high) in result.exact.items():
        if (counted := result.wrong_of(law)) is not None and counted[0]:
            return f"{counted[0]} of {counted[1]} ({law})"
        if low < 1 and law not in result.inputs:
            ends = [f"{float(100 * end):.3g}" for end in dict.fromkeys((1 - high, 1 - low))]
            return f"{' to '.join(ends)} % ({law})"
    return "an input beyond those of the shares"


def news(experiment: Experiment, results: Sequence[Result]) -> list[str]:
    """What sampling did not see: each model whose samples are all right and that is wrong; then remarks, and seeds."""
    found = []
    for result in (each for each in results if each.is_news):
        settings = ", ".join(f"{name} {value}" for name, value in result.settings.items())
        laws = {name: text for name, text in experiment.laws.items() if name in result.exact}
        exact = "".join(f"; {in_a_sentence(text, share(*result.exact[name]))}" for name, text in laws.items())
        number = f"; wrong on {wrong_in_words(result)}" if result.inputs else ""
        case = case_in_words(result.wrong or {})
        found.append(f"{settings}: all {result.sampled[1]} samples right{exact}{number}; {case}")
    found = found or [f"Of {len(results)} models, none has all its samples right and is wrong elsewhere."]
    remarks = experiment.remarks(results) if experiment.remarks is not None else []
    return [*found, *remarks, *agreement(results)]


def in_a_sentence(text: str, of: str) -> str:
    """A law's share, said of one model: its own sentence where it has one.

    >>> in_a_sentence("all pairs", "50"), in_a_sentence("{} % of its heads separate", "25")
    ('right on 50 % of all pairs', '25 % of its heads separate')
    """
    return text.format(of) if "{}" in text else f"right on {of} % of {text}"


def in_a_heading(text: str) -> str:
    """What a law's share is a share of, or of which number its sentence speaks.

    >>> in_a_heading("all pairs"), in_a_heading("{} % of its heads separate")
    ('of all pairs', 'x where x % of its heads separate')
    """
    return f"x where {text.format('x')}" if "{}" in text else f"of {text}"
