"""LayerNorm in bfloat16, one operation after another, with sums in float32: the bounds hold what is computed."""

import numpy as np
import pytest
import torch
from planted import planted

from constructions.decoder_arrays import NormArrays
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.operations import Operations
from verify.tasks.inductive import drift, noisy

AT = noisy.Allowed(FORMATS["bfloat16"], FORMATS["float32"])
EPS = 1e-5
# rows whose mean is large beside their deviation, found by a climb on what one pass loses of their variance
ROWS = [
    [1.3359375, 1.7109375, 1.421875, 1.9609375, 1.578125, 1.7734375, 1.1875, 1.453125, 1.6171875, 1.421875, 0.85546875],
    [1.8046875, 1.96875, 1.8046875, 1.0390625, 1.421875, 1.28125, 1.3984375],
    [1.4375, 2.125, 1.9765625, 1.1875, 1.7421875],
]


def stored(x):
    """The nearest numbers of bfloat16: of few numbers of that format float64 adds and squares exactly."""
    return x.to(torch.bfloat16).double()


def mean(x, has_inverse):
    """A mean of few numbers in steps: the sum, rounded, divided by d or times 1/d, rounded."""
    d, total = x.shape[-1], stored(x.sum(-1, keepdim=True))
    return stored(total * stored(torch.tensor(1 / d))) if has_inverse else stored(total / d)


def in_one_pass(x, has_inverse):
    """(x - mean) / sqrt(mean of squares - square of the mean + eps), each result stored."""
    centre = mean(x, has_inverse)
    variance = stored(mean(stored(x * x), has_inverse) - stored(centre * centre))
    return stored(stored(x - centre) / stored(stored(variance + EPS).sqrt()))


def layer_of(d):
    return NormArrays(np.ones(d), np.zeros(d), EPS)


def beyond(x, has_inverse):
    """How far computed numbers are beyond the bounds of rows and of their drift; NaN and infinity bound all."""
    layer = layer_of(x.shape[-1])
    exact = noisy.Noisy.exact(x.numpy())
    moving = drift.Drift(exact, np.zeros_like(exact.mid), drift.mean_of(exact))
    found, drifted = noisy.layer_norm(AT, exact, layer, "n"), drift.normalised(AT, moving, layer)
    computed = in_one_pass(x, has_inverse).numpy()
    far = np.abs(computed - found.mid) - found.noise
    moved = np.abs(computed - drifted.exact.mid) - drifted.exact.noise - drifted.off
    return float(np.nanmax(far, initial=-1)), float(np.nanmax(moved, initial=-1))


@np.errstate(all="ignore")
@pytest.mark.parametrize("has_inverse", [False, True])
def test_norms_in_steps_stay_within_their_bounds(has_inverse):
    """The rows found by a climb, and drawn ones, on most of which there is a bound."""
    rng = np.random.default_rng(0)
    drawn = rng.uniform(1, 2, (300, 1)) * (1 + rng.uniform(0.3, 1.0, (300, 1)) * rng.standard_normal((300, 7)))
    for x in (*(torch.tensor([row], dtype=torch.float64) for row in ROWS), stored(torch.from_numpy(drawn))):
        assert max(beyond(x, has_inverse)) <= 0
    assert np.isfinite(noisy.layer_norm(AT, noisy.Noisy.exact(drawn), layer_of(7), "n").noise).mean() > 0.5


@np.errstate(all="ignore")
def test_variances_whose_steps_are_not_counted_are_found_out():
    x = torch.tensor(ROWS[:1], dtype=torch.float64)
    right = "0.0 if self.accumulate is None else ((1 + self.u) ** 14 - 1) * ENLARGE"
    with planted(Operations, "off_in_variance", right, "0.0"):
        assert min(beyond(x, has_inverse=False)) > 0


def test_means_by_a_rounded_inverse_are_off_by_no_more():
    """Of fifteen numbers: a fifteenth, their sum and its product are rounded, by more than sums alone count."""
    x = torch.randint(128, 256, (5000, 15), generator=torch.Generator().manual_seed(0)).double()
    off = (mean(x, has_inverse=True) / x.mean(-1, keepdim=True) - 1).abs().max().item()
    assert AT.sums(15 + 2) < off <= AT.off_in_mean(15)
