"""The smallest counting transformers: built at the bound and proved, refused below it, and attacked."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from command import as_json, run
from models.selection import every
from oracles.histogram import all_wrong_pairs

from bounds.exact_laws import (
    fewest_dimensions_of_one_neuron,
    fewest_neurons,
    lin_needs_dimensions,
    lin_needs_neurons,
)
from constructions.coded_inventory import on_code
from constructions.codes.even import search_even
from constructions.codes.kept import smallest_kept
from constructions.errors import BadInput
from constructions.exact_laws import balanced, logarithmic, rational
from constructions.fewer_dimensions import code
from verify.frame.certificate import Verdict
from verify.tasks.histogram.attack import ABOVE, BELOW, _logits, attack
from verify.tasks.histogram.impossible import ARGUMENTS, random_model
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.rounded.verdict import certify as certify_in


@pytest.mark.parametrize(
    "T,L", every(2, [(2, 3), (3, 2), (3, 10), (4, 10), (7, 10), (8, 20), (15, 30), (31, 10), (32, 10), (32, 30)])
)
def test_logarithmic_is_proved(T, L):
    for d in (T, max(1, T - 1)):
        module = logarithmic(T=T, L=L, d=d)
        assert module.p == fewest_neurons(T) and certify(module).verdict is Verdict.PROVED


def test_logarithmic_at_length_100():
    assert certify(logarithmic(T=15, L=100)).verdict is Verdict.PROVED


@pytest.mark.parametrize("kind", ["dot", "bos"])
@pytest.mark.parametrize("T,L", every(2, [(2, 2), (2, 9), (3, 5), (5, 10), (32, 30), (33, 100), (64, 30)]))
def test_rational_is_proved(kind, T, L):
    module = rational(kind, T=T, L=L)
    assert (module.d, module.p) == (max(1, T - 1), 1) and certify(module).verdict is Verdict.PROVED


@pytest.mark.parametrize("T,L", [(5, 10), (33, 100)])
def test_rational_is_proved_in_float32_in_any_order(T, L):
    from verify.arithmetic.formats import FORMATS

    assert certify_in(rational("dot", T=T, L=L), fmt=FORMATS["float32"]).verdict is Verdict.PROVED


@pytest.mark.parametrize("kind", ["lin", "lin+sftm"])
@pytest.mark.parametrize("T,L", [(4, 2), (5, 2), (9, 4), (12, 3), (32, 10), (32, 16), (33, 16)])
def test_balanced_is_proved(kind, T, L):
    module = balanced(kind, T=T, L=L)
    assert module.d == T - T // L and certify(module).verdict is Verdict.PROVED


@pytest.mark.parametrize("kind", ["lin", "lin+sftm"])
@pytest.mark.parametrize(("T", "L"), [(2, 2), (3, 7), (15, 30)])
def test_the_simplex_is_proved(kind, T, L):
    assert certify(balanced(kind, T=T, L=L, d=T - 1)).verdict is Verdict.PROVED


def test_even_shares_are_found_and_proved():
    """A small search, and the kept result of a long one."""
    found = search_even(4, 6, 3, restarts=10)
    w = np.exp((G := found.E @ found.X @ found.E.T) - G.diagonal()[:, None])
    taken = w * ((V := found.E @ found.W_1).diagonal()[:, None] - V.T)
    others = taken[~np.eye(4, dtype=bool)].reshape(4, 3)
    assert found.gap > 0 and np.abs(others / others.mean(1, keepdims=True) - 1).max() < 0.1
    module = on_code("dot+sftm", found, L=6, dtype="float64").module()
    assert certify(module).verdict is Verdict.PROVED and not all_wrong_pairs(module)
    kept = code("dot+sftm", T=7, L=50, d=4, dtype=torch.float64)
    assert (kept.d, kept.p) == (4, 7) and certify(kept).verdict is Verdict.PROVED
    for L in (10, 50):
        assert certify(code("dot+sftm", T=5, L=L, d=3, dtype=torch.float64)).verdict is Verdict.PROVED


def test_a_kept_code_of_more_tokens_is_one_of_fewer():
    assert smallest_kept("dot", 15, 10) == 8 and smallest_kept("dot+sftm", 15, 10) is None
    assert certify(code("dot", T=15, L=10, d=8)).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    "module",
    [logarithmic(T=3, L=4), logarithmic(T=4, L=3), logarithmic(T=4, L=3, d=3), rational("dot", T=4, L=4),
     rational("bos", T=3, L=5), rational("dot", T=2, L=6), balanced("lin", T=4, L=2), balanced("lin+sftm", T=5, L=2),
     balanced("lin", T=6, L=2)],
    ids=repr,
)  # fmt: skip
def test_enumeration_agrees(module):
    assert not all_wrong_pairs(module)


@pytest.mark.deep
@pytest.mark.parametrize("claim", ["W-5", "W-16", "W-17", "W-24", "W-27"])
def test_the_arguments_hold(claim):
    assert ARGUMENTS[claim](0).holds


@pytest.mark.parametrize(
    ("argv", "claim"),
    [(("--model", "dot+sftm", "--T", "32", "--L", "10", "--p", "5"), "W-16"),
     (("--model", "lin+sftm", "--T", "4", "--L", "2", "--p", "2"), "W-16"),
     (("--model", "dot", "--T", "32", "--L", "17", "--d", "30", "--p", "1"), "W-17"),
     (("--model", "bos", "--T", "5", "--L", "3", "--d", "3", "--p", "1"), "W-17"),
     (("--model", "lin", "--T", "3", "--L", "72", "--d", "1", "--p", "3"), "W-24"),
     (("--model", "lin+sftm", "--T", "3", "--L", "13122", "--p", "2"), "W-24")],
)  # fmt: skip
def test_below_the_bound_is_impossible(capsys, argv, claim):
    code, out, err = run(capsys, "histogram", *argv, "--json")
    assert code == 2 and f'"claim": "{claim}"' in out and '"verdict": "IMPOSSIBLE"' in out and err.count("\n") == 1


def test_long_sequences_in_exact_numbers():
    """The bound of W-24 against its own inequality, in whole numbers, and never where weights are built."""
    for T, p in ((3, 2), (3, 3), (4, 4)):
        R = math.ceil((T + 1) / 2)
        for L in range(R + 2, 400):
            h = (L - 1 - R) // (T * (T - 1) // 2)
            if lin_needs_dimensions(T, L, p):
                assert p * R * math.comb(h, h // 2) < 2**h
    assert lin_needs_dimensions(3, 10**9, 3) and lin_needs_neurons(3, 2 * 3**8) and lin_needs_neurons(5, 2 * 5**8)
    for T in range(3, 40):
        assert not any(lin_needs_dimensions(T, L, T) for L in range(2, T + 1))  # d = T - 2 is built up to T/2


def test_where_the_law_is_silent_nothing_is_called_impossible(capsys):
    code, out, err = run(capsys, "histogram", "--model", "dot", "--T", "32", "--L", "10", "--d", "30", "--p", "1")
    assert "impossible" not in (out + err).lower() and code in (2, 3)


@pytest.mark.parametrize(
    ("argv", "claim"),
    [(("--model", "dot+sftm", "--T", "31", "--L", "10", "--p", "5"), "W-13"),
     (("--model", "bos", "--T", "33", "--L", "100", "--d", "32", "--p", "1"), "W-14"),
     (("--model", "lin", "--T", "9", "--L", "4", "--d", "7"), "W-15")],
)  # fmt: skip
def test_the_command_chooses_them(capsys, argv, claim):
    code, out = as_json(capsys, "histogram", *argv)
    assert code == 0 and (out["verdict"], out["claim"]) == ("PROVED", claim)


def test_sizes_that_they_do_not_cover_are_refused():
    for build, sizes in ((balanced, {"T": 32, "L": 17, "d": 30}), (balanced, {"T": 8, "L": 1})):
        with pytest.raises(BadInput):
            build("lin", **sizes)
    for sizes in ({"T": 8, "L": 3, "p": 3}, {"T": 8, "L": 3, "d": 6}):
        with pytest.raises(BadInput):
            logarithmic(**sizes)
    with pytest.raises(BadInput):
        rational("dot", T=5, L=3, d=3)


@pytest.mark.deep
@pytest.mark.parametrize("claim", sorted(BELOW))
def test_the_gradient_search_finds_none_below_the_bounds(claim):
    """128 starts of 600 steps each, in one batch."""
    for model, T, L, d, p in BELOW[claim]:
        is_below = p < fewest_neurons(T) if "sftm" in model else d < fewest_dimensions_of_one_neuron(T, L) or p == 1
        assert is_below and attack(model, T=T, L=L, d=d, p=p, starts=128, steps=600).counting == 0


@pytest.mark.parametrize("size", [("lin", 2, 2, 2, 2), ("dot", 3, 2, 2, 1)])
def test_the_gradient_search_finds_weights_where_some_exist(size):
    model, T, L, d, p = size
    assert attack(model, T=T, L=L, d=d, p=p, starts=16, steps=200).counting > 0


@pytest.mark.deep
def test_the_gradient_search_finds_weights_at_every_bound():
    for size in {size for sizes in ABOVE.values() for size in sizes}:
        model, T, L, d, p = size
        assert attack(model, T=T, L=L, d=d, p=p, starts=128, steps=600).counting > 0, size


def test_the_attacked_model_is_the_model():
    """The forward pass of the search, written again, against the module's."""
    for model in ("lin", "lin+sftm", "dot", "dot+sftm", "bos", "bos+sftm"):
        module = random_model(model, 4, T=3, L=2, d=2, p=3)
        weights = {name: x.detach()[None] for name, x in module.named_parameters()}
        if "W_Q" in weights:
            weights["X"] = weights["W_Q"] @ weights["W_K"].transpose(-1, -2) / module.d**0.5
        tokens = torch.cartesian_prod(torch.arange(3), torch.arange(3))
        assert torch.allclose(_logits(model, weights, tokens)[0], module(tokens))
