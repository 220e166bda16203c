"""Theorems of the library that speak of no file: what they say, and a file that reads which axioms they rest on."""

from __future__ import annotations

# By source file: each theorem's name, and what it says.
GENERAL = {
    "General": {
        "relation_counting": "A-4.2: for all T, L and d >= max(T, 1) a dot model with one neuron counts, with margin 1",
        "one_dimension_less": "for all T >= 3 and L >= 1 one with d = T - 1 does",
    },
    "LowerBound": {"neurons_for_counting": "a dot model with softmax that counts, for some T, L >= 2, has T < 2^p"},
    "AnyOrder": {
        "any_order": "sums of n floats, rounded to nearest after each addition, in any order and without overflow, are "
        "off by at most ((1 + u)^(n-1) - 1) times the absolute values' sum",
        "integers_are_exact": "integers whose absolute values add up to less than 2^precision are added exactly in any "
        "order, where the least exponent is at most 0",
    },
    "Evaluations": {
        "floats_count": "dtype, any order: dot with sqrt(d) rounded in W_Q counts for all d >= max(T, 1) where "
        "3 L^2 < 2^p, 1 is normal, nothing overflows, and scores are divided by the root",
        "floats_count_by_reciprocals": "the same for d = 4^j, 2^-j normal, where scores may be multiplied by a rounded "
        "reciprocal",
        "some_evaluation": "and there are evaluations for these theorems to speak of",
    },
    "RoundedEvaluations": {
        "rounded_counts": "dot with own scores within eps of 1 and results off by u times them and eta more counts "
        "with margin 1 - 2 logit_error, if whole numbers up to 3 L^2, and 0 and the root, are kept",
        "floats_count_rounded": "dtype, any order, by reciprocals or not: the margin is 1/2 for all d >= max(T, 1) "
        "where 512 (L + d + 2) L^2 <= 2^(p - 1), 12 d least_normal <= 2^(1 - p), and nothing overflows",
        "float32_counts": "for example float32 with T = 32, L = 10, d = 32, where nothing overflows",
    },
    "Count01": {
        "uniform_solves": "W-10: uniform attention solves Count01 on every string of digits, and then says EOS"
    },
    "SeparatingValue": {
        "documents_solve": "D-1: the documents' weights, exact, N >= 5, solve Count01 for all n0 and n1 iff n2 is at "
        "most k, where the noise threshold lies between k and k + 1",
        "last_right_10": "D-1: at N = 10 that k is 1497",
        "last_right_15": "D-1: at N = 15 that k is 151915",
        "last_right_20": "D-1: at N = 20 that k is 17108827",
    },
    "Addition": {
        "staircase_adds": "W-E4.4: one softmax head and two neurons in one dimension add modulo P with margin 1/2, "
        "for every P >= 2",
        "columns_add": "W-E4.1: a softmax over keys with exact logarithms as scores, and two neurons, find every "
        "digit of every sum of two n-digit numbers in base B, where all other keys' scores are low enough",
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
