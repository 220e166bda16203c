"""Two layers whose second one hands on neurons, against runs of all sequences; and one neuron, too few for both."""

import itertools

import pytest
import torch
from models.selection import every

from constructions import inventory_counting as inventory
from constructions import relation_counting as relation
from constructions.errors import BadInput
from constructions.two_layers import TwoLayerTransformer, after, distance
from verify.tasks.histogram.drawings.phase import phase_of_two
from verify.tasks.histogram.handed_on import _Numbers, counts_as_one_layer, is_right_on_pairs, lead, lost, one_layer
from verify.tasks.histogram.impossible import one_neuron_twice
from verify.tasks.histogram.phase import corners_of_two, excluded_of_two

T, L = 3, 4
BUILDERS = {
    f"{room.__name__}.{name}": getattr(room, name)
    for room, names in (
        (relation, ("dot", "bos")),
        (inventory, ("lin", "lin_sftm", "dot", "dot_sftm", "bos", "bos_sftm")),
    )
    for name in names
}
TOKENS = torch.tensor(list(itertools.product(range(T), repeat=L)))
DUE = (TOKENS[:, :, None] == TOKENS[:, None]).sum(-1) - 1


def built(name):
    return after(BUILDERS[name](T=T, L=L, dtype=torch.float64))


def least_margin(two):
    found = two(TOKENS)
    right = found.gather(-1, DUE[..., None])[..., 0]
    return float((right - found.scatter(-1, DUE[..., None], -torch.inf).amax(-1)).min())


@pytest.mark.parametrize("name", BUILDERS)
def test_what_is_handed_on_counts(name):
    two = built(name)
    assert counts_as_one_layer(two) and least_margin(two) > 0
    with pytest.raises(BadInput, match="does not hand on"):
        two.second.b_1[0] = 2.0**-60
        counts_as_one_layer(two)


@pytest.mark.parametrize("name", every(3, BUILDERS))
def test_changed_weights_against_all_sequences(name):
    """Where it says right, no sequence is wrong; it never says so of a readout or of scores that fail."""
    said = []
    for seed in range(12):
        torch.manual_seed(seed)
        two = built(name)
        for layer, parameter in (("first", "W_1"), ("second", "W_2"), ("second", "b_2")):
            weight = getattr(getattr(two, layer), parameter)
            weight += torch.randn_like(weight) * 0.3 ** (seed % 6)
        if two.second.is_softmax:
            scores = two.second.A if two.second.is_linear else two.second.W_Q
            scores *= 0.5 ** (seed % 4)
        said.append(counts_as_one_layer(two))
        assert not said[-1] or least_margin(two) > 0, seed
    assert not all(said)


@pytest.mark.parametrize("name", ["inventory_counting.lin_sftm", "inventory_counting.dot_sftm"])
def test_a_small_lead_is_not_enough(name):
    """Planted: scores that are too small. No more is lost than the bound says, which is the true lead's."""
    whole = least_margin(built(f"constructions.{name}"))
    for times in (1 / 2, 1 / 8, 1 / 20, 1 / 32):
        two = built(f"constructions.{name}")
        scores = two.second.A if two.second.is_linear else two.second.W_Q
        scores *= times
        numbers = _Numbers.of(one_layer(two))
        assert lead(two, numbers) == pytest.approx(40 * times, rel=1e-5)
        assert whole - least_margin(two) <= lost(two, numbers) + 1e-12
    assert not counts_as_one_layer(two) and least_margin(two) < whole - 1e-3


def test_pairs_are_run_in_fractions():
    two = distance(7)
    assert is_right_on_pairs(two)
    two.second.b_2[1] = 1.0  # a tie at |t - s| = 1
    assert not is_right_on_pairs(two)
    with pytest.raises(BadInput, match="pairs are of lin"):
        is_right_on_pairs(TwoLayerTransformer("dot", T=2, L=2, d=1, p=1))


def test_no_two_layers_of_one_neuron_of_lin_sftm_count():
    """On 0..0, 0..01 and 1..1 at the first position; without softmax W-26 does, so the three can tell."""

    def is_right(two, length):
        strings = torch.tensor([[0] * length, [0] * (length - 1) + [1], [1] * length])
        found = two(strings)[:, 0]
        due = torch.tensor([length, length - 1, length]) - 1
        others = found.scatter(1, due[:, None], -torch.inf).amax(1)
        return bool((found.gather(1, due[:, None])[:, 0] > others + 1e-9).all())

    assert is_right(distance(2), 2)
    for seed in range(300):
        torch.manual_seed(seed)
        two = TwoLayerTransformer("lin+sftm", T=2, L=2 + seed % 3, d=1 + seed % 4, p=1, dtype=torch.float64)
        for weight in two.parameters():
            weight.copy_(2 * torch.randn_like(weight))
        assert not is_right(two, two.L), seed
    assert [e.p for e in excluded_of_two("lin+sftm", 9, 4)] == [1] and not excluded_of_two("lin", 9, 4)


def test_the_argument_holds_and_needs_positive_mixing():
    found = one_neuron_twice(0)
    assert found.holds and list(found.checks.values()) == [36, 5, 36]


@pytest.mark.deep
def test_the_figure_of_two_layers_draws_their_corners():
    for axes in phase_of_two(5, 2).axes:
        model = axes.get_title()
        drawn = {(line.get_ydata()[0], line.get_xdata()[0]) for line in axes.lines if line.get_marker() == "o"}
        assert drawn == {(c.d, c.p) for c in corners_of_two(model, 5, 2)}
        assert {"lin": (1, 1), "dot": (4, 1)}.get(model, (5, 5)) in drawn or model == "bos"
