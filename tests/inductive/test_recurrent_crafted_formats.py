"""The 500 crafted networks in three formats, against torch's run, a run in closed form, and the checker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from models.crafted import FAMILIES, crafted
from models.judged_crafted import MANY, decided, faults, refused_by_checker
from models.selection import first

from constructions.errors import BadInput
from verify.frame.certificate import Verdict
from verify.tasks.recurrent.enclosures import Off, Roundings

SHARES = 4
NAMES = ("float32", "bfloat16", "float64")
LEAST = {"float32": 0.8, "bfloat16": 0.75, "float64": 0.75}  # of these, decided with so few looks


def verdict_of(seed, name):
    """The verdict on a network in a format, which nothing may gainsay; None where its weights overflow there."""
    case = crafted(seed)
    try:
        found = decided(case, name)
    except BadInput as error:
        assert "overflows" in str(error) and case.family == "subnormal"
        return None
    told = [why for is_fault, why in faults(case, name, found) if is_fault]
    assert not told, (seed, name, case.family, told)
    assert not refused_by_checker(case, found), (seed, name, case.family)
    return found.verdict


QUICK = [FAMILIES.index(name) for name in ("lstm swings", "s4 first", "number line", "rotation matrix")]


@pytest.mark.parametrize("name", first(1, NAMES))
@pytest.mark.parametrize("seed", QUICK, ids=[FAMILIES[seed] for seed in QUICK])
def test_a_verdict_in_a_format_is_true(seed, name):
    assert verdict_of(seed, name) is not None


@pytest.mark.deep
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", range(SHARES))
def test_none_of_500_is_decided_wrongly_and_most_are(share, name):
    """Of those whose numbers the format holds: some have weights of 2^1000."""
    verdicts = Counter(verdict_of(seed, name) for seed in range(share, MANY, SHARES))
    del verdicts[None]
    assert verdicts[Verdict.UNKNOWN] <= (1 - LEAST[name]) * verdicts.total(), verdicts


def gainsaid(case, name, found):
    return any(is_fault for is_fault, _ in faults(case, name, found)) or refused_by_checker(case, found)


@pytest.mark.parametrize("family", ["lstm swings", "rotation matrix"])
def test_a_verdict_that_is_false_is_gainsaid(family):
    """A proof, or a first wrong length one earlier or later, of a network whose wrong one is the same in all orders."""
    case = crafted(FAMILIES.index(family))
    found = decided(case, "float64")
    n, right = found.counterexample["length"], found.extra["right_to"]
    assert n == right + 1 == case.oracle()
    for by in (-1, 1):
        other = {**found.counterexample, "length": n + by}
        assert gainsaid(case, "float64", replace(found, counterexample=other, extra={"right_to": right + by}))
    assert gainsaid(case, "float64", replace(found, verdict=Verdict.PROVED, margin=1e-9, counterexample=None))


@pytest.mark.deep
def test_a_ring_that_is_entered_late_is_not_checkable():
    """A true proof: the checker follows no run for so long, and must not say that it does not hold."""
    case = crafted(472)
    found = decided(case, "float32")
    assert found.verdict is Verdict.PROVED and found.extra["invariant"]["entry"] > 2000
    assert verdict_of(472, "float32") is Verdict.PROVED


@pytest.mark.deep
def test_boxes_of_decays_are_not_checkable():
    """A true proof, again, of boxes that the checker does not follow."""
    found = decided(crafted(198), "float32")
    assert found.verdict is Verdict.PROVED and "boxes" in found.extra
    assert verdict_of(198, "float32") is Verdict.PROVED


@pytest.mark.deep
@pytest.mark.parametrize("family", ["lstm swings", "lstm first", "disturbed cycle"])
def test_roundings_that_are_not_counted_are_found(family):
    case = crafted(FAMILIES.index(family))
    assert not gainsaid(case, "bfloat16", decided(case, "bfloat16"))
    with mock.patch.object(Roundings, "_checked", lambda self, value, error, size: Off(value, np.zeros_like(error))):
        assert gainsaid(case, "bfloat16", decided(case, "bfloat16"))
