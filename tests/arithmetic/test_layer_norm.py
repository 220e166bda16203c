"""What LayerNorm divides by lies between the ends that are given, for arrays and for tensors, at any size."""

import mpmath
import numpy as np
import pytest
import torch
from planted import planted

from verify.arithmetic import layer_norm
from verify.arithmetic.slack import LEAST
from verify.engine.rules import normalisation

EPS = (0.0, 5e-324, 1e-300, 1e-5, 1.0)
SIZES = (LEAST, 2.0**-537, 2.0**-30, 1.0, 2.0**500)


def outside():
    """How many of the deviations of drawn rows, and of the ends of a range of them, are outside of their ends."""
    rng, found = np.random.default_rng(0), 0
    with mpmath.workprec(4000):
        for eps in EPS:
            for size in SIZES:
                v, off = rng.uniform(0.5, 2) * size, rng.choice([0.0, 0.25, 3.0]) * size
                low, high = max(v - off, 0.0), v + off
                of_arrays = layer_norm.deviation(np.array([low]), np.array([high]), eps)
                ends = [float(end) for end in normalisation.deviation(torch.tensor(v, dtype=torch.float64), off, eps)]
                for x in (low, high):
                    s = mpmath.sqrt(mpmath.mpf(x) ** 2 + mpmath.mpf(eps))
                    found += not of_arrays[0].item() <= s <= of_arrays[1].item()
                for x in (max(mpmath.mpf(v) - mpmath.mpf(off), 0), mpmath.mpf(v) + mpmath.mpf(off)):
                    found += not ends[1] <= mpmath.sqrt(x + mpmath.mpf(eps)) <= ends[2]
    return found


def test_deviations_lie_between_their_ends():
    assert outside() == 0


FAULTS = [
    (layer_norm, "hypotenuse(least, root * (1 - 4 * U))[0]", "hypotenuse(most, root)[0]"),
    (layer_norm, "hypotenuse(most, root * (1 + 4 * U))[1]", "most"),
    (normalisation, "(variance - off)", "(variance - 0.9 * off)"),
    (normalisation, "variance + off + eps", "variance + off"),
    (normalisation, "total.sqrt(), low, (most * (1 + 4 * U)).sqrt() * (1 + 4 * U)", "total.sqrt(), low, total.sqrt()"),
]


@pytest.mark.parametrize(("module", "right", "wrong"), FAULTS)
def test_faults_in_deviations_are_found_out(module, right, wrong):
    with planted(module, "deviation", right, wrong):
        assert outside() > 0


@pytest.mark.parametrize("eps", [-1e-5, float("nan")])
def test_no_deviation_is_known_of_an_eps_that_is_none(eps):
    with np.errstate(invalid="ignore"):
        of_arrays = layer_norm.deviation(np.ones(1), np.ones(1), eps)
    assert of_arrays[0].item() == 0 and np.isnan(of_arrays[1]).all()
    assert all(bool(end.isnan()) for end in normalisation.deviation(torch.ones(()).double(), 0.0, eps))
