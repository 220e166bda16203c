"""What a second seed says of the first: models that differ by their seed alone, and how far their exact shares are."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from verify.frame.experiment import Result

FAR = Fraction(1, 10)  # of a share: further apart seeds do not say the same
MOST_NAMED = 6  # kinds of models


def agreement(results: Sequence[Result]) -> list[str]:
    """How many seeds were run, and in which laws the exact shares differ by more than 10 points between them.

    >>> from verify.frame.certificate import Verdict
    >>> of = [Result({"d": 4, "seed": i}, (1, 2), Verdict.REFUTED, {"all": (Fraction(i, 2),) * 2}) for i in range(2)]
    >>> agreement(of[:1])
    ['One seed was run of each model, so that nothing is said of others']
    >>> print(*agreement(of))
    2 seeds were run of each model: exact shares differ by more than 10 points in *all* for 1 of 1 (d 4), verdicts for 0
    """
    kinds = by_kind(results)
    runs = max(map(len, kinds.values()), default=0)
    if runs < 2:
        return ["One seed was run of each model, so that nothing is said of others"] if runs else []
    laws = dict.fromkeys(law for result in results for law in result.exact)
    parts = [part for law in laws if (part := differing(kinds, law)) is not None]
    shares = f"exact shares differ by more than 10 points in {', '.join(parts)}, " if parts else ""
    differ = "" if parts else "differ "
    other = sum(len({result.verdict for result in group}) > 1 for group in kinds.values())
    return [f"{runs} seeds were run of each model: {shares}verdicts {differ}for {other}"]


def by_kind(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by all their settings but the seed; those without a seed are left out."""
    kinds: dict[str, list[Result]] = {}
    for result in (each for each in results if "seed" in each.settings):
        name = ", ".join(f"{key} {value}" for key, value in result.settings.items() if key != "seed")
        kinds.setdefault(name, []).append(result)
    return kinds


def differing(kinds: dict[str, list[Result]], law: str) -> str | None:
    """Of one law: how many kinds of models differ, and which, where they are few; None where none has two shares."""
    spreads = {kind: spread(group, law) for kind, group in kinds.items() if sum(law in r.exact for r in group) > 1}
    if not spreads:
        return None
    far = [kind for kind, apart in spreads.items() if apart > FAR]
    named = f" ({'; '.join(far)})" if 0 < len(far) <= MOST_NAMED else ""
    return f"*{law}* for {len(far)} of {len(spreads)}{named}"


def spread(group: Sequence[Result], law: str) -> Fraction:
    """The difference between the largest and the smallest share, at least."""
    ends = [result.exact[law] for result in group if law in result.exact]
    return max(low for low, _ in ends) - min(high for _, high in ends)
