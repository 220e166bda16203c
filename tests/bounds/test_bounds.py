"""The formulas equal what the modules compute, and their margins what the verifier certifies."""

import mpmath
import numpy as np
import pytest
import sympy
import torch

from bounds import coherent_counting, count01, exact_laws
from bounds import inventory_counting as inventory_bounds
from bounds import readout as readout_bounds
from bounds import relation_counting as relation_bounds
from constructions import inventory_counting, relation_counting
from verify.tasks.histogram.proof import certify

PAIRS = [
    (relation_counting.dot, relation_bounds.dot),
    (relation_counting.zero_bos, relation_bounds.dot),
    (relation_counting.bos, relation_bounds.bos),
    (relation_counting.bos_sftm, relation_bounds.bos_sftm),
    (inventory_counting.lin, inventory_bounds.lin),
    (inventory_counting.lin_sftm, inventory_bounds.lin_sftm),
    (inventory_counting.dot_sftm, inventory_bounds.dot_sftm),
    (inventory_counting.bos_sftm, inventory_bounds.bos_sftm),
    (inventory_counting.dot, inventory_bounds.dot),
    (inventory_counting.bos, inventory_bounds.dot),
]


def ids(pair):
    return f"{pair[0].__module__.split('.')[1]}.{pair[0].__name__}"


def hidden(module, tokens):
    """Pre-activations at position 0."""
    captured = {}
    x = module.E[tokens]
    context = x if not module.has_bos else torch.cat([module.e_BOS[None], x])
    mixed = x + module.mixing(x, context) @ context
    captured["z"] = mixed @ module.W_1 + module.b_1
    return captured["z"][0].detach().numpy()


@pytest.mark.parametrize("pair", PAIRS, ids=ids)
@pytest.mark.parametrize(("T", "L"), [(5, 4), (8, 12), (32, 10)])
def test_gamma_is_what_the_module_computes(pair, T, L):
    build, bound = pair[0], pair[1]()
    module = build(T=T, L=L, dtype=torch.float64)
    for k in range(1, L + 1):
        rest = [1 + i % (T - 1) for i in range(L - k)]
        z = hidden(module, torch.tensor([0] * k + rest))
        expected = float(bound.at(bound.gamma, T=T, L=L, k=k))
        assert np.maximum(z, 0).sum() == pytest.approx(expected, rel=1e-11)
        if bound.off is not None:
            assert z[1:].max() <= float(bound.at(bound.off, T=T, L=L, k=k)) + 1e-11


@pytest.mark.parametrize("pair", PAIRS, ids=ids)
@pytest.mark.parametrize(("T", "L"), [(5, 4), (32, 10)])
def test_separation_is_the_smallest_gap_and_twice_the_margin(pair, T, L):
    build, bound = pair[0], pair[1]()
    gamma = [bound.at(bound.gamma, T=T, L=L, k=k) for k in range(1, L + 1)]
    gaps = [abs(float(b - a)) for a, b in zip(gamma, gamma[1:], strict=False)]
    separation = float(bound.at(bound.separation, T=T, L=L))
    assert min(gaps) == pytest.approx(separation, rel=1e-11)
    certificate = certify(build(T=T, L=L, dtype=torch.float64))
    assert certificate.margin == pytest.approx(separation / 2, rel=1e-8)
    expected = [float(m) for m in readout_bounds.staircase(gamma)]
    assert certificate.margin_per_count == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("pair", PAIRS, ids=ids)
def test_the_sizes_suffice(pair):
    build, bound = pair[0], pair[1]()
    T, L = 7, 6
    d, p = (int(bound.at(e, T=T, L=L)) for e in (bound.d, bound.p))
    assert certify(build(T=T, L=L, d=d, p=p)).verdict.value == "PROVED"


def test_formulas_are_sympy():
    for _, bound in PAIRS:
        for value in (bound().gamma, bound().separation, bound().d, bound().p):
            assert isinstance(value, sympy.Basic)
            assert sympy.latex(value)


def test_the_limit_on_noise_is_the_floor_of_its_threshold_at_every_size():
    """Past 2^53 as well, where a floor taken in double precision never becomes certain."""
    for N in (3, 36, 37, 60, 500):
        with mpmath.workdps(400):
            e = mpmath.e
            a = N + e / (1 + e)
            assert count01.largest_noise(N) == int(mpmath.floor((e ** (N + 1) / (1 + e) + e) / a - 1 - e))


def test_printed_dimensions_in_whole_numbers_are_the_formulas():
    formulas = [bound() for bound in coherent_counting.BOUNDS]
    for T, L in [(2, 3), (3, 4), (7, 5), (8, 3), (31, 10), (32, 10), (50, 5), (64, 33)]:
        assert exact_laws.printed_dimensions(T, L) == tuple(int(b.at(b.printed, T=T, L=L)) for b in formulas)
