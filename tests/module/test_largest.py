"""The head that says the largest token (W-25): right above its steepness, not below; the bound's margin."""

import pytest
import sympy as sp
from models.selection import first

from bounds import largest as bound
from constructions.errors import BadInput
from constructions.largest import steep
from verify.frame.certificate import Verdict
from verify.module import certify, largest, tokens


@pytest.mark.parametrize("V, n", first(1, [(4, 2), (5, 12)]))
def test_the_bound_is_the_least_margin(V, n):
    found = certify(steep(V=V, n=n), inputs=tokens([V] * n), expected=largest)
    least = float(bound.least_margin().subs({bound.n: n, bound.s: sp.log(2 * n)}))
    assert found.verdict is Verdict.PROVED and found.margin <= least <= 2.001 * found.margin + 1e-12


@pytest.mark.parametrize("n", first(1, [3, 16]))
def test_right_above_the_steepness_and_not_below(n):
    s = float(bound.steepness().subs(bound.n, n))
    for change, verdict in ((1e-3, Verdict.PROVED), (-1e-3, Verdict.REFUTED)):
        module = steep(V=4, n=n, steepness=s + change)
        found = certify(module, inputs=tokens([4] * n), expected=largest)
        assert found.verdict is verdict
    assert found.counterexample["predicted"] < found.counterexample["expected"]


def test_sizes_that_are_refused():
    with pytest.raises(BadInput, match="V=1"):
        steep(V=1, n=3)
    with pytest.raises(BadInput, match="take fewer tokens"):
        steep(V=400, n=8)
