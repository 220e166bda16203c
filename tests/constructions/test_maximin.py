"""The simplex method of readouts: its points are as good as those of scipy's linear programmes, and inside the cube."""

import numpy as np
import pytest
from scipy.optimize import linprog

from constructions import maximin
from constructions.recurrent.diagonal_arrays import rates_of


def best(rows):
    """The largest least form, by scipy."""
    m, n = rows.shape
    forms, cost = np.hstack([-rows, np.ones((m, 1))]), np.append(np.zeros(n), -1.0)
    return -linprog(cost, A_ub=forms, b_ub=np.zeros(m), bounds=[(-1, 1)] * n + [(None, None)]).fun


def drawn(seed):
    """Forms of every kind: normal, of few values (degenerate), all on one side, of very different sizes."""
    g = np.random.default_rng(seed)
    m, n = g.integers(1, 40), g.integers(1, 10)
    kinds = (
        g.normal(size=(m, n)),
        g.integers(-2, 3, size=(m, n)).astype(float),
        np.abs(g.normal(size=(m, n))),
        g.normal(size=(m, n)) * 10.0 ** g.integers(-3, 4, size=(m, 1)),
    )
    return kinds[seed % len(kinds)]


@pytest.mark.parametrize("seed", range(60))
def test_no_point_is_better(seed):
    rows = drawn(seed)
    x, least = maximin.maximin(rows)
    assert np.abs(x).max() <= 1 and least == (rows @ x).min()
    assert least == pytest.approx(best(rows), rel=1e-9, abs=1e-9 * np.abs(rows).max())


@pytest.mark.parametrize(("m", "s"), [(10, 3), (6, 4), (9, 3)])
def test_readouts_of_decays_are_best(m, s):
    """Forms whose least is thousandths of their size."""
    times = 1 - rates_of(m, s, 2 * m) ** np.arange(1, 2 * m + 1)[:, None]
    features = np.linalg.qr(np.hstack([np.ones((2 * m, 1)), times]))[0]
    wins = np.zeros((2 * m, m, m, s + 1))
    for t in range(2 * m):
        wins[t, :, t % m] += features[t]
        wins[t, np.arange(m), np.arange(m)] -= features[t]
    rows = wins[np.arange(m) != np.arange(2 * m)[:, None] % m].reshape(-1, m * (s + 1))
    assert maximin.maximin(rows)[1] == pytest.approx(best(rows), rel=1e-6)


def test_planted_a_search_that_stops_early_is_caught(monkeypatch):
    """Planted: a noise as large as the forms ends the search at its first basis, which is not best."""
    rows = drawn(40)
    monkeypatch.setattr(maximin, "NOISE", 10.0)
    assert maximin.maximin(rows)[1] < best(rows) - 1e-3


def test_where_rounding_hides_the_answer_scipy_finds_it(monkeypatch):
    rows = drawn(40)
    monkeypatch.setattr(maximin, "PIVOT", np.inf)
    assert maximin.maximin(rows) is None
    assert (rows @ maximin.largest_least(rows)).min() == pytest.approx(best(rows))
