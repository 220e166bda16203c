"""Runs in float64 beside a proof of a recurrent network: what no proved margin may exceed."""

import numpy as np
import pytest
import torch

from constructions.recurrent import counters
from tests.planted import planted
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Real, Rounded
from verify.tasks.recurrent import looked

IN_FLOAT64 = Rounded(FORMATS["float64"])


def too_large(reading, by):
    """Whether a run of a right answer, by the margin 1, contradicts a proved margin that is larger by this."""
    return looked.one_run(counters.ring(m=3), (0, 0), 1, reading).contradicts(1.0 + by) is not None


def test_a_proof_in_float64_has_no_tolerance():
    assert not too_large(IN_FLOAT64, 0.0) and too_large(IN_FLOAT64, 2.0**-51)
    assert not too_large(Real(), 1e-7) and too_large(Real(), 1e-5)
    with planted(looked, "one_run", "0.0 if is_own else", ""):
        assert not too_large(IN_FLOAT64, 1e-7)


@pytest.mark.parametrize(
    "reading", [Rounded(FORMATS["bfloat16"]), Rounded(FORMATS["float64"], once=True), Rounded(FORMATS["tf32"])]
)
def test_a_run_in_float64_says_nothing_of_other_readings(reading):
    assert not too_large(reading, 1e6)


@pytest.mark.parametrize("reading", [IN_FLOAT64, Real()])
def test_a_run_that_gives_no_number_contradicts_every_margin(reading):
    model = counters.ring(m=3)
    with torch.no_grad():
        model.state_dict()[next(name for name in model.state_dict())].fill_(np.nan)
    assert looked.one_run(model, (0, 0), 1, reading).contradicts(0.0) is not None
