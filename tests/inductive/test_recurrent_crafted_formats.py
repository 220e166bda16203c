"""The 500 crafted networks in three formats, against torch's run, a run in closed form, and the checker."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
import torch
from models.crafted import FAMILIES, crafted
from models.selection import first
from mpmath import isfinite, mp
from oracles import slow_units

from constructions.errors import BadInput
from constructions.recurrent.linear import RotationModel
from tests.clocks import looks
from verify.arithmetic.formats import FORMATS
from verify.arithmetic.readings import Rounded
from verify.checker.inductive import check as checked
from verify.checker.reading import FAILS, Refusal
from verify.frame.certificate import Verdict
from verify.frame.decide import Effort, certify
from verify.tasks.recurrent import rounded
from verify.tasks.recurrent.enclosures import Off, Roundings
from verify.tasks.recurrent.models import bytes_of
from verify.tasks.recurrent.task import Homogeneous

MANY, SHARES, LOOKS = 500, 4, 2000  # some 3 CPU s for a network
RUN = 1000  # tokens of torch's run
NAMES = ("float32", "bfloat16", "float64")
LEAST = {"float32": 0.8, "bfloat16": 0.75, "float64": 0.75}  # of these, decided with so few looks
PREFIXES = {"": None, rounded.SAID_LOW: rounded.LOW, rounded.SAID_HIGH: rounded.HIGH, rounded.SAID_NEAR: 0.0,
            rounded.SAID_KEEPS_LOW: rounded.LOW, rounded.SAID_KEEPS_HIGH: rounded.HIGH}  # fmt: skip
SHARE_OF = {said + rounded.EXACTLY_KEPT: share for said, share in PREFIXES.items()}


def decided(case, name):
    return certify(Homogeneous(case.model, case.task, None), Rounded(FORMATS[name]), Effort(budget=looks(LOOKS)))


def asked(case):
    """What is due after t tokens, the tokens of a turn, and where the line ends."""
    if case.task.m is not None:
        return lambda t, m=case.task.m: (t - 1) % m, case.task.m, 10**24
    if case.task.M is not None:
        return lambda t: t, case.task.M, case.task.M
    return lambda t: int(t == 1), 1, 10**24


def margins_in_torch(case, name):
    """The margins of the first answers, as torch runs the module in the format."""
    due, _, last = asked(case)
    n = min(RUN, last)
    logits = slow_units.in_format(case.model, FORMATS[name]).to(getattr(torch, name))(
        torch.zeros(1, n, dtype=torch.long)
    )
    right = torch.tensor([[due(t)] for t in range(1, n + 1)])
    logits = logits[0].double()
    best = logits.scatter(1, right, -torch.inf).max(1).values
    return (logits.gather(1, right)[:, 0] - best).tolist()


def kept(case, name, share=None):
    """The cell in the run that keeps every result exactly, where that has a closed form."""
    if isinstance(case.model, RotationModel):
        return None
    with mp.workdps(slow_units.DIGITS):
        cell = slow_units.KeptCell(case.model, FORMATS[name], share)
    return cell if cell.is_alone() else None


def faults(case, name, found):
    """What is not true of a verdict, by two runs that the reading allows, and the run that it names."""
    due, turn, most = asked(case)
    margins, cell = margins_in_torch(case, name), kept(case, name)
    wrong = [next((t for t, x in enumerate(margins, 1) if not x > 0), None)]
    wrong += [] if cell is None else [slow_units.first_wrong(cell, due, turn, most)]
    wrong = [t for t in wrong if t is not None]
    if found.verdict is Verdict.PROVED:
        yield bool(wrong), f"proved, and runs are wrong at {wrong}"
        yield found.margin > min(margins), "its margin is too large"
        return
    right = found.extra["right_to"] or 0
    yield any(t <= right for t in wrong), f"right to {right}, and runs are wrong at {wrong}"
    if found.verdict is not Verdict.REFUTED:
        return
    n, said = found.counterexample["length"], found.counterexample.get("evaluation", rounded.EVERY)
    yield not right < n or found.counterexample["is_first"] is not (right == n - 1), "not first, or first and not said"
    if said == rounded.EVERY:
        yield n <= len(margins) and margins[n - 1] > 0, f"torch is right at {n}"
        yield cell is not None and slow_units.margin_after(cell, n, due, turn) > 0, f"a run is right at {n}"
    if said in SHARE_OF and cell is not None:
        margin = slow_units.margin_after(kept(case, name, SHARE_OF[said]), n, due, turn)
        yield isfinite(margin) and margin > 0, f"the run that is named is right at {n}"


def refused_by_checker(case, found):
    """Whether the checker, which shares nothing with the proofs, says that the certificate does not hold."""
    weights = bytes_of(case.model)
    try:
        checked(weights, found.about(weights).to_json().encode())
    except Refusal as refusal:
        return refusal.exit_code == FAILS
    return False


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
@pytest.mark.parametrize("family", ["lstm swings", "lstm first", "disturbed cycle"])
def test_roundings_that_are_not_counted_are_found(family):
    case = crafted(FAMILIES.index(family))
    assert not gainsaid(case, "bfloat16", decided(case, "bfloat16"))
    with mock.patch.object(Roundings, "_checked", lambda self, value, error, size: Off(value, np.zeros_like(error))):
        assert gainsaid(case, "bfloat16", decided(case, "bfloat16"))
