"""Even readings in lin: exact certificates for a space, against plain enumeration of its extreme vectors."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
import torch
from command import as_json, run
from scipy.optimize import linprog

from constructions.errors import BadInput
from constructions.exact_laws import on_kernel
from constructions.inventory_counting import dot, lin
from verify.arithmetic.linear_programs import Farkas, Solution, decide_system, is_farkas, is_solution
from verify.frame.certificate import Verdict
from verify.tasks.histogram.kernels import (
    Even,
    Uneven,
    block_space,
    decide_kernel,
    decide_regime,
    free_vectors,
    is_certificate,
    rank_of,
)
from verify.tasks.histogram.proof import certify
from verify.tasks.histogram.small_cases import kernel_signs, largest_family, orders_of_counts


def drawn(rng, T, m):
    """m whole columns that sum to 0, often with repeated rows."""
    rows = [[rng.randint(-2, 2) for _ in range(m)] for _ in range(T - 1)]
    return [*rows, [-sum(column) for column in zip(*rows, strict=True)]]


def is_even_by_enumeration(basis, L):
    """(2L-2)|u_t| < sum|u| on a plane: a convex function with u_t = 1 is least where some other entry is 0."""
    for zero in basis:
        u = [zero[1] * a - zero[0] * b for a, b in basis]
        if any(u) and (2 * L - 2) * max(map(abs, u)) >= sum(map(abs, u)):
            return False
    return True


def test_planes_are_decided_as_by_enumeration():
    rng, seen = random.Random(0), {True: 0, False: 0}
    for _ in range(14):
        basis = drawn(rng, rng.choice([8, 10]), 2)
        if not any(a * d - b * c for (a, b), (c, d) in combinations(basis, 2)):
            continue
        L = rng.choice([2, 3])
        found = decide_kernel(basis, L)
        assert is_certificate(basis, L, found)
        assert isinstance(found, Even) == is_even_by_enumeration(basis, L)
        seen[isinstance(found, Even)] += 1
    assert min(seen.values()) >= 2


def test_an_even_space_becomes_weights():
    """The converse of W-18: N from the exact decision, weights from N, proved."""
    rng, built = random.Random(2), 0
    while built < 2:
        basis = drawn(rng, 10, 2)
        if rank_of(basis) == 2 and isinstance(found := decide_kernel(basis, 2), Even):
            N, u = (torch.tensor([list(map(float, row)) for row in rows]).double() for rows in (found.N, basis))
            module = on_kernel("lin", u, N, L=2)
            assert module.d == 7 and certify(module).verdict is Verdict.PROVED
            built += 1


def test_a_wrong_certificate_is_refused():
    basis = block_space(9, 2)
    found = decide_kernel(basis, 3)
    assert isinstance(found, Even) and is_certificate(basis, 3, found)
    changed = [list(row) for row in found.N]
    changed[0][5] += Fraction(1, 1000)
    assert not is_certificate(basis, 3, Even(tuple(map(tuple, changed))))
    assert not is_certificate(basis, 9, found)
    uneven = decide_kernel(basis, 4)
    assert isinstance(uneven, Uneven) and is_certificate(basis, 4, uneven)
    assert not is_certificate(basis, 3, uneven)
    outside = Uneven(0, (Fraction(1), *[Fraction(0)] * 7, Fraction(-1)))
    assert not is_certificate(basis, 4, outside)


@pytest.mark.parametrize("build", [lin, dot])
def test_an_empty_kernel_has_a_row_for_every_token(build):
    """Nothing is free where the codes, or their products of pairs, are independent; a certificate may be too large."""
    kernel = free_vectors(build(T=4, L=3))
    assert kernel == [[]] * 4
    zeros = ((Fraction(0),) * 4,) * 4
    assert is_certificate(kernel, 3, Even(zeros))
    assert not is_certificate(kernel, 3, Even(((Fraction(0), Fraction(1, 3), *zeros[0][2:]), *zeros[1:])))


def test_blocks_are_even_exactly_up_to_their_size():
    for T, m in ((6, 1), (7, 2), (12, 3)):
        q = T // (m + 1)
        assert isinstance(decide_kernel(block_space(T, m), q), Even)
        assert isinstance(decide_kernel(block_space(T, m), q + 1), Uneven)


def test_a_basis_that_does_not_sum_to_zero_is_refused():
    with pytest.raises(BadInput, match="sum to 0"):
        decide_kernel([[1], [1]], 2)


def test_linear_systems_come_with_exact_numbers():
    rng = random.Random(1)
    for _ in range(30):
        A = [[rng.randint(-3, 3) for _ in range(3)] for _ in range(6)]
        b = [rng.randint(-3, 3) for _ in range(6)]
        found = decide_system(A, b)
        assert is_solution(A, b, found.x) if isinstance(found, Solution) else is_farkas(A, b, found.y)
    assert not is_farkas([[1], [-1]], [0, 0], (Fraction(1), Fraction(1)))
    assert not is_solution([[1]], [1], (Fraction(1, 2),))
    assert isinstance(decide_system([[1, 1], [-1, -1]], [1, 0]), Farkas)


def test_enumeration_and_theory_agree():
    assert [largest_family(p).found for p in (1, 2)] == [1, 3]
    assert orders_of_counts(3, 3).found == ((1, 2, 3), (3, 2, 1))
    assert [bool(kernel_signs(T, 3).found) for T in (4, 5, 6, 7)] == [False, False, True, True]


@pytest.mark.deep
def test_enumeration_and_theory_agree_further():
    assert largest_family(3).found == 7
    assert orders_of_counts(4, 4).found == ((1, 2, 3, 4), (4, 3, 2, 1))
    for T in range(2, 13):
        for L in (2, 3, 4, 5):
            assert bool(kernel_signs(T, L).found) == (L - 1 < T // 2)


def test_one_dimension_is_decided_by_balance_and_planes_by_thirds():
    """m = 1: iff L <= floor(T/2); m = 2 with 3 | T: exists iff L - 1 < T/3."""
    for T in (5, 6):
        for L in (2, 3, 4):
            assert decide_regime(T, L, T - 2).verdict == ("exists" if T // 2 >= L else "impossible")
    assert decide_regime(9, 3, 6).verdict == "exists" and decide_regime(9, 4, 6).verdict != "exists"


def test_the_command_shows_the_law(capsys):
    code, out, _ = run(capsys, "bounds", "--T", "6", "--L", "3", "--regime", "--format", "csv")
    assert code == 0 and "6,3,4,exists," in out and "2 blocks of 3 tokens, |N_ts| <= 1/5 < 1/3" in out


BLOCKS = "1,1,1,-1,-1,-1,0,0,0:1,1,1,0,0,0,-1,-1,-1"


def test_a_given_space_counts_or_is_ruled_out(capsys):
    asked = ("histogram", "--model", "lin+sftm", "--T", "9", "--kernel", BLOCKS)
    code, found = as_json(capsys, *asked, "--L", "3")
    assert (code, found["verdict"], found["claim"], found["parameters"]["d"]) == (0, "PROVED", "W-21", 6)
    code, found = as_json(capsys, *asked, "--L", "4")
    assert (code, found["verdict"], found["claim"]) == (1, "REFUTED", "W-21")
    basis = [list(map(int, row)) for row in zip(*(part.split(",") for part in BLOCKS.split(":")), strict=True)]
    assert is_certificate(basis, 4, Uneven(found["token"], tuple(map(Fraction, found["u"]))))
    code, out, _ = run(capsys, *asked, "--L", "4")
    assert code == 1 and out.splitlines()[-1].startswith("REFUTED  ") and "(W-21)" in out


def test_a_space_that_is_ruled_out_has_no_weights():
    """By another way: no W_1 column keeps the sums of count 1 and of count 2 apart, by a linear programme over it.

    The embeddings are those of U = (1, -1, 1, -1); a reading of token 0 is f on e_s, and the sums over the other slots
    of count 1 and of count 2 lie on two sides of a threshold, one way or the other.
    """
    u = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    one = torch.ones(4, dtype=torch.float64)
    E = torch.linalg.qr(torch.stack([one, u], dim=1), mode="complete").Q[:, 2:].numpy()
    for L, is_possible in ((2, True), (3, False)):
        for t in range(4):
            others = [s for s in range(4) if s != t]
            sums = {1: combinations_with_replacement(others, L - 1), 2: combinations_with_replacement(others, L - 2)}
            reads = {k: [sum(E[s] for s in slots) + k * E[t] for slots in bag] for k, bag in sums.items()}
            rows = [low - high for high in reads[1] for low in reads[2]]
            apart = any(
                linprog([0.0, 0.0], sign * np.array(rows), -np.ones(len(rows)), bounds=(None, None)).status == 0
                for sign in (1, -1)
            )
            assert apart is is_possible


SENSELESS = (
    "--T 4 --kernel 1,-1",
    "--T 4 --kernel 1,-1,1,1",
    "--T 4 --kernel 1,-1,1,-1:2,-2,2,-2",
    "--T 4 --d 3 --kernel 1,-1,1,-1",
    "--T 99 --kernel 1,-1",
    "--T 4 --kernel 1,-1,1,-1 --construction inventory",
)


@pytest.mark.parametrize("options", SENSELESS)
def test_a_space_that_makes_no_sense(capsys, options):
    code, out, err = run(capsys, "histogram", "--model", "lin", "--L", "2", *options.split())
    assert code == 2 and out == "" and err.count("\n") == 1
    assert run(capsys, "histogram", "--model", "dot", "--T", "4", "--L", "2", "--kernel", "1,-1,1,-1")[0] == 2
