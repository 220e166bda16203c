"""Theorems of the library that speak of no file: what they say, and a file that reads which axioms they rest on."""

from __future__ import annotations

# By source file: each theorem's name, and what it says.
GENERAL = {
    "General": {
        "relation_counting": "A-4.2: for all T, L and d >= T a dot model with one neuron counts, with margin 1",
        "one_dimension_less": "for all T >= 3 and L >= 1 one with d = T - 1 does",
    },
    "LowerBound": {
        "neurons_for_counting": "a dot model with softmax that counts, for some T, L >= 2, has T < 2^p",
    },
    "AnyOrder": {
        "any_order": "rounded sums in any order are off by at most ((1 + u)^(n-1) - 1) times the absolute values' sum",
        "integers_are_exact": "integers whose absolute values add up to less than 2^precision are added exactly",
    },
    "Count01": {
        "uniform_solves": "W-10: uniform attention solves Count01 on every string of digits, and then says EOS",
        "staircase_adds": "W-E4.4: two neurons in one dimension add modulo P with margin 1/2, for every P",
    },
}
NAMES = tuple(name for found in GENERAL.values() for name in found)


def source_of(theorem: str) -> str:
    """The source file of a theorem.

    >>> source_of("uniform_solves")
    'Count01'
    """
    return next(source for source, found in GENERAL.items() if theorem in found)


def assumptions_of(theorem: str) -> str:
    """A Coq file that prints the axioms of a theorem of the library."""
    return f"From Weightproof Require Import {source_of(theorem)}.\nPrint Assumptions {theorem}.\n"
