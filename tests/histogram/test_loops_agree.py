"""The compiled loop over multisets finds the integers that numpy finds, and enumeration."""

from importlib.util import find_spec

import pytest
from models.selection import first

from tests.planted import planted
from tests.tools.counts_on_device import compared
from verify.tasks.histogram import loops

pytestmark = pytest.mark.skipif(not find_spec("llvmlite"), reason="weightproof[fast]")


@pytest.mark.parametrize(("models", "enumerated"), first(1, [(3, 3), (500, 200)]))
def test_counts_shares_and_counterexamples_are_the_same(models, enumerated):
    assert compared(models, enumerated, ["compiled", "numpy"])[0] == []


def test_a_loop_that_counts_otherwise_is_found():
    with planted(loops, "_total", "@ f.astype", "@ np.ones_like(f).astype"):
        assert compared(3, 0, ["compiled", "numpy"])[0]
