"""Proofs about recurrent networks: against plain Python runs, and the lemma against sampled states."""

from __future__ import annotations

import numpy as np
import pytest
from models.recurrent import random_network
from models.selection import first
from oracles.noisy import Noisy
from oracles.recurrent_cells import margins as true_margins

from tests.planted import planted
from verify.arithmetic.any_order import RoundedArithmetic
from verify.arithmetic.balls import Ball
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.norms import is_positive_definite
from verify.arithmetic.readings import Kernel, Rounded
from verify.arithmetic.rounding import rounded
from verify.counting.tasks import Task
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import chain
from verify.tasks.recurrent.chain import Ellipsoids, Rules
from verify.tasks.recurrent.enclosures import Dual, Duals, Roundings
from verify.tasks.recurrent.network import Network, float_step, orbit, step, vectors
from verify.tasks.recurrent.task import Homogeneous

STEPS = 400


def decided(seed, reading=None):
    model, modulus = random_network(seed)
    problem = Homogeneous(model, Task.of("modular", modulus=modulus), None)
    return certify(problem, reading, Effort(budget=2)), true_margins(model, modulus, STEPS)


@pytest.mark.parametrize(("start", "models"), first(1, [(0, 8), (0, 40), (200, 2000)]))
def test_verdicts_agree_with_enumeration(start, models):
    """PROVED: right by the margin at every length that is run. REFUTED: first wrong where the run is."""
    seen = {"PROVED": 0, "REFUTED": 0, "UNKNOWN": 0}
    for seed in range(start, start + models):
        certificate, true = decided(seed)
        seen[certificate.verdict.value] += 1
        if certificate.verdict.value == "PROVED":
            assert min(true) >= certificate.margin - 1e-9, seed
        elif certificate.verdict.value == "REFUTED":
            n = certificate.counterexample["length"]
            assert n > STEPS or (true[n - 1] <= 1e-9 and certificate.margin <= 0), seed
            assert min([1.0, *true[: n - 1]]) > -1e-9 and certificate.counterexample["is_first"], seed
        else:
            assert min([1.0, *true[: certificate.extra["right_to"]]]) > -1e-9, seed
    assert min(seen["PROVED"], seen["REFUTED"]) >= min(models / 8, 10) and seen["UNKNOWN"] <= sum(seen.values()) / 10


@pytest.mark.parametrize("models", first(1, [4, 12]))
@pytest.mark.deep
def test_a_dtype_and_a_kernel_agree_with_the_run(models):
    for seed in range(models):
        certificate, true = decided(seed, Rounded(FORMATS["float32"]))
        if certificate.verdict.value == "PROVED":
            assert min(true) >= certificate.margin - 1e-3
        certificate, true = decided(seed, Kernel())
        if certificate.verdict.value == "PROVED":
            assert min(true) >= certificate.margin - 1e-9


def violations(fmt_name=None, seeds=range(24)):
    """How often a sampled step ends farther out than the lemma's left-hand side says."""
    found = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        model, _ = random_network(seed)
        net, rules = Network.of(model), Rules()
        if fmt_name:
            net, rules = net.rounded(FORMATS[fmt_name]), Rules(RoundedArithmetic.of(FORMATS[fmt_name]))
        N, size = net.size, 10.0 ** rng.uniform(-9, 0)
        states = orbit(net, [0] * 12)[9:11]
        states[0] = rounded(states[0], FORMATS[fmt_name]) if fmt_name else states[0]
        wanted = states[1] + rng.normal(size=N) * size * rng.choice([0.0, 3.0, 100.0])
        shapes = np.stack([np.tril(rng.normal(size=(N, N))) + 2 * np.eye(N) for _ in range(2)]) * size
        before, after = (Ellipsoids.of(c[None], s[None]) for c, s in zip((states[0], wanted), shapes, strict=True))
        bound = float(chain.excess(net, 0, before, after, rules)[0])
        e = rng.normal(size=(200, N))
        e = np.concatenate([e / np.linalg.norm(e, axis=1)[:, None], np.linalg.svd(shapes[0])[2], np.zeros((1, N))])
        start = states[0] + e @ (before.shapes[0] * before.scales[0]).T
        if fmt_name:
            start = rounded(start, FORMATS[fmt_name])
            inside = np.linalg.norm(
                np.linalg.solve(before.shapes[0] * before.scales[0], (start - states[0]).T).T, axis=1
            )
            start = start[inside <= 1]
            end = np.concatenate(step(net, vectors(net, start), 0, Noisy(FORMATS[fmt_name], rng)), axis=-1)
        else:
            end = float_step(net, start, 0)
        reach = np.linalg.norm(np.linalg.solve(after.shapes[0] * after.scales[0], (end - wanted).T), axis=0)
        found += bool((reach > bound * (1 + 1e-6) + 1e-6).any())
    return found


LEMMA = [
    *((name, range(8)) for name in (None, "bfloat16", "float32")),
    *((name, range(8, 24)) for name in (None, "bfloat16", "float32")),
]


@pytest.mark.parametrize(("name", "seeds"), first(3, LEMMA))
def test_no_state_leaves_the_bound_of_the_lemma(name, seeds):
    assert violations(name, seeds) == 0


@pytest.mark.parametrize(
    ("owner", "name", "right", "wrong", "fmt"),
    [
        (chain, "_widened", "scaled + varied", "varied", "bfloat16"),
        (chain, "excess", "length(moved) + _widened", "0 * length(moved) + _widened", None),
        (chain, "_widened", "return alone", "return alone / 2", None),
        (chain, "derivative", "chain.widths()", "0 * chain.widths()", None),
        (chain, "spectral_norm", "norm + radii", "norm", None),
        (Duals, "_sum", "* self._reach", "* 0 * self._reach", None),
        (Roundings, "linear", "np.maximum(terms, 2)", "0 * terms", "bfloat16"),
    ],
)
def test_planted_faults_in_the_lemma_are_caught(owner, name, right, wrong, fmt):
    with planted(owner, name, right, wrong):
        assert any(violations(fmt, [seed]) for seed in range(40))


def beyond_the_joint_bound():
    """How often |M (J e + d)| is larger than the bound for some J, e and d, tried in many directions and signs."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(60):
        N = int(rng.integers(1, 4))
        A, R, M = rng.normal(size=(1, N, N)), np.abs(rng.normal(size=(1, N, N))), rng.normal(size=(1, N, N))
        R, delta = R * rng.choice([0.0, 0.1, 2.0]), np.abs(rng.normal(size=(1, N))) * rng.choice([0.1, 1.0, 3.0])
        unit = Ellipsoids(np.zeros((1, N)), np.eye(N)[None], np.zeros(1, dtype=int))
        bound = chain._widened(Ball(A, R), delta, unit, unit, M)[0]
        e = rng.normal(size=(3000, N))
        e /= np.linalg.norm(e, axis=1)[:, None]
        signs = rng.choice([-1, 1], size=e.shape)
        reach = np.linalg.norm((e @ A[0].T + signs * (np.abs(e) @ R[0].T + delta)) @ M[0].T, axis=1)
        found += reach.max() > bound
    return found


def test_the_joint_bound_is_never_exceeded():
    assert beyond_the_joint_bound() == 0
    for name, right, wrong in (
        ("_widened", "scaled + varied", "scaled"),
        ("_columns", "D / np.sqrt(_shares(weights))", "D"),
        ("_beside", "(G, 1 + q)", "(G, 0 * q + 1)"),
        ("_beside", "(K, 1 + 1 / q)", "(K, 0 * q + 1)"),
    ):
        with planted(chain, name, right, wrong):
            assert beyond_the_joint_bound() > 0, name


def beyond_all_together():
    """How often |m + M (J e + d)| is larger than the bound for some J, e and d, m being known up to a radius."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(60):
        N = int(rng.integers(1, 4))
        A, R, M = rng.normal(size=(1, N, N)), np.abs(rng.normal(size=(1, N, N))), rng.normal(size=(1, N, N))
        R, delta = R * rng.choice([0.0, 0.1, 2.0]), np.abs(rng.normal(size=(1, N))) * rng.choice([0.0, 1.0, 3.0])
        m, r = rng.normal(size=(1, N)) * rng.choice([0.1, 1.0, 10.0]), np.abs(rng.normal(size=(1, N))) * 0.1
        unit = Ellipsoids(np.zeros((1, N)), np.eye(N)[None], np.zeros(1, dtype=int))
        bound = chain._together(Ball(A, R), Ball(m, r), delta, unit, unit, M)[0]
        e = rng.normal(size=(3000, N))
        e /= np.linalg.norm(e, axis=1)[:, None]
        signs, sides = rng.choice([-1, 1], size=e.shape), rng.choice([-1, 1], size=e.shape)
        reach = np.linalg.norm(m + sides * r + (e @ A[0].T + signs * (np.abs(e) @ R[0].T + delta)) @ M[0].T, axis=1)
        found += reach.max() > bound
    return found


def test_the_bound_on_all_three_terms_is_never_exceeded():
    assert beyond_all_together() == 0
    for name, right, wrong in (
        ("_together", "delta / after.scales[:, None]) + varied", "delta / after.scales[:, None])"),
        ("_together", "D / np.sqrt(w[:, :-1])", "D"),
        ("_together", "ENLARGE / np.sqrt(w[:, -1])", "ENLARGE + 0 * w[:, -1]"),
        ("_together", "joined(K, k)", "joined(K, Ball(k.mid, 0 * k.rad))"),
        ("_shares", "size.sum(-1, keepdims=True)", "size.max(-1, keepdims=True)"),
    ):
        with planted(chain, name, right, wrong):
            assert beyond_all_together() > 0, (name, right)


def test_cholesky_refuses_what_is_not_definite():
    rng = np.random.default_rng(0)
    for _ in range(50):
        A = rng.normal(size=(4, 4))
        values, vectors_ = np.linalg.eigh(A + A.T)
        least = float(rng.choice([-1e-13, -1e-3, 0.0]))
        B = vectors_ @ np.diag(np.append(np.abs(values[1:]), least)) @ vectors_.T
        B = (B + B.T) / 2
        assert not is_positive_definite(chain.Ball(B[None], np.zeros((1, 4, 4))))[0]
        C = B + np.eye(4)
        assert is_positive_definite(chain.Ball(C[None], np.zeros((1, 4, 4))))[0] == (least > -1)
        assert not is_positive_definite(chain.Ball(C[None], np.full((1, 4, 4), 2.0)))[0]


def test_a_value_that_is_no_number_may_move_with_its_argument():
    """Though its centre is known, a ReLU's slope there is anything from 0 to 1."""
    lost, one = Ball(np.array([[np.nan]]), np.array([[np.inf]])), Ball(np.ones((1, 1)), np.zeros((1, 1)))
    slope = Duals(np.ones(1), 1).relu(Dual(lost, one[..., None], one)).slope
    assert slope.lower <= 0 and slope.upper >= 1
