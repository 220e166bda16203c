"""The bound on the kernel of even readings: exact, above every projection, and never against a space that exists."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from command import run
from models.selection import every, first

from bounds.even_readings import fewest_in_the_regime, is_excluded, most_diagonal, quartic, widest_kernel
from verify.tasks.histogram.impossible import ARGUMENTS

# N lines in R^m, every two of the same angle of cosine alpha, as unit vectors that sum to 0 with suitable signs.
TRIANGLE = np.array([[np.cos(a), np.sin(a)] for a in (0, 2 * np.pi / 3, 4 * np.pi / 3)])
GOLDEN = (1 + 5**0.5) / 2
ICOSAHEDRON = np.array([[0, 1, GOLDEN], [0, 1, -GOLDEN], [1, GOLDEN, 0], [1, -GOLDEN, 0], [GOLDEN, 0, 1],
                        [-GOLDEN, 0, 1]]) / (1 + GOLDEN**2) ** 0.5  # fmt: skip


def smallest_ratio(F):
    """A lower estimate of min sum|u|/max|u| over u in the span of the columns, by alternating from many starts."""
    T, m = F.shape
    rng, best = np.random.default_rng(0), np.inf
    for c in np.concatenate([np.eye(m), -np.eye(m), F, rng.normal(size=(200, m))]):
        u = F @ c
        best = min(best, np.abs(u).sum() / np.abs(u).max())
    return best


@pytest.mark.parametrize("T", first(4, [4, 6, 7, 12, 24]))
@pytest.mark.parametrize("L", [2, 4, 6, 9])
def test_spaces_that_exist_are_not_excluded(T, L):
    """u of balanced signs; repeated triangles; the six diagonals of the icosahedron with both signs."""
    if L - 1 < T // 2:
        assert not is_excluded(T, L, 1) and widest_kernel(T, L) >= 1
    if T % 3 == 0 and 2 * L - 2 < T / 3 * (1 + 2 / 2):
        assert not is_excluded(T, L, 2) and widest_kernel(T, L) >= 2
    if T % 12 == 0 and 2 * L - 2 < T / 6 * (1 + 5 / 5**0.5):
        assert not is_excluded(T, L, 3) and widest_kernel(T, L) >= 3


def test_the_spaces_are_what_is_said_of_them():
    """sum|u| over max|u| of the repeated frames, sampled, is the ratio that the test above reckons with."""
    for lines, repeats, ratio in ((TRIANGLE, 4, 4 * (1 + 2 / 2)), (ICOSAHEDRON, 4, 4 * (1 + 5 / 5**0.5))):
        signs = [1, -1, 1, -1] if lines is ICOSAHEDRON else [1] * 4
        F = np.concatenate([s * lines for s in signs[:repeats]])
        assert np.abs(F.sum(0)).max() < 1e-9 and smallest_ratio(F) >= ratio - 1e-9


@pytest.mark.parametrize(("T", "L", "m"), every(2, [(32, 10, 3), (16, 5, 4), (64, 15, 5), (12, 3, 5), (64, 10, 12)]))
def test_no_projection_has_a_larger_sum(T, L, m):
    """Those whose diagonal and entries stay below `most`, as the argument has them."""
    most = most_diagonal(T, L)
    found = quartic(T, L, m)
    assert found.is_above
    grid = [Fraction(i, 500) * most for i in range(501)]
    assert all(found.a + found.b * y**2 - found.c * y**4 >= y for y in grid)
    rng = np.random.default_rng(0)
    flat = np.array([[np.cos(2 * np.pi * j * (t + 0.5) / T) for j in range(1, m + 1)] for t in range(T)])
    for F in [flat, *rng.normal(size=(50, T, m))]:
        Q = np.linalg.qr(F - F.mean(0))[0]
        R = Q @ Q.T
        if np.diag(R).max() < most:
            assert np.abs(R).sum() <= found.largest_sum(T, m) + 1e-9


def test_the_law_at_32_and_10():
    assert widest_kernel(32, 10) == 2 and quartic(32, 10, 3).largest_sum(32, 3) < 54
    assert [fewest_in_the_regime(model, 32, 10) for model in ("lin", "lin+sftm", "dot", "bos")] == [29, 29, 8, 8]


@pytest.mark.deep
def test_the_argument_holds():
    assert ARGUMENTS["W-18"](0).holds


def test_below_the_regime_is_unknown_at_once_and_below_all_weights_impossible(capsys):
    for model, d in (("lin", "28"), ("lin+sftm", "28"), ("dot", "7"), ("bos", "7")):
        code, out, _ = run(capsys, "histogram", "--model", model, "--T", "32", "--L", "10", "--d", d, "--p", "32")
        assert code == 3 and "W-18" in out
    code, out, _ = run(
        capsys, "histogram", "--model", "bos", "--T", "32", "--L", "10", "--d", "28", "--p", "1", "--json"
    )
    assert code == 2 and '"claim": "W-18"' in out


def test_the_table_shows_what_is_optimal(capsys):
    code, out, _ = run(capsys, "bounds", "--T", "32", "--L", "10", "--format", "csv")
    assert code == 0 and "29,29,-,29,1..28 outside the regime" in out
    assert "8,8,-,8,1..7 outside the regime" in out and "32,6,6,-,-" in out
