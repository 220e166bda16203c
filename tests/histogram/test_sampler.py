"""The partition sampler and the Hypothesis strategy draw what App. D describes."""

import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from constructions.errors import BadInput
from constructions.partition_sampler import sample
from verify.python.strategies import histogram_sequences


@given(st.integers(1, 6), st.integers(1, 9), st.data())
def test_the_strategy_draws_sequences(T, L, data):
    tokens = data.draw(histogram_sequences(T, L))
    assert len(tokens) == L and set(tokens) <= set(range(T))


def test_the_strategy_refuses_empty_sizes():
    with pytest.raises(BadInput):
        histogram_sequences(0, 3)


@pytest.mark.parametrize(("T", "L"), [(1, 3), (2, 5), (7, 4), (32, 10)])
def test_the_torch_sampler_draws_sequences(T, L):
    x = sample(T, L, 500, torch.Generator().manual_seed(0))
    assert x.shape == (500, L) and x.min() >= 0 and x.max() < T


def partition_probabilities(K):
    """Exact distribution of the block sizes of App. D, with K = k - 1, by plain recursion."""
    if K == 0:
        return {(): 1.0}
    out = Counter()
    for k in range(1, K + 1):
        for rest, probability in partition_probabilities(k - 1).items():
            out[tuple(sorted((K - k + 1, *rest)))] += probability / K
    return out


def test_the_distribution_of_partitions():
    """Frequencies of the multiset of counts against the exact recursion: five standard deviations."""
    T, L, n = 12, 5, 10000
    drawn = Counter(
        tuple(sorted(Counter(row).values())) for row in sample(T, L, n, torch.Generator().manual_seed(1)).tolist()
    )
    expected = partition_probabilities(L)
    assert set(drawn) == set(expected)
    for partition, probability in expected.items():
        assert abs(drawn[partition] - n * probability) < 5 * (n * probability * (1 - probability)) ** 0.5


def test_positions_and_tokens_are_uniform():
    T, L, n = 4, 3, 40000
    x = sample(T, L, n, torch.Generator().manual_seed(2))
    for position, token in itertools.product(range(L), range(T)):
        share = (x[:, position] == token).double().mean().item()
        assert abs(share - 1 / T) < 5 * (0.25 * 0.75 / n) ** 0.5
