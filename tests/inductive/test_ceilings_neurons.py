"""N(m, s) by counting, by built weights, and by sign changes that no network of ReLUs exceeds; equal reciprocals."""

from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from models.selection import first

from bounds.inductive_limits import (
    fewest_neurons,
    first_equal_reciprocals,
    longest,
    longest_with_changes,
    longest_with_neurons,
    m,
    s,
)
from verify.tasks.inductive.ceilings.limits import longest_by_counting
from verify.tasks.inductive.ceilings.sawtooth import build


def changes_needed(length, modulus):
    """The largest number of times that two of the right classes take turns, from the string of answers alone."""
    answers = [n % modulus for n in range(length)]
    needed = 0
    for a, b in product(range(modulus), repeat=2):
        seen = [x for x in answers if x in (a, b)]
        needed = max(needed, sum(x != y for x, y in pairwise(seen)))
    return needed


@pytest.mark.parametrize("modulus", range(2, 11))
def test_the_formula_is_the_longest_string_that_the_sign_changes_allow(modulus):
    for changes in range(1, 13):
        N = longest_with_changes(modulus, changes)
        assert changes_needed(N, modulus) <= changes < changes_needed(N + 1, modulus)
        assert longest().subs({m: modulus, s: changes}) == N == longest_by_counting(modulus, changes)


@pytest.mark.parametrize(("moduli", "most", "longest"), first(1, [(range(2, 8), 7, 59), (range(2, 11), 18, 109)]))
def test_the_built_weights_reach_it_and_their_last_right_length_is_it(moduli, most, longest):
    times = [Fraction(n) for n in range(1, longest + 1)]
    for modulus, neurons in product(moduli, range(most + 1)):
        assert build(modulus, neurons).right_up_to(modulus, times) == longest_with_neurons(modulus, neurons)


def test_the_fewest_neurons_are_the_least_that_reach_a_length():
    for modulus, length in product(range(2, 8), range(1, 60)):
        p = fewest_neurons(modulus, length)
        assert longest_with_neurons(modulus, p) >= length
        assert p == 0 or longest_with_neurons(modulus, p - 1) < length


@pytest.mark.parametrize("name, dtype", [("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_the_first_equal_reciprocals_are_those_of_torch(name, dtype):
    bits = {"bfloat16": 8, "float16": 11}[name]
    n = torch.arange(1, 3000, dtype=torch.float64)
    rounded = (1 / n).to(dtype)
    first = 1 + int(torch.nonzero(rounded[1:] == rounded[:-1])[0])
    assert first == first_equal_reciprocals(bits)


def test_float32_and_float64_by_numpy():
    first = first_equal_reciprocals(24)
    n = np.arange(first - 200_000, first + 2, dtype=np.float32)
    equal = np.float32(1) / n[1:] == np.float32(1) / n[:-1]
    assert np.flatnonzero(equal)[0] == len(equal) - 1
    last = first_equal_reciprocals(53)
    assert 1 / (last - 1) != 1 / last == 1 / (last + 1)


@pytest.mark.parametrize("bits", range(3, 13))
def test_few_bits_by_looking_at_all_lengths(bits):
    def rounded(n):
        exponent = (n - 1).bit_length() + bits - 1
        return Fraction(round(Fraction(1 << exponent, n)), 1 << exponent)

    n = 1
    while rounded(n) != rounded(n + 1):
        n += 1
    assert n == first_equal_reciprocals(bits)


@pytest.mark.parametrize("call", [lambda: longest_with_changes(1, 3), lambda: longest_with_changes(3, 0),
                                  lambda: fewest_neurons(3, 0), lambda: first_equal_reciprocals(2)])  # fmt: skip
def test_sizes_without_a_meaning_are_refused(call):
    with pytest.raises(ValueError, match="must be at least"):
        call()
