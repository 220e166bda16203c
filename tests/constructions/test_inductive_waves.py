"""RoPE and BOS without an MLP: right at the lengths that it was made for, at every shift, and wrong soon after."""

import pytest
import torch

from constructions.errors import BadInput, NotKnown
from constructions.inductive_waves import build, ranks


@pytest.mark.parametrize("N, m, d_head", [(40, 10, 64), (20, 7, 32), (18, 5, 32), (16, 3, 64)])
def test_it_counts_up_to_its_length_at_every_shift(N, m, d_head):
    model = build(N, m=m, d_head=d_head, positions=N + 40)
    for shift in (0, 1, 17, 39):
        with torch.no_grad():
            answers = model(torch.zeros(N, dtype=torch.long), shift=shift).argmax(-1)
        assert answers.tolist() == [n % m for n in range(N)]


def test_one_head_of_128_counts_to_100_with_larger_coefficients():
    with pytest.raises(NotKnown, match="raise one of the two"):
        build(100, largest=10.0)
    model = build(100, largest=100.0)
    with torch.no_grad():
        assert model(torch.zeros(100, dtype=torch.long)).argmax(-1).tolist() == [n % 10 for n in range(100)]


@pytest.mark.parametrize("m", range(2, 13))
def test_neighbouring_answers_are_at_most_two_places_apart(m):
    places = ranks(m)
    assert sorted(places) == list(range(m))
    assert all(abs(places[j] - places[(j + 1) % m]) <= 2 for j in range(m))


@pytest.mark.parametrize(
    "sizes, message",
    [
        ({"N": 0}, "N=0"),
        ({"N": 5, "m": 1}, "m=1"),
        ({"N": 5, "d_head": 7}, "d_head=7"),
        ({"N": 5, "largest": 0.0}, "largest=0.0"),
        ({"N": 5, "positions": 5}, "positions=5"),
    ],
)
def test_sizes_without_a_meaning_are_refused(sizes, message):
    with pytest.raises(BadInput, match=message):
        build(**sizes)
