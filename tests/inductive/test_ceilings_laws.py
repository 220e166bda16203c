"""The exact ceilings against a count of every string of small laws, and the figures that document C prints."""

from collections import Counter, defaultdict
from fractions import Fraction
from itertools import product

import pytest

from verify.tasks.inductive.ceilings.laws import (
    constant_answer,
    equal_prefix,
    equal_prefix_independent,
    lengths_that_print,
    proportions,
)


def strings(K, C, n):
    """Each string with its weight: counts uniform given the sum, then arrangements uniform."""
    by_counts = defaultdict(list)
    for string in product(range(K), repeat=n):
        counts = tuple(string.count(k) for k in range(K))
        if max(counts) <= C:
            by_counts[counts].append(string)
    for alike in by_counts.values():
        for string in alike:
            yield string, Fraction(1, len(by_counts) * len(alike))


def best(weighted, key, first, n, modulus):
    """The accuracy of the best answer for each key, by counting."""
    share = defaultdict(Counter)
    for string, weight in weighted:
        for t in range(first, n + 1):
            count = string[:t].count(string[t - 1])
            share[key(string[:t])][count if modulus is None else (count - 1) % modulus] += weight
    return sum(max(labels.values()) for labels in share.values()) / (n - first + 1)


def prefix_key(prefix):
    """What a model without positions and without BOS tells apart at best: everything but the length of a^r."""
    return prefix[0] if len(set(prefix)) == 1 else prefix


def ray_key(prefix):
    counts = Counter(prefix)
    return prefix[-1], tuple(Fraction(counts[k], len(prefix)) for k in range(4))


@pytest.mark.parametrize(
    "K, C, n, modulus", [(2, 3, 5, None), (3, 3, 6, None), (2, 5, 8, 2), (2, 6, 9, 3), (3, 2, 6, 2), (2, 4, 1, None)]
)
def test_the_ceilings_of_selective_counting_are_what_counting_all_strings_gives(K, C, n, modulus):
    everything = list(strings(K, C, n))
    assert sum(weight for _, weight in everything) == 1
    assert equal_prefix(K, C, n, modulus) == best(everything, prefix_key, 1, n, modulus)
    for first in {1, (n + 1) // 2, n}:
        assert proportions(K, C, n, first, modulus) == best(everything, ray_key, first, n, modulus)
    independent = [(string, Fraction(1, K**n)) for string in product(range(K), repeat=n)]
    assert equal_prefix_independent(K, n, modulus) == best(independent, prefix_key, 1, n, modulus)


def test_the_ceilings_at_the_lengths_of_document_c():
    as_printed = [round(float(100 * x), 3) for x in (equal_prefix(10, 10, 50), equal_prefix(10, 10, 64, 4))]
    assert as_printed == [99.725, 99.815]
    assert round(float(100 * proportions(10, 10, 50)), 3) == 99.385  # NoPE, one layer: C's 96.0
    assert constant_answer((t - 1) % 10 for t in range(51, 101)) == Fraction(
        1, 10
    )  # below C's 11.8 out of distribution


def test_only_51_positions_explain_both_of_the_printed_failures():
    explained = set(lengths_that_print("2.0", None)) & set(lengths_that_print("11.8", 10))
    assert explained == {51}
    assert Fraction("0.12") > constant_answer((t - 1) % 10 for t in range(51))  # C's 12.0 is above it


@pytest.mark.parametrize("sizes", [(0, 1, 1), (1, 0, 1), (2, 2, 5), (2, 2, 0)])
def test_laws_without_a_string_are_refused(sizes):
    with pytest.raises(ValueError, match="every sum from 1 to K C"):
        equal_prefix(*sizes)
