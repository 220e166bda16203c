"""Count01 in constant-bit arithmetic, reading bit-exact: every string of a domain, or a search for a wrong one.

Sums are rounded from left to right, so that the order of the digits matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import factorial

from verify.arithmetic.readings import ConstantBits
from verify.frame.decide import EVERY_INPUT, Finding
from verify.tasks.count01.runs import chunks, near_ties, orders
from verify.tasks.count01.task import EQUALS, DecidablePrompts, PromptDomain, cells, triples

MOST_STRINGS = 100_000  # that are all run: about a minute
SEARCHED_DIGITS = 8  # a search runs all shorter strings first
LONGEST_SEARCHED = 100
SEARCH = "a search among telling strings, run"


def prove(problem: DecidablePrompts, reading: ConstantBits) -> Finding:
    """Runs all strings of the domain where they are no more than 100,000; else telling ones, which never prove."""
    domain, is_all = problem.domain, strings_of(problem.domain) <= MOST_STRINGS
    argument, run = EVERY_INPUT if is_all else SEARCH, problem.runner(reading)
    strings, least = 0, float("inf")
    for batch in all_strings(domain, None) if is_all else searched(domain, problem.labels):
        ran = run(batch)
        if ran.is_wrong.any():
            _, item, answer = problem.first(batch, ran.is_wrong)
            return Finding.refuted(argument, problem.replay(item, answer, reading))
        strings, least = strings + len(batch), min(least, float(ran.margins.min()))
    if is_all:
        return Finding.proved(argument, least)
    return Finding.open(argument, f"{strings} strings run without a failure; the domain has more than {MOST_STRINGS}")


def strings_of(domain: PromptDomain) -> float:
    """How many strings a domain has; more than 100,000 are not counted to the end.

    >>> strings_of(PromptDomain(max_length=2)), strings_of(PromptDomain())
    (13, inf)
    """
    if not domain.is_bounded or domain.size() > MOST_STRINGS:
        return float("inf")
    total = 0
    for n in triples(domain):
        if sum(n) > 2 * MOST_STRINGS.bit_length() and sum(n) > max(n):
            return float("inf")
        total += factorial(sum(n)) // (factorial(n[0]) * factorial(n[1]) * factorial(n[2]))
    return total


def all_strings(domain: PromptDomain, longest: int | None) -> Iterator[list[tuple[int, ...]]]:
    """Batches of all strings of digits of a domain, the shortest first."""
    lengths = sorted({sum(n) for n in triples(domain)}) if longest is None else range(longest + 1)
    for length in lengths:
        inside = (w for w in product((1, 2, 3), repeat=length) if (w.count(1), w.count(2), w.count(3)) in domain)
        yield from chunks(list(inside), length)


def searched(domain: PromptDomain, labels: str) -> Iterator[list[tuple[int, ...]]]:
    """All short strings of a domain, then near-ties of growing length in four orders."""
    yield from all_strings(domain, SEARCHED_DIGITS)
    for length in range(SEARCHED_DIGITS + 1, LONGEST_SEARCHED + 1):
        for cell in cells(labels):
            if cell.last == EQUALS:
                candidates = [n for n in near_ties(length, cell) if n in domain]
                for _, tokens in orders(candidates, EQUALS):
                    yield [tuple(row[1:-1]) for row in tokens.tolist()]
