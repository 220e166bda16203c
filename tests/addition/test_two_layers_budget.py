"""The induction over columns ends with its budget, and what is cut is not proved."""

import pytest
from clocks import ENDLESS, looks

from constructions import addition
from constructions.adder.digits import Digits
from verify.arithmetic.readings import reading_of
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.addition.task import DigitAddition


@pytest.mark.parametrize("precision", [None, "float64"])
def test_every_piece_asks_the_clock(precision):
    problem = DigitAddition(addition.two_layers(n=4), Digits(4))
    assert certify(problem, reading_of(precision), Effort(ENDLESS)).verdict is Verdict.PROVED
    for number in (1, 4, 12):
        found = certify(problem, reading_of(precision), Effort(looks(number)))
        assert found.verdict is Verdict.UNKNOWN and "before every column was decided" in found.reason
