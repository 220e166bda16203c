"""Reading "real": the cells of all strings, and where they leave some open, strings one by one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from verify.frame.clock import TimeIsUp
from verify.frame.decide import Effort, Finding
from verify.tasks.contextual.cells import CellProof, PromptCells, PromptProof
from verify.tasks.contextual.runs import candidates, judge, telling
from verify.tasks.contextual.stream import DecidableRegions
from verify.tasks.contextual.task import StringDomain

FEW_STRINGS = 3000  # decided one by one where cells leave something open
LARGEST_RUN = 2_000_000
MOST_CANDIDATES, MOST_TOKENS = 400, 10**6  # strings tried against undecided cells, and their tokens
UNTIL_STRINGS = 3 / 4  # of the time, in which cells are decided where one is open
BY_CELLS, BY_STRINGS = "cells of strings", "string by string"


def prove(problem: DecidableRegions, effort: Effort) -> Finding:
    """Decides every cell. A cell that stays open is settled by a wrong string, or by all strings where they are few."""
    stored, domain, until = problem.stored, problem.domain, effort.deadline()
    proof = CellProof(stored, domain, until)
    decided = CellsInTime.of(proof, effort)
    cells = decided.cells
    judged, argument, tightest, margin = [(cells, domain)], BY_CELLS, None, decided.margin
    found, ended = None, not decided.are_all
    if margin > 0:
        tightest = where(decided.tightest)
    else:
        try:
            found = find_failure(proof, cells)
            if found is None and are_few(domain):
                margin, argument, ended = strings_margin(proof), BY_STRINGS, False
        except TimeIsUp:
            ended = True
        if domain.zeros is None:  # strings without 0 are a telling part of the domain
            only_ones = replace(domain, zeros=0)
            judged.append((CellsInTime.of(CellProof(stored, only_ones, until), effort).cells, only_ones))
    extra = {
        "right_lengths": {str(M): right_lengths(judged, M, stored.R) for M in range(domain.fewest, domain.most + 1)}
    }
    if found is not None:
        return Finding.refuted(argument, problem.wrong_in_real_arithmetic(*found), extra=extra)
    if margin > 0:
        return Finding.proved(argument, margin, tightest=tightest, telling=telling(cells, domain), extra=extra)
    reason = decided.ended(effort) if ended else f"undecided at {decided.place}, and no failing string found"
    return Finding.open(argument, reason, extra=extra)


@dataclass(frozen=True)
class CellsInTime:
    """The cells of a domain that were decided in time, of so many pairs of a prompt and a number of regions."""

    cells: list[PromptCells]
    pairs: int

    @classmethod
    def of(cls, proof: PromptProof, effort: Effort) -> CellsInTime:
        """Decides until the time is up; once a cell is open, a share of it is left for a wrong string."""
        cells: list[PromptCells] = []
        is_open, early = False, effort.deadline(UNTIL_STRINGS)
        try:
            for cell in proof.decide():
                cells.append(cell)
                is_open = is_open or not (cell.margin > 0).all()
                if is_open and early.is_up():
                    break
        except TimeIsUp:
            pass
        return cls(cells, proof.stored.R * (proof.domain.most - proof.domain.fewest + 1))

    @property
    def done(self) -> int:
        """How many pairs were decided."""
        return sum(c.most - c.fewest + 1 for c in self.cells)

    @property
    def are_all(self) -> bool:
        return self.done == self.pairs

    @property
    def tightest(self) -> PromptCells:
        return min(self.cells, key=lambda c: float(c.margin.min()))

    @property
    def margin(self) -> float:
        """The smallest margin of all cells: NaN where one is, and minus infinity where some were not reached."""
        return float(np.min([c.margin.min() for c in self.cells])) if self.are_all else -np.inf

    @property
    def place(self) -> str:
        """The least certain cell, in words."""
        return f"prompt {self.tightest.r}, count {self.tightest.margin.argmin()}"

    def ended(self, effort: Effort) -> str:
        """Why nothing is known: the time was up."""
        of = f"{self.done} of {self.pairs} pairs of a prompt and a number of regions decided"
        return f"the {effort.limit} ended with {of}, and no failing string found; raise it"


def where(tightest: PromptCells) -> dict[str, object]:
    """The cell with the smallest margin."""
    count = int(tightest.margin.argmin())
    return {"prompt": tightest.r, "count": count, "regions": [tightest.fewest, tightest.most]}


def find_failure(proof: CellProof, cells: list[PromptCells]) -> tuple[list[int], int] | None:
    """A string and a prompt that real arithmetic shows to be wrong: among candidates, and all where they are few.

    Raises: TimeIsUp.
    """
    domain = proof.domain
    few: Iterator[list[int]] = domain.enumerate() if are_few(domain) else iter(())
    for tokens in chain(islice(candidates(cells, domain), 1 + min(MOST_CANDIDATES, MOST_TOKENS // domain.N)), few):
        judged = judge(proof, tokens)
        if judged.wrong.any():
            return tokens, int(judged.wrong.argmax())
    return None


def are_few(domain: StringDomain) -> bool:
    """Whether the strings can be decided one by one."""
    return 4**domain.N <= LARGEST_RUN and domain.strings() <= FEW_STRINGS


def strings_margin(proof: CellProof) -> float:
    """The smallest margin over all strings, or a number that is not positive where one is undecided.

    Raises: TimeIsUp.
    """
    return min(float(judge(proof, tokens).margin.min()) for tokens in proof.domain.enumerate())


def right_lengths(
    judged: list[tuple[list[PromptCells], StringDomain]], M: int, prompts: int
) -> tuple[int | None, int | None]:
    """For M regions: the largest length up to which every string is right, and the smallest at which some is not.

    No length is known to be right where the time was up before the cells of all prompts were decided.

    The first of the domains is the whole one, the others are parts of it, where wrong strings may be found too. A
    wrong cell has strings of every length from its shortest on, so where the two numbers meet the set of lengths is
    exact. None: no such length up to N.
    """
    domain = judged[0][1]
    right, wrong = domain.N, domain.N + 1
    base = 2 * M + (domain.zeros or 0)
    shortest = max(domain.shortest, base)
    if sum(c.fewest <= M <= c.most for c in judged[0][0]) < prompts:
        right = shortest - 1
    for cells, part in judged:
        for c in (c for c in cells if c.fewest <= M <= c.most):
            unproved, lost = np.nonzero(~(c.margin > 0))[0], np.nonzero(c.wrong)[0]
            if len(unproved) and part is domain:
                right = min(right, max(base + int(unproved[0]), shortest) - 1)
            if len(lost):
                wrong = min(wrong, max(base + int(lost[0]), shortest))
    return right if right >= shortest else None, wrong if wrong <= domain.N else None
