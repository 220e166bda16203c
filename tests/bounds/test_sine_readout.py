"""The brackets of sinusoidal readouts hold against least squares, exact interpolation, and bounds of the entries."""

import numpy as np
import pytest

from bounds.sine_readout import bracket, is_exact, limit


def table(d, P):
    angles = np.arange(1, P + 1)[:, None] * 10_000.0 ** (-np.arange(0, d, 2) / d)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


@pytest.mark.parametrize("d, P, W", [(8, 6, 1.0), (16, 12, 5.0), (16, 24, 100.0), (32, 20, 10.0)])
def test_no_readout_that_is_tried_beats_the_lower_end(d, P, W):
    found = bracket(d, P, W)
    wave = np.cos(2 * np.pi * np.arange(1, P + 1) / 10)
    x = table(d, P)
    tried = [np.zeros(d), *np.random.default_rng(0).uniform(-W, W, (20, d))]
    tried += [np.clip(np.linalg.lstsq(np.vstack([x, ridge * np.eye(d)]), np.r_[wave, np.zeros(d)])[0], -W, W)
              for ridge in (1e-1, 1e-3, 1e-6)]  # fmt: skip
    best = min(np.abs(x @ a - wave).max() for a in tried)
    assert found.low <= best + 1e-12 and found.low <= found.high
    assert found.high - found.low < 1e-6


def test_larger_entries_reach_further_and_without_a_bound_d_positions_are_exact():
    assert [limit(32, W, 0.1) for W in (1.0, 10.0, 1000.0)] == [(23, 24), (27, 28), (35, 36)]
    assert is_exact(32, 32) and bracket(32, 32, 1.0).low > 0.1
    assert np.linalg.matrix_rank(table(8, 8)) == 8


@pytest.mark.parametrize("sizes", [(3, 4, 1.0), (4, 0, 1.0), (4, 4, 0.0), (4, 4, float("inf")), (4, 4, float("nan"))])
def test_sizes_without_a_meaning_are_refused(sizes):
    with pytest.raises(ValueError, match="must be"):
        bracket(*sizes)
