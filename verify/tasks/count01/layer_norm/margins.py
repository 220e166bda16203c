"""The least margin over a bounded domain on which a model is right: floats with a radius, digits where they decide."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from verify.arithmetic.exact_reals import Undecided, float_below, float_of
from verify.arithmetic.slack import Array
from verify.tasks.count01.layer_norm.accuracy import lowest
from verify.tasks.count01.layer_norm.counting import blocks
from verify.tasks.count01.layer_norm.laws import ListedTriples
from verify.tasks.count01.layer_norm.numbers import ModelNumbers
from verify.tasks.count01.layer_norm.syntax import AfterAnswer
from verify.tasks.count01.layer_norm.tables import BITS, Differences, corners
from verify.tasks.count01.runs import name
from verify.tasks.count01.task import EOS, EQUALS, FIVE, FOUR, PromptDomain, Triple, answer

Triples = NDArray[np.int64]


@dataclass(frozen=True)
class Least:
    """A lower bound on all margins, and the input where it was found."""

    margin: float
    n: Triple
    last: int
    expected: int
    rival: int

    def described(self) -> dict[str, object]:
        """The input as a certificate has it."""
        return {"at": list(self.n), "last": name(self.last), "expected": name(self.expected), "rival": name(self.rival)}


@dataclass(frozen=True)
class Difference:
    """(expected logit) - (rival logit) on some triples: a lower bound on all, one on each, and a ball for any."""

    triples: Triples
    last: int
    expected: int
    rival: int
    bound: float
    each: Callable[[], Array]
    ball: Callable[[Triple, int], arb]


def least_margin(model: ModelNumbers, domain: PromptDomain, labels: str) -> Least:
    """The least margin over a domain that has no wrong input.

    Raises: Undecided where 2^13 bits do not show that a margin is positive.
    """
    best: Least | None = None
    for triples in blocks(domain):
        for difference in sorted(differences(model, triples, domain, labels), key=lambda d: _rank(d.bound)):
            if best is None or not difference.bound >= best.margin:
                found = _least_of(difference, np.inf if best is None else best.margin)
                best = found if best is None or found.margin < best.margin else best
    assert best is not None  # a domain has at least one prompt, and a model at least two classes
    return best


def lead_at(model: ModelNumbers, domain: PromptDomain, labels: str, n: Triple, last: int) -> tuple[float, int]:
    """(due logit) - (largest other one) of an input that is answered wrongly, and which other one that is."""
    of_one = differences(model, np.array([n]), domain, labels)
    found = [(d.ball(n, BITS[-1]).mid(), d.rival) for d in of_one if d.last == last]
    lead, rival = min(found)
    return min(0.0, float_of(lead)), rival


def _rank(bound: float) -> float:
    """Bounds in order; one that is no number comes first, as nothing is known of it."""
    return -np.inf if np.isnan(bound) else bound


def _least_of(difference: Difference, enough: float) -> Least:
    """The least of one difference; where all are above `enough`, any of its lower bounds."""
    lower = np.nan_to_num(difference.each(), nan=-np.inf)
    is_exact = np.zeros(len(lower), dtype=bool)
    while True:
        i = int(lower.argmin())
        a, b, c = difference.triples[i].tolist()
        if is_exact[i] or lower[i] >= enough:
            return Least(float(lower[i]), (a, b, c), difference.last, difference.expected, difference.rival)
        lower[i], is_exact[i] = max(_positive(difference, (a, b, c)), lower[i]), True


def _positive(difference: Difference, n: Triple) -> float:
    """A lower bound on one difference that is known to be positive, with as many digits as show it."""
    for bits in BITS:
        ball = difference.ball(n, bits)
        if ball > 0:
            return max(0.0, float_below(ball))
    raise Undecided(f"(n0, n1, n2) = {n} after {name(difference.last)}: too close to a tie to bound the margin")


def differences(model: ModelNumbers, triples: Triples, domain: PromptDomain, labels: str) -> Iterator[Difference]:
    """Each last token with each rival of what is due, on the triples where it is due."""
    for last in domain.lasts:
        if last != EQUALS:
            after = AfterAnswer(model, last, triples)
            for rival in after.rivals:
                yield _after_answer(model, after, rival)
            continue
        has_more_ones = ListedTriples(triples).has_more_ones
        for expected in (FOUR, FIVE):
            due = triples[has_more_ones == (answer(0, 1, labels) == expected)]
            for rival in set(range(model.classes)) - {expected} if len(due) else ():
                yield _after_equals(model, due, expected, rival)


def _after_equals(model: ModelNumbers, due: Triples, expected: int, rival: int) -> Difference:
    heads, listed = range(len(model.heads)), ListedTriples(due)
    table = Differences(model, listed.counts, expected, rival)

    def each() -> Array:
        score, radius = table.score(heads)
        return np.nextafter(score - radius, -np.inf)

    def ball(n: Triple, bits: int) -> arb:
        with ctx.workprec(bits):
            return table.ball(heads, n, bits) + arb(table.constant)

    bound = lowest(model, corners(listed.counts), expected, rival)
    return Difference(due, EQUALS, expected, rival, bound, each, ball)


def _after_answer(model: ModelNumbers, after: AfterAnswer, rival: int) -> Difference:
    heads = range(len(model.heads))

    def each() -> Array:
        score, radius = after.scores(heads, rival)
        return np.nextafter(score - radius, -np.inf)

    return Difference(
        after.triples,
        after.last,
        EOS,
        rival,
        after.lowest(heads, rival),
        each,
        lambda n, bits: after.ball(heads, rival, n, bits),
    )
