"""exp, erf, sine and cosine against python-flint, at random points and where they are hardest."""

import numpy as np
import pytest
import torch
from flint import arb, ctx

from verify.arithmetic import elementary as el
from verify.arithmetic import polynomials
from verify.arithmetic.slack import LOST

GENERATOR = torch.Generator().manual_seed(11)


def spread(low, high, count=4000):
    return torch.rand(count, dtype=torch.float64, generator=GENERATOR) * (high - low) + low


EDGES = torch.tensor([0.0, -0.0, 5e-324, 1e-300, -1e-18, 1.0, -1.0, 0.5, 699.9, -699.9, 3.0], dtype=torch.float64)
FUNCTIONS = {
    "exp": (el.exp, lambda x: x.exp(), el.exp_error, True, (-700, 700)),
    "erf": (el.erf, lambda x: x.erf(), el.erf_error, False, (-7, 7)),
    "sine": (el.sine, lambda x: x.sin(), el.circle_error, False, (-(2**20), 2**20)),
    "cosine": (el.cosine, lambda x: x.cos(), el.circle_error, False, (-(2**20), 2**20)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_error_is_within_its_bound(name):
    function, exact, bound, is_relative, (low, high) = FUNCTIONS[name]
    edges = EDGES[(low <= EDGES) & (high >= EDGES)]
    multiples = torch.arange(-200, 201).double() * (0.6931471805599453 if is_relative else 1.5707963267948966) / 2
    near = torch.cat([multiples * (1 + s * 2.0**-52) for s in (-1, 0, 1)])
    steps = torch.arange(0, 200).double() / 32
    x = torch.cat([spread(low, high), spread(-2, 2), edges, near[(near >= low) & (near <= high)], steps, -steps])
    x = x[(x >= low) & (x <= high)]
    with ctx.workprec(250):
        for point, value in zip(x.tolist(), function(x).tolist(), strict=True):
            true = exact(arb(point))
            allowed = bound() * (abs(true) if is_relative else 1) + LOST
            assert abs(arb(value) - true) <= allowed, point
    assert bound() < 2e-15


def test_beyond_the_range_nothing_is_said():
    x = torch.tensor([701.0, torch.inf, torch.nan], dtype=torch.float64)
    assert torch.isnan(el.exp(x)).all()
    assert torch.isnan(el.sine(torch.tensor([2.0**21, torch.nan, torch.inf], dtype=torch.float64))).all()
    assert torch.isnan(el.erf(torch.tensor([torch.nan], dtype=torch.float64))).all()
    assert el.exp(torch.tensor([-torch.inf, -800.0], dtype=torch.float64)).tolist() == [0.0, 0.0]


def test_exp_of_arrays_is_that_of_tensors():
    x = torch.cat([spread(-700, 700), EDGES, torch.tensor([700.0, -700.0], dtype=torch.float64)])
    assert polynomials.exp(x.numpy()).tobytes() == el.exp(x).numpy().tobytes()
    assert np.isnan(polynomials.exp(np.array([701.0, -701.0, np.nan, np.inf, -np.inf]))).all()


def test_erf_of_arrays_is_that_of_tensors():
    beyond = torch.tensor([6.0, -6.0, 1e300, torch.inf, -torch.inf, torch.nan], dtype=torch.float64)
    x = torch.cat([spread(-7, 7), spread(-0.1, 0.1), EDGES, beyond])
    assert polynomials.erf(x.numpy()).tobytes() == el.erf(x).numpy().tobytes()


def test_what_decays_is_exp_or_less_than_is_lost():
    x = torch.cat([spread(0, 700), torch.tensor([0.0, 700.0, 700.1, torch.inf, torch.nan], dtype=torch.float64)])
    assert polynomials.decay(x.numpy()).tobytes() == el.exp(-x).numpy().tobytes()
