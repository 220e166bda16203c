"""What figures of contextual counting show is what the weights compute, by plain sums."""

import numpy as np
import pytest
import torch

from constructions.contextual_counting import build
from constructions.contextual_with_positions import build as with_positions
from verify.tasks.contextual import circuits


@pytest.mark.parametrize("bias", ["BOS", "]"])
def test_eq_3_is_the_model_up_to_what_leaks(bias):
    model, number = build(24, 3, bias=bias, dtype=torch.float64), {"BOS": 1, "]": 3}[bias]
    for n in (0, 1, 7, 16):
        with torch.no_grad():
            logits = model(torch.tensor([2] + [1] * n + [3, 2, 3, 2, 3]))[0].numpy()
        found = circuits.formula(model, bias, number, n)
        assert abs(found - logits).max() < 1e-9 and found.argmax() == n
    one, other = circuits.output_lines(model, bias)
    assert (np.diff(one) > 0).all() and (np.diff(other) < 0).all()  # one rises with the count, the other falls


def test_the_width_is_a_standard_deviation_and_grows_with_the_count():
    rows = np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    assert circuits.widths(rows).tolist() == [0.0, 1.0]
    model = build(64, 2)
    widths = circuits.widths(np.stack([circuits.shares(circuits.formula(model, "BOS", 1, n)) for n in range(9)]))
    assert (np.diff(widths) > 0).all() and abs(circuits.shares(np.array([0.0, 0.0])) - 0.5).max() == 0


@pytest.mark.parametrize("keys", ["onehot", "convex"])
def test_keys_tell_regions_apart_and_are_one_outside(keys):
    model = build(40, 4, keys=keys)
    found, regions = circuits.keys_of_ones(model)
    assert regions == [0, 1, 0, 2, 0, 3, 0, 4, 0]
    outside = found[[i for i, region in enumerate(regions) if region == 0]]
    assert np.ptp(outside, axis=0).max() < 1e-3 * np.abs(found).max()
    inside = found[[i for i, region in enumerate(regions) if region]]
    assert min(np.abs(a - b).max() for i, a in enumerate(inside) for b in inside[:i]) > 1
    points = circuits.projected(found)
    assert points.shape == (9, 2) and abs(points.mean(axis=0)).max() < 1e-9 * np.abs(points).max()
    plain = np.linalg.norm(found - found.mean(axis=0), axis=1)
    assert (np.linalg.norm(points, axis=1) <= plain * (1 + 1e-9) + 1e-9).all()


def test_scores_by_tokens_and_by_rotation():
    plain = circuits.token_scores(build(40, 4))
    assert (plain[:, 2:] == plain[0, 4]).all() and (plain[:, :2] < plain[0, 4]).all()
    rotating = with_positions(40, 4, "rope")
    sizes = circuits.by_rotation(rotating)
    assert (sizes[:-1] == 0).all() and sizes[-1] == -circuits.token_scores(rotating)[0, 0]
