"""One weight changed beyond the margin is REFUTED; within the proved margin the model stays PROVED."""

import pytest
import torch
from models.selection import first
from oracles.histogram import all_wrong_pairs, exactly_right, smallest, weights_of

from constructions import inventory_counting, relation_counting
from constructions.histogram import HistogramTransformer
from verify.frame.certificate import Verdict
from verify.tasks.histogram.proof import certify

BUILDERS = [
    relation_counting.dot,
    relation_counting.bos,
    relation_counting.bos_sftm,
    inventory_counting.lin,
    inventory_counting.lin_sftm,
    inventory_counting.dot_sftm,
]


def ids(build):
    return build.__name__


def mutated(build, name, index, change, **sizes):
    module = build(**sizes, dtype=torch.float64)
    with torch.no_grad():
        parameter = getattr(module, name)
        parameter[index] = change(parameter[index])
    return module


def assert_refuted(module):
    certificate = certify(module, budget=20)
    assert certificate.verdict is Verdict.REFUTED
    found = certificate.counterexample
    assert not exactly_right(module, weights_of(module), tuple(found["tokens"]), found["position"])
    return certificate


@pytest.mark.parametrize("build", first(1, BUILDERS), ids=ids)
@pytest.mark.parametrize("k", first(1, [4, 0, 9]))
def test_an_intercept_beyond_the_margin(build, k):
    """Raising one class by twice the largest margin makes it win at a neighbouring count."""
    margin = max(certify(build(T=12, L=10, dtype=torch.float64)).margin_per_count)
    assert_refuted(mutated(build, "b_2", k, lambda b: b + 2.5 * margin, T=12, L=10))


@pytest.mark.parametrize("build", BUILDERS, ids=ids)
@pytest.mark.parametrize("k", first(1, [0, 5, 9, 1, 2, 3, 4, 6, 7, 8]))
@pytest.mark.parametrize("sign", [1, -1])
def test_an_intercept_within_the_margin(build, k, sign):
    """Moving one intercept by less than the certified margin changes no verdict."""
    margin = certify(build(T=32, L=10, dtype=torch.float64)).margin
    module = mutated(build, "b_2", k, lambda b: b + sign * 0.98 * margin, T=32, L=10)
    assert certify(module).verdict is Verdict.PROVED


@pytest.mark.deep
@pytest.mark.parametrize("build", BUILDERS)
def test_flips_and_scales(build):
    sizes = {"T": 32, "L": 10}
    assert_refuted(mutated(build, "W_2", (0, 3), lambda w: -w, **sizes))
    assert_refuted(mutated(build, "b_1", 0, lambda b: b - 3.0, **sizes))
    read = int(build(**sizes).W_1[:, 0].nonzero()[0])
    assert_refuted(mutated(build, "W_1", (read, 0), lambda w: -w, **sizes))
    assert_refuted(mutated(build, "E", (0, 0), lambda e: 0.0 * e, **sizes))


def three_token_fault(token, a, b, T, L):
    """Inventory counting with one more neuron, on only when token, a and b all occur with n_a + n_b = L - 1."""
    module = inventory_counting.lin(T=T, L=L, p=T + 1, dtype=torch.float64)
    weight = module.A[0, 0].item()
    with torch.no_grad():
        # <x', e_a> = weight n_a and <x', e_b> = weight n_b, up to the own token's 1
        module.W_1[a, T], module.W_1[b, T], module.W_1[token, T] = 1.0, 1.0, 1.0
        others = [s for s in range(T) if s not in (token, a, b)]
        module.W_1[others, T] = -1.0
        module.b_1[T] = -1.0 - weight * (L - 0.5)  # on when n_token + n_a + n_b = L, for the query `token`, a or b
        module.W_2[T] = 0.0
        module.W_2[T, L - 1] = 1e4
    return module


@pytest.mark.parametrize(("token", "a", "b"), [(0, 3, 7), (7, 0, 3), (2, 9, 4)])
def test_planted_fault_is_found(token, a, b):
    """The fault needs no more than the three tokens; the smallest counterexample is confirmed by 60 digits."""
    certificate = assert_refuted(three_token_fault(token, a, b, T=10, L=6))
    found = certificate.counterexample
    assert set(found["tokens"]) <= {token, a, b}
    assert found["is_smallest"]


@pytest.mark.parametrize(("query", "a", "b"), [(4, 0, 2), (0, 1, 3), (1, 4, 0)])
def test_a_fault_on_exactly_three_distinct_tokens(query, a, b):
    """A class that is never right wins when query, a and b occur twice each: no two-token sequence shows it."""
    T, L = 5, 6
    base = inventory_counting.lin(T=T, L=L, p=T + 4, dtype=torch.float64)
    weights = {name: value.detach() for name, value in base.named_parameters()}
    module = HistogramTransformer("lin", T=T, L=L, d=T, p=T + 4, classes=L + 1, dtype=torch.float64).fill(**weights)
    weight = module.A[0, 0].item()
    with torch.no_grad():
        module.b_2[L] = -10.0
        # on only when the position holds one of the three tokens and so do all other positions
        module.W_1[[query, a, b], T] = 1.0
        module.b_1[T] = -1.0 - weight * (L - 0.5)
        module.W_2[T, L] = 400.0
        # and only when none of them occurs three times, at a position that holds `query`
        for i, s in enumerate((query, a, b), start=T + 1):
            module.W_1[s, i] = 1.0
            module.b_1[i] = -weight * 2.5 - (s == query)
            module.W_2[i, L] = -4000.0
    wrong = all_wrong_pairs(module)
    assert {tuple(sorted(sequence)) for sequence, _ in wrong} == {tuple(sorted([query, a, b] * 2))}
    certificate = assert_refuted(module)
    found = certificate.counterexample
    assert len(set(found["tokens"])) == 3
    assert (tuple(found["tokens"]), found["position"]) == smallest(wrong)
    assert int(certificate.extra["wrong_pairs"]) == len(wrong) == 2 * 90
