"""Repaired weights are proved at precisions at which the printed ones fail; the printed ones are still there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from models.selection import first

from constructions import inventory_counting, relation_counting
from constructions.codes import tokens as token_codes
from constructions.errors import BadInput
from constructions.readout_arrays import rounding_cost, staircase, staircase_at
from verify.arithmetic.formats import FORMATS, format_named
from verify.frame.certificate import Verdict
from verify.tasks.histogram.precision.search import Construction, judge
from verify.tasks.histogram.rounded.verdict import certify

SIZES = {"T": 32, "L": 10, "dtype": torch.float64}
# builder, bits that suffice for ours
GAINS = [
    (relation_counting.dot, 8),
    (relation_counting.zero_bos, 8),
    (inventory_counting.lin, 6),
    (inventory_counting.lin_sftm, 9),
    (inventory_counting.dot_sftm, 8),
    (inventory_counting.bos_sftm, 8),
    (relation_counting.bos_sftm, 8),
]


def verdict(module, name, **options):
    return certify(module, fmt=format_named(name), **options).verdict


def fewest_bits(module):
    return next(p for p in range(5, 54) if verdict(module, f"p{p}", budget=0.0) is Verdict.PROVED)


@pytest.mark.parametrize(("build", "enough"), first(1, GAINS))
def test_fewer_bits_suffice(build, enough):
    ours, printed = fewest_bits(build(**SIZES)), fewest_bits(build(**SIZES, as_printed=True))
    assert ours <= enough and ours < printed


@pytest.mark.deep
@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_dot_with_one_neuron_passes_sixteen_bits_where_the_printed_weights_fail(name):
    assert verdict(relation_counting.dot(**SIZES), name) is Verdict.PROVED
    printed = certify(relation_counting.dot(**SIZES, as_printed=True), fmt=FORMATS[name], budget=5)
    assert printed.verdict is Verdict.REFUTED


def test_the_printed_weights_are_the_documents():
    model = relation_counting.dot(T=4, L=3, as_printed=True)
    assert model.b_1.item() == -(1 + 3 * (4 + 2))
    assert torch.allclose(model.E, torch.eye(4) + 1)
    assert relation_counting.bos_sftm(T=4, L=3, as_printed=True).b_1.item() == -1


@pytest.mark.parametrize("basis", ["standard", "random"])
def test_scores_and_tags(basis):
    """Scores are those of orthonormal tokens, and every token has the component 1 along the direction read."""
    model = relation_counting.dot(T=5, L=3, d=7, dtype=torch.float64, basis=basis)
    scores = model.E @ model.W_Q @ model.W_K.T @ model.E.T / 7**0.5
    assert torch.allclose(scores, torch.eye(5, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(model.E @ model.W_1[:, 0], torch.ones(5, dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("basis", ["standard", "random"])
@pytest.mark.parametrize(("T", "d"), [(4, 4), (5, 7), (32, 32)])
def test_bos_apart(basis, T, d):
    """The neuron sees BOS alone; the own token and BOS have the score 0, all others -32 at most."""
    model = relation_counting.bos_sftm(T=T, L=3, d=d, dtype=torch.float64, basis=basis)
    scores = model.E @ model.W_Q @ model.W_K.T @ torch.cat([model.E, model.e_BOS[None]]).T / d**0.5
    own = torch.cat([torch.eye(T, dtype=torch.bool), torch.ones(T, 1, dtype=torch.bool)], 1)
    assert scores[own].abs().max() < 1e-11 and scores[~own].max() <= -32 + 1e-9
    assert (model.E @ model.W_1[:, 0]).abs().max() < 1e-12
    assert abs((model.e_BOS @ model.W_1[:, 0]).item() - 1) < 1e-12


def test_tokens_in_whole_numbers():
    """What makes their scores exact: one norm each, and overlaps that separate them."""
    for T in (5, 8, 32, 64):
        for v, norm in ((token_codes.signs(T), T.bit_length()), (1024 * token_codes.lattice_circle(T), 1105 * 1885)):
            assert (v == v.round()).all() and ((v * v).sum(1) == norm).all()
            assert int(((v @ v.T) == norm).sum()) == T
    assert np.abs(token_codes.lattice_circle(32)).max() < 2 and 2**11 > 1885
    for T in (4, 12, 32):
        H = token_codes.hadamard(T)
        assert (T * np.eye(T) == H @ H.T).all() and (H[:, 0] == 1).all()
    with pytest.raises(BadInput, match="T=65"):
        token_codes.lattice_circle(65)


# builder, sizes, formats that the weights survive with every operation rounded, and those with sums in float32
SURVIVE = [
    ("dot+sftm", "inventory", None, ("bfloat16", "float16"), ()),
    ("bos+sftm", "inventory", None, ("bfloat16", "float16"), ()),
    ("bos+sftm", "relation", None, ("bfloat16", "float16"), ()),
    ("bos+sftm", "binary", None, ("bfloat16", "float16"), ()),
    ("dot", "simplex", 31, ("bfloat16", "float16"), ()),
    ("bos", "coherent", 32, ("bfloat16", "float16"), ()),
    ("bos+sftm", "sphere", 3, ("tf32",), ("float16",)),
    ("lin", "code", 29, ("tf32",), ("float16",)),
]


@pytest.mark.parametrize(("model", "name", "d", "alone", "summed"), SURVIVE)
def test_these_weights_survive_sixteen_bits(model, name, d, alone, summed):
    construction = Construction(model, name, 32, 10, d)
    for format_name, accumulate in [(f, None) for f in alone] + [(f, FORMATS["float32"]) for f in summed]:
        assert judge(construction, FORMATS[format_name], accumulate, 0.0).verdict is Verdict.PROVED


@pytest.mark.parametrize(
    "build", first(1, [inventory_counting.dot_sftm, inventory_counting.bos_sftm, relation_counting.bos_sftm])
)
def test_the_printed_scores_do_not(build):
    printed = build(**SIZES, as_printed=True)
    assert verdict(printed, "float32") is Verdict.PROVED
    assert verdict(printed, "bfloat16", budget=5.0) is Verdict.REFUTED


def test_the_staircase_costs_no_more_than_any_other_centre():
    gamma = [2.7 * k / (1.7 * k + 10) for k in range(1, 11)]
    thresholds = [(a + b) / 2 for a, b in zip(gamma, gamma[1:], strict=False)]
    chosen = rounding_cost(gamma, *staircase(gamma, "float64"))
    slopes, intercepts = staircase_at(thresholds, False, "float64")
    for c in range(10):
        assert chosen <= rounding_cost(gamma, slopes - slopes[c], intercepts - intercepts[c]) * (1 + 1e-9)
    assert chosen < rounding_cost(gamma, slopes, intercepts) / 3
