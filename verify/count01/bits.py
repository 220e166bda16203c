"""Count01 in constant-bit arithmetic, reading bit-exact: every string of a region, or a search for a wrong one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import factorial
from typing import Any

import torch
from torch import Tensor

from constructions.constant_bits.run import constant_bit
from constructions.count01 import Count01Transformer, check_labels
from constructions.errors import BadInput
from verify.arithmetic.contract import constant_bits
from verify.certificate import READING_BIT_EXACT, Certificate, Verdict
from verify.count01.judged import judged
from verify.count01.real import check_plain
from verify.count01.runs import chunks, failed, fails, margin_of_row, near_ties, orders
from verify.count01.task import EOS, EQUALS, FIVE, FOUR, Region, answer, cells, triples
from verify.count01.verdict import Settings, finish, margin_of
from verify.decide import EVERY_INPUT

MOST_STRINGS = 100_000  # that are all run: about a minute
SEARCHED_DIGITS = 8  # a search runs all shorter strings first
LONGEST_SEARCHED = 100


def certify(
    model: Count01Transformer,
    labels: str,
    region: Region,
    s: int,
    *,
    claim: str | None = None,
    parameters: dict[str, Any] | None = None,
) -> Certificate:
    """Decides a model in s-bit arithmetic by all strings of the region, where they are no more than 100,000.

    Sums are rounded from left to right, so that the order of the digits matters. Larger and unbounded regions are
    searched, which refutes and never proves.
    Claim: D-1, E-5 or W-10, in the arithmetic of E, Sec. 3.3.
    Raises: BadInput for unknown labels, a weight that is not finite, or an s outside 1..12.

    >>> from constructions.count01 import uniform
    >>> certify(uniform(), "majority-ones", Region(max_length=3), 6).verdict.value
    'PROVED'
    """
    check_labels(labels)
    model = judged(model)
    check_plain(model)
    if any(region.origin) or region.is_semantic:
        raise BadInput("--min-digits, --min-noise, --semantic-only: do not go with constant-bit arithmetic")
    start, run, is_all = time.perf_counter(), constant_bit(model, s), strings_of(region) <= MOST_STRINGS
    strings, failure, least = 0, None, float("inf")
    for batch in all_strings(region, None) if is_all else searched(region, labels):
        for tokens, expected in read_at(batch, labels):
            logits = run(tokens)[:, -1].tolist()
            for row, values, right in zip(tokens.tolist(), logits, expected, strict=True):
                if failure is None and not fails(values, right):
                    least = min(least, margin_of_row(values, right))
                elif failure is None:
                    failure = failed(model, row, right, values) | {"replayed": f"constant-bit arithmetic, s={s}"}
        strings += len(batch)
        if failure is not None:
            break
    verdict = Verdict.REFUTED if failure else Verdict.PROVED if is_all else Verdict.UNKNOWN
    certificate = finish(
        Settings(labels, claim, (parameters or {}) | {"precision": f"s{s}"}),
        verdict,
        region,
        READING_BIT_EXACT,
        EVERY_INPUT if is_all else "a search among telling strings, run",
        margin=least if verdict is Verdict.PROVED else None if failure is None else margin_of(failure),
        counterexample=failure,
        reason=f"{strings} strings run without a failure; the region has more than {MOST_STRINGS}"
        if verdict is Verdict.UNKNOWN
        else None,
        assumptions=(constant_bits(s), "right means: the right token has strictly the largest logit"),
        extra={"inputs_are": "strings of digits, each read after =, 4 and 5"},
    )
    covered = strings if verdict is Verdict.PROVED else int(verdict is Verdict.REFUTED)
    return replace(certificate, inputs_covered=covered, seconds=time.perf_counter() - start)


def strings_of(region: Region) -> float:
    """How many strings a region has; more than 100,000 are not counted to the end.

    >>> strings_of(Region(max_length=2)), strings_of(Region())
    (13, inf)
    """
    if not region.is_bounded or region.size() > MOST_STRINGS:
        return float("inf")
    total = 0
    for n in triples(region):
        if sum(n) > 2 * MOST_STRINGS.bit_length() and sum(n) > max(n):
            return float("inf")
        total += factorial(sum(n)) // (factorial(n[0]) * factorial(n[1]) * factorial(n[2]))
    return total


def all_strings(region: Region, longest: int | None) -> Iterator[list[tuple[int, ...]]]:
    """Batches of all strings of digits of a region, the shortest first."""
    lengths = sorted({sum(n) for n in triples(region)}) if longest is None else range(longest + 1)
    for length in lengths:
        inside = (w for w in product((1, 2, 3), repeat=length) if (w.count(1), w.count(2), w.count(3)) in region)
        yield from chunks(list(inside), length)


def searched(region: Region, labels: str) -> Iterator[list[tuple[int, ...]]]:
    """All short strings of a region, then near-ties of growing length in four orders."""
    yield from all_strings(region, SEARCHED_DIGITS)
    for length in range(SEARCHED_DIGITS + 1, LONGEST_SEARCHED + 1):
        for cell in cells(labels):
            if cell.last == EQUALS:
                candidates = [n for n in near_ties(length, cell) if n in region]
                for _, tokens in orders(candidates, EQUALS):
                    yield [tuple(row[1:-1]) for row in tokens.tolist()]


def read_at(strings: list[tuple[int, ...]], labels: str) -> Iterator[tuple[Tensor, list[int]]]:
    """The prompts (batch, n) and what is due after them: the answer, then EOS after either answer."""
    if not strings:
        return
    yield torch.tensor([[0, *w, EQUALS] for w in strings]), [answer(w.count(1), w.count(2), labels) for w in strings]
    for last in (FOUR, FIVE):
        yield torch.tensor([[0, *w, EQUALS, last] for w in strings]), [EOS] * len(strings)
