"""Reading "real": the cells of all strings, and where they leave some open, strings one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice

import numpy as np

from verify.frame.decide import Finding
from verify.tasks.contextual.cells import CellProof, PromptCells
from verify.tasks.contextual.runs import candidates, judge, telling
from verify.tasks.contextual.stream import DecidableRegions, StoredContextual
from verify.tasks.contextual.task import StringDomain

FEW_STRINGS = 3000  # decided one by one where cells leave something open
LARGEST_RUN = 2_000_000
MOST_CANDIDATES, MOST_TOKENS = 400, 10**6  # strings tried against undecided cells, and their tokens
BY_CELLS, BY_STRINGS = "cells of strings", "string by string"


def prove(problem: DecidableRegions) -> Finding:
    """Decides every cell. A cell that stays open is settled by a wrong string, or by all strings where they are few."""
    stored, domain = problem.stored, problem.domain
    proof = CellProof(stored, domain)
    cells = list(proof.decide())
    tightest = min(cells, key=lambda c: float(c.margin.min()))
    margin, judged, by_strings = float(tightest.margin.min()), [(cells, domain)], False
    found = None
    if not margin > 0:
        found = find_failure(stored, proof, cells, domain)
        if found is None and are_few(domain):
            margin, by_strings = strings_margin(stored, proof, domain), True
        if domain.zeros is None:  # strings without 0 are a telling part of the domain
            only_ones = replace(domain, zeros=0)
            judged.append((list(CellProof(stored, only_ones).decide()), only_ones))
    lengths = {str(M): right_lengths(judged, M) for M in range(domain.fewest, domain.most + 1)}
    argument, extra = BY_STRINGS if by_strings else BY_CELLS, {"right_lengths": lengths}
    if found is not None:
        return Finding.refuted(argument, problem.wrong_in_real_arithmetic(*found), extra=extra)
    if margin > 0:
        at = None if by_strings else where(tightest)
        return Finding.proved(argument, margin, tightest=at, telling=telling(cells, domain), extra=extra)
    reason = f"undecided at prompt {tightest.r}, count {tightest.margin.argmin()}, and no failing string found"
    return Finding.open(argument, reason, extra=extra)


def where(tightest: PromptCells) -> dict[str, object]:
    """The cell with the smallest margin."""
    count = int(tightest.margin.argmin())
    return {"prompt": tightest.r, "count": count, "regions": [tightest.fewest, tightest.most]}


def find_failure(
    stored: StoredContextual, proof: CellProof, cells: list[PromptCells], domain: StringDomain
) -> tuple[list[int], int] | None:
    """A string and a prompt that real arithmetic shows to be wrong: among candidates, and all where they are few."""
    few: Iterator[list[int]] = domain.enumerate() if are_few(domain) else iter(())
    for tokens in chain(islice(candidates(cells, domain), 1 + min(MOST_CANDIDATES, MOST_TOKENS // domain.N)), few):
        judged = judge(stored, proof.readout, tokens)
        if judged.wrong.any():
            return tokens, int(judged.wrong.argmax())
    return None


def are_few(domain: StringDomain) -> bool:
    """Whether the strings can be decided one by one."""
    return 4**domain.N <= LARGEST_RUN and domain.strings() <= FEW_STRINGS


def strings_margin(stored: StoredContextual, proof: CellProof, domain: StringDomain) -> float:
    """The smallest margin over all strings, or a number that is not positive where one is undecided."""
    return min(float(judge(stored, proof.readout, tokens).margin.min()) for tokens in domain.enumerate())


def right_lengths(judged: list[tuple[list[PromptCells], StringDomain]], M: int) -> tuple[int | None, int | None]:
    """For M regions: the largest length up to which every string is right, and the smallest at which some is not.

    The first of the domains is the whole one, the others are parts of it, where wrong strings may be found too. A
    wrong cell has strings of every length from its shortest on, so where the two numbers meet the set of lengths is
    exact. None: no such length up to N.
    """
    domain = judged[0][1]
    right, wrong = domain.N, domain.N + 1
    base = 2 * M + (domain.zeros or 0)
    shortest = max(domain.shortest, base)
    for cells, part in judged:
        for c in (c for c in cells if c.fewest <= M <= c.most):
            unproved, lost = np.nonzero(~(c.margin > 0))[0], np.nonzero(c.wrong)[0]
            if len(unproved) and part is domain:
                right = min(right, max(base + int(unproved[0]), shortest) - 1)
            if len(lost):
                wrong = min(wrong, max(base + int(lost[0]), shortest))
    return right if right >= shortest else None, wrong if wrong <= domain.N else None
